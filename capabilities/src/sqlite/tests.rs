//! Helpers that the tests of the stores share.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;

use super::failure::Fallible;

/// A connection that counts the instructions of SQLite's virtual machine.
pub(crate) struct Counting {
    connection: Connection,
    instructions: Arc<AtomicU64>,
}

impl Counting {
    pub(crate) fn open(path: &Path) -> Self {
        let mut connection = Connection::open(path).unwrap();
        let instructions = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&instructions);
        let count = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            false
        };
        connection.progress_handler(1, Some(count)).unwrap();
        Self { connection, instructions }
    }

    /// Returns the instructions of a run of `work` with prepared statements.
    pub(crate) fn of<T>(&self, work: impl Fn(&Connection) -> Fallible<T>) -> u64 {
        work(&self.connection).unwrap();
        let before = self.instructions.load(Ordering::Relaxed);
        work(&self.connection).unwrap();
        self.instructions.load(Ordering::Relaxed) - before
    }
}

/// Returns SQLite's query plan of a statement.
pub(crate) fn plan(connection: &Connection, sql: &str) -> Fallible<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
    // The plan does not depend on the parameters, so they stay unbound.
    let mut rows = statement.raw_query();
    let mut steps = Vec::new();
    while let Some(row) = rows.next()? {
        steps.push(row.get::<_, String>(3)?);
    }
    Ok(steps.join("; "))
}
