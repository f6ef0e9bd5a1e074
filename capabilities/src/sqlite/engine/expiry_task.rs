//! The schedule of the writer's removal of expired data. The writer does it after the replies, so that no
//! caller waits for it, and in steps so short that the next callers hardly wait either.

use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::super::failure::Fallible;
use super::super::schema::Schema;
use super::connection;

/// The pause after all expired data is removed.
const INTERVAL: Duration = Duration::from_secs(60);
/// The pause between two steps: each costs an fsync.
const PAUSE: Duration = Duration::from_millis(100);

/// The result of one step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExpiryStep {
    /// The number of removed threads and keys.
    pub(crate) removed: u64,
    /// True if more may be left to remove now.
    pub(crate) more: bool,
}

/// The functions that remove expired data. The engine receives them when it opens, because the stores depend
/// on the engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExpiryJob {
    /// Returns true if expired data may exist. Costs two index lookups and no transaction.
    pub(crate) is_due: fn(&Connection) -> Fallible<bool>,
    /// Removes some expired data inside a write transaction.
    pub(crate) step: fn(&Connection) -> Fallible<ExpiryStep>,
}

/// Runs the job periodically.
pub(super) struct ExpiryTask {
    job: ExpiryJob,
    schema: Schema,
    next: Instant,
}

impl ExpiryTask {
    /// Creates a task that is due after the first write, because the program may end soon after it.
    pub(super) fn new(job: ExpiryJob, schema: Schema) -> Self {
        Self { job, schema, next: Instant::now() }
    }

    /// Runs a step if one is due, and returns true if it changed anything. A step that fails, because another
    /// process holds the lock or the disk is full, is retried at the next due time.
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
        let checked = self.schema.check_write(sql, "sqlite.expire");
        let step = checked.and_then(|()| (self.job.step)(sql)).and_then(|step| {
            execute("COMMIT")?;
            Ok(step)
        });
        if step.is_err() && !sql.is_autocommit() {
            let _ = execute("ROLLBACK");
        }
        step
    }
}
