//! How a database is opened.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How long a call waits for a lock that another process holds, unless told otherwise.
pub const BUSY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(5);

/// When SQLite flushes to stable storage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Synchronous {
    /// At every commit: an acknowledged write survives the loss of power.
    #[default]
    Full,
    /// At checkpoints: an acknowledged write survives the death of the process, not always that of the machine.
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

/// Where the database lies and how it is opened.
///
/// ```
/// use larder_capabilities::sqlite::{SqliteConfig, Synchronous};
///
/// let config = SqliteConfig::new("larder.db").with_synchronous(Synchronous::Normal);
/// assert_eq!(config.busy_timeout.as_secs(), 5);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqliteConfig {
    /// The file. It is made where it is not there; its folder must be. A relative path is looked up once, when the database
    /// is opened. A file that is moved, replaced or removed while it is open takes no write any more: `Unavailable`.
    pub path: PathBuf,
    /// When SQLite flushes to stable storage.
    #[serde(default)]
    pub synchronous: Synchronous,
    /// How long a write waits for a lock that another process holds, from the call or from the last write of this process
    /// on; then it is `Timeout`, and nothing was written.
    #[serde(default = "busy_timeout_default", rename = "busy_timeout_ms", with = "millis")]
    pub busy_timeout: Duration,
}

impl SqliteConfig {
    /// The database in the file at `path`, with full durability.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), synchronous: Synchronous::default(), busy_timeout: BUSY_TIMEOUT_DEFAULT }
    }

    /// Sets when SQLite flushes to stable storage.
    #[must_use]
    pub fn with_synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Sets how long a call waits for a lock that another process holds.
    #[must_use]
    pub fn with_busy_timeout(mut self, busy_timeout: Duration) -> Self {
        self.busy_timeout = busy_timeout;
        self
    }
}

fn busy_timeout_default() -> Duration {
    BUSY_TIMEOUT_DEFAULT
}

/// A duration as whole milliseconds.
mod millis {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
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
