//! When the writer takes what has expired off the disk: behind the answers to its callers, so that none of them waits for
//! it, and never so long at a time that the next ones do.

use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::super::failure::Fallible;
use super::super::sweep;
use super::connection;

/// How long nothing is looked for after all that had expired was gone.
const INTERVAL: Duration = Duration::from_secs(60);
/// How long the next part of the work is left, while there is more of it: each costs a flush to the disk.
const PAUSE: Duration = Duration::from_millis(100);

pub(super) struct Sweeper {
    next: Instant,
}

impl Sweeper {
    /// One that begins with the first write, as a program may end soon after it.
    pub(super) fn new() -> Self {
        Self { next: Instant::now() }
    }

    /// Takes away a part of what has expired, if it is time to, and says whether that changed anything. Where it cannot be
    /// done now, because another process holds the lock or the disk is full, it is left for the next time.
    pub(super) fn sweep(&mut self, sql: &Connection) -> bool {
        if Instant::now() < self.next {
            return false;
        }
        let swept = if sweep::is_due(sql).unwrap_or(false) { part(sql).ok() } else { None };
        let more = swept.is_some_and(|swept| swept.more);
        self.next = Instant::now() + if more { PAUSE } else { INTERVAL };
        swept.is_some()
    }
}

/// One part, in a transaction of its own.
fn part(sql: &Connection) -> Fallible<sweep::Swept> {
    let execute = |statement| sql.prepare_cached(statement)?.execute([]);
    connection::with_patience(Duration::ZERO, || execute("BEGIN IMMEDIATE"))?;
    let swept = sweep::sweep(sql).and_then(|swept| {
        execute("COMMIT")?;
        Ok(swept)
    });
    if swept.is_err() && !sql.is_autocommit() {
        let _ = execute("ROLLBACK");
    }
    swept
}
