//! The configuration of a database.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::driver::OpenMode;
pub use crate::files::BUSY_TIMEOUT_DEFAULT;
use crate::files::{FilePermissions, busy_timeout_default, millis};

/// The moment at which SQLite flushes to stable storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Synchronous {
    /// At every commit: an acknowledged write survives a power failure.
    #[default]
    Full,
    /// At checkpoints: an acknowledged write survives a crash of the process, but not always one of the
    /// machine.
    Normal,
}

impl Synchronous {
    pub(crate) const fn as_sql(self) -> &'static str {
        match self {
            Self::Full => "FULL",
            Self::Normal => "NORMAL",
        }
    }
}

/// The location and settings of a database.
///
/// ```
/// use larder_capabilities::sqlite::{SqliteConfig, Synchronous};
///
/// let config = SqliteConfig::new("larder.db").with_synchronous(Synchronous::Normal);
/// assert_eq!(config.busy_timeout.as_secs(), 5);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct SqliteConfig {
    /// The file. It is created if it is missing; its folder must exist. A relative path is resolved once,
    /// when the database is opened. If the file, its write-ahead log (`-wal`) or its index (`-shm`) is moved,
    /// replaced or removed while it is open, every write fails with `Unavailable`.
    pub path: PathBuf,
    /// The moment at which SQLite flushes to stable storage.
    #[serde(default)]
    pub synchronous: Synchronous,
    /// The time limit of a write that waits for a lock of another process. The time starts at the call or at
    /// the last write of this process, whichever is later. After it the write fails with `Timeout`, and
    /// nothing is written.
    #[serde(default = "busy_timeout_default", rename = "busy_timeout_ms", with = "millis")]
    pub busy_timeout: Duration,
    /// The permissions of a new database, of the files next to it, and of its folder of blobs.
    #[serde(default)]
    pub permissions: FilePermissions,
    /// The permission of the program to write. With [`OpenMode::ReadOnly`] the file must exist and have the
    /// newest schema; nothing is created or upgraded.
    #[serde(default)]
    pub mode: OpenMode,
}

impl SqliteConfig {
    /// Creates the configuration of the database file at `path`, with full durability.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            synchronous: Synchronous::default(),
            busy_timeout: BUSY_TIMEOUT_DEFAULT,
            permissions: FilePermissions::default(),
            mode: OpenMode::default(),
        }
    }

    /// Sets the moment at which SQLite flushes to stable storage.
    #[must_use]
    pub fn with_synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Sets whether the program may write.
    #[must_use]
    pub fn with_mode(mut self, mode: OpenMode) -> Self {
        self.mode = mode;
        self
    }

    /// Sets how long a call waits for a lock of another process.
    #[must_use]
    pub fn with_busy_timeout(mut self, busy_timeout: Duration) -> Self {
        self.busy_timeout = busy_timeout;
        self
    }

    /// Sets the permissions of new files and folders.
    #[must_use]
    pub fn with_permissions(mut self, permissions: FilePermissions) -> Self {
        self.permissions = permissions;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_enough_and_unknown_settings_are_refused() {
        let config: SqliteConfig = serde_json::from_str(r#"{"path":"a.db"}"#).unwrap();
        assert_eq!(config, SqliteConfig::new("a.db"));
        let config: SqliteConfig =
            serde_json::from_str(r#"{"path":"a.db","synchronous":"normal","busy_timeout_ms":10}"#).unwrap();
        assert_eq!(config.synchronous, Synchronous::Normal);
        assert_eq!(config.busy_timeout, Duration::from_millis(10));
        assert!(serde_json::from_str::<SqliteConfig>(r#"{"path":"a.db","sync":"off"}"#).is_err());
    }
}
