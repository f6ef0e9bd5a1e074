//! The versions of the schema, and the way from each to the newest.

use larder_kernel::{Error, ErrorKind};
use rusqlite::{Connection, TransactionBehavior};

use super::failure::Fallible;

/// Marks a file as Larder's in its header: "Lrdr".
const APPLICATION_ID: i64 = 0x4c72_6472;

/// Each step takes the schema from the version of its place in this list to the next.
const MIGRATIONS: [&str; 4] = [
    include_str!("../../migrations/sqlite/0001_contracts.sql"),
    include_str!("../../migrations/sqlite/0002_authors.sql"),
    include_str!("../../migrations/sqlite/0003_leases.sql"),
    include_str!("../../migrations/sqlite/0004_sweep.sql"),
];

const OPERATION: &str = "sqlite.open";

/// The version that this program reads and writes.
pub(crate) fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX)
}

/// Whether the file bears Larder's mark.
pub(crate) fn is_owned(connection: &Connection) -> Fallible<bool> {
    let application: i64 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    Ok(application == APPLICATION_ID)
}

/// Refuses a file that is not Larder's, before anything in it is changed.
pub(crate) fn check_owner(connection: &Connection) -> Fallible<()> {
    // In this order: whoever makes the tables in between sets the mark with them, so tables seen are tables marked.
    let objects: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let application: i64 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if application == APPLICATION_ID {
        return Ok(());
    }
    if application == 0 && objects == 0 {
        return Ok(());
    }
    Err(Error::invalid(OPERATION, "path", "the file is the database of another program; name another file")
        .into())
}

/// Brings the schema to the newest version. Processes that open one new file at once wait for each other, and one of
/// them migrates.
pub(crate) fn migrate(connection: &mut Connection) -> Fallible<()> {
    if version(connection)? == newest() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    check_owner(&transaction)?;
    let found = version(&transaction)?;
    let done = usize::try_from(found).ok().filter(|done| *done <= MIGRATIONS.len()).ok_or_else(|| {
        Error::new(
            ErrorKind::Unsupported,
            OPERATION,
            "the file was written by a newer version of this program; open it with that version or a later one",
        )
        .with_field("path")
        .with_context("schema_version", found)
        .with_context("schema_version_supported", newest())
    })?;
    for migration in MIGRATIONS.iter().skip(done) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", newest())?;
    transaction.commit()?;
    Ok(())
}

/// The version that the file has; 0 where there is none.
pub(crate) fn version(connection: &Connection) -> Fallible<i64> {
    Ok(connection.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}
