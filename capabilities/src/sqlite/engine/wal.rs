//! The size of the write-ahead log (WAL). SQLite resets the WAL when it is fully checkpointed and no reader
//! uses it. That never happens if readers overlap without a gap. The writer then truncates the WAL, and waits
//! a while for the readers.
//!
//! SQLite reports the size at each commit. A `stat` of the file would make the next commit update the file's
//! timestamps, which costs a quarter of the commit.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::super::failure::Fallible;
use super::connection;
use super::inline_read::ConnectionSlots;

/// The size above which the WAL is truncated.
const WAL_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The growth of the WAL until the next attempt, after readers were too slow.
const WAL_BYTES_STEP: u64 = 16 * 1024 * 1024;
/// The time for which the writer waits for readers that still use the WAL.
const READER_WAIT: Duration = Duration::from_millis(500);
/// The number of pages from which each commit runs a checkpoint. It is SQLite's default when no hook is set.
const CHECKPOINT_PAGES: u64 = 1_000;
/// The size of the header of each page in the WAL.
const FRAME_HEADER_BYTES: u64 = 24;

/// Monitors the size of the WAL for the writer.
pub(super) struct WalMonitor {
    /// The size as of the last commit.
    pages: Arc<AtomicU64>,
    page_bytes: u64,
    bytes_max: u64,
    /// Idle inline reads, whose snapshots keep the WAL from being reset.
    slots: Weak<ConnectionSlots>,
}

impl WalMonitor {
    /// Sets the hook that reports the size at each commit.
    pub(super) fn of(connection: &mut Connection, slots: Weak<ConnectionSlots>) -> Fallible<Self> {
        let page_bytes: u32 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        let pages = Arc::new(AtomicU64::new(0));
        let reported = Arc::clone(&pages);
        let hook = move |wal: &mut Wal, pages| {
            let pages = u64::try_from(pages).unwrap_or_default();
            reported.store(pages, Ordering::Relaxed);
            if pages >= CHECKPOINT_PAGES {
                // A failed checkpoint costs only space; the commit remains valid.
                wal.checkpoint().ok();
            }
            Ok(())
        };
        connection.wal_hook(Some(hook))?;
        Ok(Self { pages, page_bytes: page_bytes.into(), bytes_max: WAL_BYTES_MAX, slots })
    }

    /// Truncates the WAL if it has grown too large. A failure costs only space.
    pub(super) fn truncate_if_large(&mut self, connection: &Connection) {
        if self.bytes() <= self.bytes_max {
            return;
        }
        if let Some(slots) = self.slots.upgrade() {
            slots.reclaim_idle();
        }
        connection::with_busy_timeout(READER_WAIT, || {
            let truncate = connection.prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)");
            // The second column is the number of pages that are still in the WAL.
            let left = truncate.and_then(|mut truncate| truncate.query_row([], |row| row.get::<_, i64>(1)));
            if let Some(left) = left.ok().and_then(|left| u64::try_from(left).ok()) {
                self.pages.store(left, Ordering::Relaxed);
            }
        });
        let left = self.bytes();
        self.bytes_max = if left > WAL_BYTES_MAX { left + WAL_BYTES_STEP } else { WAL_BYTES_MAX };
    }

    fn bytes(&self) -> u64 {
        self.pages.load(Ordering::Relaxed) * (self.page_bytes + FRAME_HEADER_BYTES)
    }
}
