//! The size of the write-ahead log. SQLite begins it anew once all of it is in the database and nobody reads from it,
//! which never comes about by itself where readers overlap without a gap. The writer then waits for them, for a while.
//!
//! The size is what SQLite says at each commit. To ask the system for that of the file would have its times written at the
//! next commit, which costs a quarter of it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::hooks::Wal;

use super::super::failure::Fallible;
use super::connection;
use super::short::Desks;

/// The size beyond which the log is cut.
const LOG_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// By how much the log grows until the next try, after one that found readers too slow.
const LOG_BYTES_STEP: u64 = 16 * 1024 * 1024;
/// How long the writer waits for readers that still use the log.
const PATIENCE: Duration = Duration::from_millis(500);
/// The pages from which each commit has what readers allow written to the database: what SQLite does by itself where
/// nobody listens to its commits.
const CHECKPOINT_PAGES: u64 = 1_000;
/// What each page in the log has beside the page.
const FRAME_BYTES: u64 = 24;

/// The log of one database, as its writer minds it.
pub(super) struct Log {
    /// As of the last commit.
    pages: Arc<AtomicU64>,
    page_bytes: u64,
    bytes_max: u64,
    /// Where reads may rest that need the log.
    desks: Weak<Desks>,
}

impl Log {
    /// Has the connection tell the size at each of its commits.
    pub(super) fn of(connection: &mut Connection, desks: Weak<Desks>) -> Fallible<Self> {
        let page_bytes: u32 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
        let pages = Arc::new(AtomicU64::new(0));
        let told = Arc::clone(&pages);
        let hook = move |log: &mut Wal, pages| {
            let pages = u64::try_from(pages).unwrap_or_default();
            told.store(pages, Ordering::Relaxed);
            if pages >= CHECKPOINT_PAGES {
                // Failing costs nothing but space, and the commit stands.
                log.checkpoint().ok();
            }
            Ok(())
        };
        connection.wal_hook(Some(hook))?;
        Ok(Self { pages, page_bytes: page_bytes.into(), bytes_max: LOG_BYTES_MAX, desks })
    }

    /// Cuts the log where it has grown too long. Failing costs nothing but space.
    pub(super) fn keep_short(&mut self, connection: &Connection) {
        if self.bytes() <= self.bytes_max {
            return;
        }
        if let Some(desks) = self.desks.upgrade() {
            desks.call_in();
        }
        connection::with_patience(PATIENCE, || {
            let cut = connection.prepare_cached("PRAGMA wal_checkpoint(TRUNCATE)");
            // The second column: pages that are still in the log.
            let left = cut.and_then(|mut cut| cut.query_row([], |row| row.get::<_, i64>(1)));
            if let Some(left) = left.ok().and_then(|left| u64::try_from(left).ok()) {
                self.pages.store(left, Ordering::Relaxed);
            }
        });
        let left = self.bytes();
        self.bytes_max = if left > LOG_BYTES_MAX { left + LOG_BYTES_STEP } else { LOG_BYTES_MAX };
    }

    fn bytes(&self) -> u64 {
        self.pages.load(Ordering::Relaxed) * (self.page_bytes + FRAME_BYTES)
    }
}
