//! SQLite: five of the six contracts in one file, for one machine and any number of its processes.
//!
//! ```no_run
//! use larder_capabilities::sqlite::{Sqlite, SqliteConfig};
//! use larder_kernel::{ChatMessage, HistoryProviderExt, Namespace, Thread};
//!
//! # async fn example() -> larder_kernel::Result<()> {
//! let sqlite = Sqlite::open(SqliteConfig::new("larder.db")).await?;
//! let history = sqlite.history(Namespace::new("app")?);
//! let thread = Thread::new("assistant", "session-1")?;
//! history.append(&thread, ChatMessage::user("Hello")).await?;
//! # Ok(())
//! # }
//! ```
//!
//! Each open database has one writer thread and a few reader threads. Concurrent calls of any number of tasks
//! share a commit, and so a flush to the disk (group commit). The futures need no particular runtime.

mod config;
pub(crate) mod diagnose;
mod driver;
mod engine;
mod expiry;
mod failure;
mod graph;
mod history;
mod key_value;
mod read_only;
mod schema;
mod task;
mod value;
mod vector;
mod verify;

use larder_kernel::{Capabilities, Capability, Namespace, Result};

pub use config::{BUSY_TIMEOUT_DEFAULT, SqliteConfig, Synchronous};
pub use driver::SqliteDriver;
use engine::Engine;
pub use graph::SqliteGraphStore;
pub use history::SqliteHistoryProvider;
pub use key_value::SqliteKeyValueStore;
use schema::Schema;
pub use task::SqliteTaskStore;
pub use vector::SqliteVectorStore;

/// An open database that returns stores. Clones share it.
///
/// Close it with [`close`](Self::close), which moves the write-ahead log into the file, so that a copy of the
/// file is complete. Without it, the database closes when the last clone and the last store are dropped. That
/// drop waits at most 250 ms for the writer; if the writer needs longer, the log stays next to the file, and
/// the next opening reads it.
#[derive(Debug, Clone)]
pub struct Sqlite {
    engine: Engine,
}

impl Sqlite {
    /// Opens the database, creates the file if it is missing, and upgrades the schema to the newest version.
    ///
    /// # Errors
    /// `InvalidInput` naming `path` if the folder does not exist or the file belongs to another program;
    /// `PermissionDenied` if the file is not writable; `Corrupt` if it is not a database; `Unsupported` if a
    /// newer version of this program wrote it, its schema is older than this version upgrades (the error says
    /// how to move the data), or the file system does not support WAL; `Timeout` if another process holds the
    /// lock.
    pub async fn open(config: SqliteConfig) -> Result<Self> {
        Self::open_at(config, Schema::CURRENT).await
    }

    /// As `open`, as a program with this schema.
    pub(crate) async fn open_at(config: SqliteConfig, schema: Schema) -> Result<Self> {
        Ok(Self { engine: Engine::open(config, schema, expiry::JOB).await? })
    }

    /// Returns the history store of `namespace`.
    #[must_use]
    pub fn history(&self, namespace: Namespace) -> SqliteHistoryProvider {
        SqliteHistoryProvider::new(self.engine.clone(), namespace)
    }

    /// Returns the key-value store of `namespace`.
    #[must_use]
    pub fn key_value(&self, namespace: Namespace) -> SqliteKeyValueStore {
        SqliteKeyValueStore::new(self.engine.clone(), namespace)
    }

    /// Returns the capabilities of the stores, read back from the database's settings.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        capabilities(&self.engine)
    }

    /// Draws a new generation for every thread, bucket and board, and returns their number.
    pub(crate) async fn renew_generations(&self) -> Result<u64> {
        let renew = |sql: &rusqlite::Connection| {
            let mut renewed = 0;
            for table in ["threads", "kv_buckets", "boards"] {
                let update = format!("UPDATE {table} SET generation = (random() & 4611686018427387903) | 1");
                renewed += sql.execute(&update, [])?;
            }
            Ok(larder_kernel::check::size(renewed))
        };
        self.engine.write("sqlite.renew_generations", renew).await
    }

    /// Returns true if the writer thread has ended, so that every further call fails.
    pub(crate) fn is_closed(&self) -> bool {
        self.engine.is_closed()
    }

    /// Closes the database and waits for it. Writes that were sent before complete. Later calls of other
    /// clones and of stores fail with `Unavailable`.
    pub async fn close(self) {
        self.engine.close().await;
    }
}

/// Returns the capabilities of every store on `engine`.
pub(crate) fn capabilities(engine: &Engine) -> Capabilities {
    Capabilities::new(engine.durability()).with(Capability::MultiProcess)
}

#[cfg(test)]
mod tests;
