//! Postgres: conversations and small state in one database, for any number of machines.
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
//! The tables stand in a schema of their own, `larder`, which opening makes and upgrades; with `migrate=check` it only
//! looks. Every table's key begins with the namespace: to spread the data, make the tables partitioned by
//! `HASH (namespace)` before the first use, or distribute them by `namespace` with Citus. `guide/src/postgres-partitions.md`
//! in the repository has the statements.
//!
//! Texts of messages, values and documents are compressed in the database where they are large, by lz4 where the server
//! has it.
//!
//! No call waits for ever on a server that stays silent: for a connection `acquire_timeout_ms`, for an answer five seconds
//! longer than `statement_timeout_ms`, for the schema to be made or upgraded `migrate_timeout_ms`. After that the
//! connections at rest are closed and made anew.
//!
//! The store's clock is the database's. The futures need a tokio runtime.

mod batch_wait;
mod config;
pub(crate) mod decode;
pub(crate) mod diagnose;
mod driver;
pub(crate) mod encode;
pub(crate) mod engine;
pub(crate) mod failure;
pub(crate) mod graph;
mod history;
mod key_value;
mod schema;
#[cfg(feature = "sqlx-interop")]
pub mod sqlx_interop;
mod task;
mod vector;

use std::fmt;
use std::sync::Arc;

use larder_kernel::{Capabilities, Namespace, Result};

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
use task::ClaimBatcher;
pub use task::PostgresTaskStore;
pub use vector::PostgresVectorStore;
use vector::{IndexBuilder, Statements};

/// An open database, from which the stores are taken. Clones share its connections, which close when the last clone
/// and the last store are dropped.
///
/// Open it once and take from it the stores of every namespace: they share one pool, whose size and timeouts stand in the
/// [`PostgresConfig`].
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
    /// Connects, and makes or upgrades the schema.
    ///
    /// # Errors
    /// `Unavailable` or `Timeout` where the server does not answer; `PermissionDenied` for a wrong password or a user
    /// who may not make the schema; `NotFound` where the database is not there; `Unsupported` for a schema of a newer
    /// version, one that is older than this version upgrades (the error says how to move the data), an older one with
    /// `migrate=check`, or a server that is too old.
    pub async fn open(config: PostgresConfig) -> Result<Self> {
        let engine = Engine::open(config.clone()).await?;
        Ok(Self::new(engine, &config))
    }

    fn new(engine: Engine, config: &PostgresConfig) -> Self {
        let appends = Arc::new(AppendBatcher::new(engine.clone()));
        let claims = Arc::new(ClaimBatcher::new(engine.clone()));
        let indexes = Arc::new(IndexBuilder::new(engine.connect_options(), config));
        Self { engine, appends, claims, indexes, statements: Arc::default() }
    }

    /// The conversations of `namespace`.
    #[must_use]
    pub fn history(&self, namespace: Namespace) -> PostgresHistoryProvider {
        PostgresHistoryProvider::new(self.engine.clone(), Arc::clone(&self.appends), namespace)
    }

    /// The buckets of `namespace`.
    #[must_use]
    pub fn key_value(&self, namespace: Namespace) -> PostgresKeyValueStore {
        PostgresKeyValueStore::new(self.engine.clone(), namespace)
    }

    /// What the database's stores declare, as its settings read back.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.engine.capabilities()
    }

    /// Takes what has expired off the disk, and answers how many threads and keys went.
    ///
    /// Writes begin to do so in the background, a part at a time and, once all is gone, at most once a minute; this is for
    /// a program that does not write, or cannot wait. Threads go from the instant on at which their time to live passes,
    /// keys from a minute after, in all namespaces. What somebody else works on at the moment is left for the next time.
    /// The server's own vacuum makes the room free for reuse. Cancelled in between, what went has gone.
    ///
    /// # Errors
    /// Those of every write: `Unavailable`, `Timeout`, `PermissionDenied` for a user who may only read.
    pub async fn sweep(&self) -> Result<u64> {
        engine::sweep::whole(&self.engine).await
    }

    /// How many connections there are.
    pub(crate) fn pool(&self) -> crate::driver::Pool {
        self.engine.pool()
    }

    /// Closes the connections, for every clone and store.
    pub async fn close(self) {
        self.indexes.stop();
        self.engine.close().await;
    }
}
