//! What the tests of the stores share.

use rusqlite::Connection;

use super::failure::Fallible;

/// How SQLite would run a statement.
pub(crate) fn plan(connection: &Connection, sql: &str) -> Fallible<String> {
    let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}"))?;
    // The plan is the same whatever the parameters, which are left unbound.
    let mut rows = statement.raw_query();
    let mut steps = Vec::new();
    while let Some(row) = rows.next()? {
        steps.push(row.get::<_, String>(3)?);
    }
    Ok(steps.join("; "))
}
