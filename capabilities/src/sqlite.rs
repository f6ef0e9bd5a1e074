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
//! Each open database has one thread that writes and a few that read; calls of any number of tasks share a commit, and
//! so a flush to the disk, where they come at the same time. The futures need no particular runtime.

mod config;
pub(crate) mod diagnose;
mod driver;
mod engine;
mod expiry;
mod failure;
mod graph;
mod history;
mod key_value;
mod schema;
mod task;
mod value;
mod vector;

use larder_kernel::{Capabilities, Capability, Namespace, Result};

pub use config::{BUSY_TIMEOUT_DEFAULT, SqliteConfig, Synchronous};
pub use driver::SqliteDriver;
use engine::Engine;
pub use graph::SqliteGraphStore;
pub use history::SqliteHistoryProvider;
pub use key_value::SqliteKeyValueStore;
pub use task::SqliteTaskStore;
pub use vector::SqliteVectorStore;

/// An open database, from which the stores are taken. Clones share it; it closes when the last clone and the last
/// store are dropped.
#[derive(Debug, Clone)]
pub struct Sqlite {
    engine: Engine,
}

impl Sqlite {
    /// Opens the database, makes the file where it is not there, and brings its schema to the newest version.
    ///
    /// # Errors
    /// `InvalidInput` naming `path` where the folder does not exist or the file belongs to another program;
    /// `PermissionDenied` where it may not be written; `Corrupt` where it is no database; `Unsupported` where a newer
    /// version of this program wrote it, its schema is older than this version upgrades (the error says how to move the
    /// data), or the file system allows no WAL; `Timeout` where another process keeps it locked.
    pub async fn open(config: SqliteConfig) -> Result<Self> {
        Ok(Self { engine: Engine::open(config, expiry::JOB).await? })
    }

    /// The conversations of `namespace`.
    #[must_use]
    pub fn history(&self, namespace: Namespace) -> SqliteHistoryProvider {
        SqliteHistoryProvider::new(self.engine.clone(), namespace)
    }

    /// The buckets of `namespace`.
    #[must_use]
    pub fn key_value(&self, namespace: Namespace) -> SqliteKeyValueStore {
        SqliteKeyValueStore::new(self.engine.clone(), namespace)
    }

    /// What the database's stores declare, as its settings read back.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        capabilities(&self.engine)
    }

    /// Whether the thread that writes has ended, so that no call can succeed any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.engine.is_closed()
    }

    /// Lets go of the database and waits until it is closed, which is when every clone, store and stream is dropped.
    pub async fn close(self) {
        self.engine.close().await;
    }
}

/// What every store on `engine` declares.
pub(crate) fn capabilities(engine: &Engine) -> Capabilities {
    Capabilities::new(engine.durability()).with(Capability::MultiProcess)
}

#[cfg(test)]
mod tests;
