//! The size of the write-ahead log. SQLite begins it anew once all of it is in the database and nobody reads from it,
//! which never comes about by itself where readers overlap without a gap. The writer then waits for them, for a while.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::Connection;

use super::connection;

/// The size beyond which the log is cut.
const LOG_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// By how much the log grows until the next try, after one that found readers too slow.
const LOG_BYTES_STEP: u64 = 16 * 1024 * 1024;
/// How long the writer waits for readers that still use the log.
const PATIENCE: Duration = Duration::from_millis(500);

/// The log of one database, as its writer minds it.
pub(super) struct Log {
    path: Option<PathBuf>,
    bytes_max: u64,
}

impl Log {
    pub(super) fn of(connection: &Connection) -> Self {
        // SQLite's own name for the file: it may have followed a link.
        let path = connection.path().map(|path| PathBuf::from(format!("{path}-wal")));
        Self { path, bytes_max: LOG_BYTES_MAX }
    }

    /// Cuts the log where it has grown too long. Failing costs nothing but space.
    pub(super) fn keep_short(&mut self, connection: &Connection) {
        if self.bytes() <= self.bytes_max {
            return;
        }
        connection::with_patience(PATIENCE, || {
            let cut = connection.prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)");
            let _ = cut.and_then(|mut cut| cut.query_row([], |_| Ok(())));
        });
        let left = self.bytes();
        self.bytes_max = if left > LOG_BYTES_MAX { left + LOG_BYTES_STEP } else { LOG_BYTES_MAX };
    }

    fn bytes(&self) -> u64 {
        self.path.as_ref().and_then(|path| path.metadata().ok()).map_or(0, |file| file.len())
    }
}
