//! Postgres: all six contracts in one database, for any number of machines.
//!
//! ```no_run
//! use larder_capabilities::postgres::{Postgres, PostgresConfig};
//! use larder_kernel::{ChatMessage, HistoryProviderExt, Namespace, Thread};
//!
//! # async fn example() -> larder_kernel::Result<()> {
//! let postgres = Postgres::open(PostgresConfig::from_url("postgres://app@localhost/app")?).await?;
//! let history = postgres.history(Namespace::new("app")?);
//! let thread = Thread::new("assistant", "session-1")?;
//! history.append(&thread, ChatMessage::user("Hello")).await?;
//! # Ok(())
//! # }
//! ```
//!
//! The tables are in the schema `larder`, which opening creates and upgrades; with `migrate=check` it only
//! verifies. Every table's key begins with the namespace. To spread the data, partition the tables by
//! `HASH (namespace)` before the first use, or distribute them by `namespace` with Citus. The page
//! `guide/src/postgres-partitions.md` in the repository has the statements.
//!
//! Messages are compressed before they are sent. The database compresses large values and documents, with lz4
//! if the server supports it.
//!
//! Every call on a silent server ends. The limit for a connection is `acquire_timeout_ms`. The limit for a
//! reply is five seconds more than `statement_timeout_ms`. The limit for creating or upgrading the schema is
//! `migrate_timeout_ms`. After a timeout the pool closes its idle connections and opens new ones.
//!
//! The stores use the database's clock. The futures need a tokio runtime.

mod batch_wait;
mod blob;
mod config;
pub(crate) mod decode;
pub(crate) mod diagnose;
mod driver;
pub(crate) mod encode;
pub(crate) mod engine;
pub(crate) mod failure;
mod format;
pub(crate) mod graph;
mod history;
mod key_value;
mod schema;
mod session;
#[cfg(feature = "sqlx-interop")]
pub mod sqlx_interop;
mod task;
mod vector;
pub(crate) mod verify;

use std::fmt;
use std::sync::Arc;

use larder_kernel::{Capabilities, Namespace, Result};

pub use blob::PostgresBlobStore;
pub use config::{
    ACQUIRE_TIMEOUT_DEFAULT, IDLE_IN_TRANSACTION_TIMEOUT_DEFAULT, LOCK_TIMEOUT_DEFAULT,
    MIGRATE_TIMEOUT_DEFAULT, Migrate, POOL_SIZE_DEFAULT, PostgresConfig, STATEMENT_TIMEOUT_DEFAULT,
    VECTOR_INDEX_ROWS_MIN_DEFAULT, VectorIndex,
};
pub use driver::PostgresDriver;
use engine::Engine;
pub use graph::PostgresGraphStore;
use history::AppendBatcher;
pub use history::PostgresHistoryProvider;
pub use key_value::PostgresKeyValueStore;
use schema::Schema;
use task::ClaimBatcher;
pub use task::PostgresTaskStore;
pub use vector::PostgresVectorStore;
use vector::{IndexBuilder, Statements};

/// An open database that returns stores. Clones share its connections, which close when the last clone and
/// the last store are dropped.
///
/// Open it once and take the stores of every namespace from it. They share one pool, whose size and timeouts
/// are in the [`PostgresConfig`].
#[derive(Clone)]
pub struct Postgres {
    engine: Engine,
    appends: Arc<AppendBatcher>,
    claims: Arc<ClaimBatcher>,
    indexes: Arc<IndexBuilder>,
    statements: Arc<Statements>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").field("engine", &self.engine).finish()
    }
}

impl Postgres {
    /// Connects, and creates or upgrades the schema.
    ///
    /// # Errors
    /// `Unavailable` or `Timeout` if the server does not reply; `PermissionDenied` for a wrong password or a
    /// user who may not create the schema; `NotFound` if the database does not exist; `Unsupported` for a
    /// schema of a newer version, a schema older than this version upgrades (the error says how to move the
    /// data), an older schema with `migrate=check`, or a server that is too old.
    pub async fn open(config: PostgresConfig) -> Result<Self> {
        let engine = Engine::open(config.clone()).await?;
        Ok(Self::new(engine, &config))
    }

    /// Opens the database as a later release does, whose schema has these migrations more. For tests of
    /// upgrades.
    ///
    /// # Errors
    /// As [`Postgres::open`].
    #[doc(hidden)]
    pub async fn open_as_later(config: PostgresConfig, migrations: &'static [&'static str]) -> Result<Self> {
        let all: Vec<&str> = Schema::CURRENT.migrations.iter().chain(migrations).copied().collect();
        let engine = Engine::open_at(config.clone(), None, Schema { migrations: all.leak() }).await?;
        Ok(Self::new(engine, &config))
    }

    fn new(engine: Engine, config: &PostgresConfig) -> Self {
        let appends = Arc::new(AppendBatcher::new(engine.clone()));
        let claims = Arc::new(ClaimBatcher::new(engine.clone()));
        let indexes = Arc::new(IndexBuilder::new(engine.connect_options(), engine.mode(), config));
        Self { engine, appends, claims, indexes, statements: Arc::default() }
    }

    /// Returns the history store of `namespace`.
    #[must_use]
    pub fn history(&self, namespace: Namespace) -> PostgresHistoryProvider {
        PostgresHistoryProvider::new(self.engine.clone(), Arc::clone(&self.appends), namespace)
    }

    /// Returns the key-value store of `namespace`.
    #[must_use]
    pub fn key_value(&self, namespace: Namespace) -> PostgresKeyValueStore {
        PostgresKeyValueStore::new(self.engine.clone(), namespace)
    }

    /// Returns the blob store of `namespace`.
    #[must_use]
    pub fn blobs(&self, namespace: Namespace) -> PostgresBlobStore {
        PostgresBlobStore::new(self.engine.clone(), namespace)
    }

    /// Returns the capabilities of the stores, read back from the database's settings.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    /// Removes expired data and the bytes of replaced blobs from the disk. Returns the number of removed
    /// threads and keys.
    ///
    /// Writes start the same cleanup in the background, in small parts, and at most once a minute when
    /// nothing is left to remove. Call this method if the program does not write or cannot wait. In all
    /// namespaces, it removes a thread from the instant at which its time to live passes, and a key from one
    /// minute after that. It removes the bytes of a blob ten minutes after the blob was replaced or deleted,
    /// and those of an abandoned write after an hour. It skips rows that another transaction has locked; the
    /// next run removes them. The server's vacuum makes the space reusable. If the call is cancelled, the
    /// removed data stays removed.
    ///
    /// # Errors
    /// As for every write: `Unavailable`, `Timeout`, or `PermissionDenied` for a user who may only read.
    pub async fn sweep(&self) -> Result<u64> {
        engine::sweep::whole(&self.engine).await
    }

    /// Returns the state of the connection pool.
    pub(crate) fn pool(&self) -> crate::driver::Pool {
        self.engine.pool()
    }

    /// Closes the connections of every clone and store.
    pub async fn close(self) {
        self.indexes.stop();
        self.engine.close().await;
    }
}
