//! When the writer removes expired data: after it has replied to its callers, so that no caller waits for it, and in steps
//! so short that the next callers hardly wait either.

use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::super::failure::Fallible;
use super::connection;

/// How long the task rests after it removed everything that had expired.
const INTERVAL: Duration = Duration::from_secs(60);
/// How long it rests between two steps: each costs an fsync.
const PAUSE: Duration = Duration::from_millis(100);

/// What one step removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExpiryStep {
    /// Threads and keys.
    pub(crate) removed: u64,
    /// Whether there may be more to remove now.
    pub(crate) more: bool,
}

/// How the stores remove what has expired. The engine is given this when it opens, as the stores depend on the engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpiryJob {
    /// Whether there may be something to remove. Costs two index lookups and no transaction.
    pub(crate) is_due: fn(&Connection) -> Fallible<bool>,
    /// Removes a part of what has expired, inside a write transaction.
    pub(crate) step: fn(&Connection) -> Fallible<ExpiryStep>,
}

/// Runs the job at times.
pub(super) struct ExpiryTask {
    job: ExpiryJob,
    next: Instant,
}

impl ExpiryTask {
    /// A task that begins with the first write, as a program may end soon after it.
    pub(super) fn new(job: ExpiryJob) -> Self {
        Self { job, next: Instant::now() }
    }

    /// Runs a step if one is due, and returns whether it changed anything. A step that fails, because another process
    /// holds the lock or the disk is full, is left for the next time.
    pub(super) fn run_if_due(&mut self, sql: &Connection) -> bool {
        if Instant::now() < self.next {
            return false;
        }
        let step = if (self.job.is_due)(sql).unwrap_or(false) { self.run(sql).ok() } else { None };
        let more = step.is_some_and(|step| step.more);
        self.next = Instant::now() + if more { PAUSE } else { INTERVAL };
        step.is_some()
    }

    /// Runs one step in its own transaction.
    fn run(&self, sql: &Connection) -> Fallible<ExpiryStep> {
        let execute = |statement| sql.prepare_cached(statement)?.execute([]);
        connection::with_busy_timeout(Duration::ZERO, || execute("BEGIN IMMEDIATE"))?;
        let step = (self.job.step)(sql).and_then(|step| {
            execute("COMMIT")?;
            Ok(step)
        });
        if step.is_err() && !sql.is_autocommit() {
            let _ = execute("ROLLBACK");
        }
        step
    }
}
