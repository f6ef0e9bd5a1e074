//! The versions of the schema: the oldest version that this program opens, and the migrations to the newest.

use larder_kernel::{Error, ErrorKind};
use rusqlite::{Connection, TransactionBehavior};

use super::failure::Fallible;

/// The application id in the header of Larder's files: "Lrdr".
const APPLICATION_ID: i64 = 0x4c72_6472;

/// The oldest version that this program opens. The baseline statements create it in an empty file.
const BASELINE: i64 = 4;
const BASELINE_TABLES: &str = include_str!("../../migrations/sqlite/0004_baseline.sql");

/// Each migration upgrades the schema from the version `BASELINE` plus its index to the next.
const MIGRATIONS: [&str; 0] = [];

const OPERATION: &str = "sqlite.open";
/// The advice for a file of a version before the baseline.
pub(crate) const TOO_OLD: &str = "the file is too old for this release to upgrade; write it to an archive \
                                  with `larder dump` of the release before, then read the archive with \
                                  `larder load` into a new file";

/// Returns the version that this program reads and writes.
pub(crate) fn newest() -> i64 {
    i64::try_from(MIGRATIONS.len()).map_or(i64::MAX, |steps| BASELINE + steps)
}

/// Returns true if this program cannot upgrade a file of this version. Version 0 is an empty file.
pub(crate) fn is_too_old(version: i64) -> bool {
    version != 0 && version < BASELINE
}

/// Returns true if the file has Larder's application id.
pub(crate) fn is_owned(connection: &Connection) -> Fallible<bool> {
    let application: i64 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    Ok(application == APPLICATION_ID)
}

/// Rejects a file of another program before any change.
pub(crate) fn check_owner(connection: &Connection) -> Fallible<()> {
    // The order matters: a process that creates the tables in between sets the id in the same transaction, so
    // a read that sees the tables is followed by a read that sees the id.
    let objects: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    let application: i64 = connection.query_row("PRAGMA application_id", [], |row| row.get(0))?;
    if application == APPLICATION_ID {
        return Ok(());
    }
    if application == 0 && objects == 0 {
        return Ok(());
    }
    Err(Error::invalid(OPERATION, "path", "the file is a database of another program; name another file")
        .into())
}

/// Rejects a file of an unsupported version before any change.
pub(crate) fn check_version(connection: &Connection) -> Fallible<i64> {
    let found = version(connection)?;
    let message = if is_too_old(found) {
        TOO_OLD
    } else if found > newest() {
        "the file was written by a newer version of this program; open it with that version or a later one"
    } else {
        return Ok(found);
    };
    Err(Error::new(ErrorKind::Unsupported, OPERATION, message)
        .with_field("path")
        .with_context("schema_version", found)
        .with_context("schema_version_min", BASELINE)
        .with_context("schema_version_supported", newest())
        .into())
}

/// Upgrades the schema to the newest version. Processes that open a new file at the same time wait for each
/// other, and one of them migrates.
pub(crate) fn migrate(connection: &mut Connection) -> Fallible<()> {
    if version(connection)? == newest() {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    check_owner(&transaction)?;
    let mut found = check_version(&transaction)?;
    if found == 0 {
        transaction.execute_batch(BASELINE_TABLES)?;
        found = BASELINE;
    }
    let done = usize::try_from(found - BASELINE).unwrap_or(0);
    for migration in MIGRATIONS.iter().skip(done) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", newest())?;
    transaction.commit()?;
    Ok(())
}

/// Returns the version of the schema; 0 if the file has none.
pub(crate) fn version(connection: &Connection) -> Fallible<i64> {
    Ok(connection.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

#[cfg(test)]
mod tests;
