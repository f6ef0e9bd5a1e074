//! The versions of the schema: the oldest version that this program opens, and the migrations to the newest.

use larder_kernel::Error;
use rusqlite::{Connection, TransactionBehavior};

use super::failure::Fallible;
use crate::format::Formats;

/// The application id in the header of Larder's files: "Lrdr".
const APPLICATION_ID: i64 = 0x4c72_6472;

/// The oldest version that this program opens. The baseline statements create it in an empty file.
const BASELINE: i64 = 6;
const BASELINE_TABLES: &str = include_str!("../../migrations/sqlite/0006_baseline.sql");
const GENERATIONS: &str = include_str!("../../migrations/sqlite/0007_generations.sql");
const REMOVALS: &str = include_str!("../../migrations/sqlite/0008_removals.sql");
const FENCES: &str = include_str!("../../migrations/sqlite/0009_fences.sql");
const RELATIONSHIP_REVISIONS: &str = include_str!("../../migrations/sqlite/0010_relationship_revisions.sql");
const MESSAGE_UPDATES: &str = include_str!("../../migrations/sqlite/0011_message_updates.sql");

const OPERATION: &str = "sqlite.open";

/// The format that this program writes: the baseline and the migrations after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schema {
    /// Each migration upgrades the schema from the version `BASELINE` plus its index to the next.
    migrations: &'static [&'static str],
}

impl Schema {
    pub(crate) const CURRENT: Self =
        Self { migrations: &[GENERATIONS, REMOVALS, FENCES, RELATIONSHIP_REVISIONS, MESSAGE_UPDATES] };

    /// Returns the versions that this program supports. They are the format numbers of files.
    pub(crate) fn formats(self) -> Formats {
        let steps = i64::try_from(self.migrations.len()).unwrap_or(i64::MAX - BASELINE);
        Formats { subject: "the file", target: "a new file", oldest: BASELINE, newest: BASELINE + steps }
    }

    /// Rejects a file of an unsupported version before any change. Version 0 is an empty file.
    pub(crate) fn check_version(self, connection: &Connection) -> Fallible<i64> {
        let found = version(connection)?;
        if found != 0 {
            self.formats().check(OPERATION, found).map_err(|error| error.with_field("path"))?;
        }
        Ok(found)
    }

    /// Rejects a write to a file that a newer program has upgraded since it was opened. The transaction has
    /// begun, so the version cannot change before its end.
    pub(crate) fn check_write(self, connection: &Connection, operation: &'static str) -> Fallible<()> {
        let found = connection.prepare_cached("PRAGMA user_version")?.query_row([], |row| row.get(0))?;
        let formats = self.formats();
        if found == formats.newest { Ok(()) } else { Err(formats.refuse(operation, found).into()) }
    }

    /// Upgrades the schema to the newest version. Processes that open a new file at the same time wait for
    /// each other, and one of them migrates.
    pub(crate) fn migrate(self, connection: &mut Connection) -> Fallible<()> {
        let newest = self.formats().newest;
        if version(connection)? == newest {
            return Ok(());
        }
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        check_owner(&transaction)?;
        let mut found = self.check_version(&transaction)?;
        if found == 0 {
            transaction.execute_batch(BASELINE_TABLES)?;
            found = BASELINE;
        }
        let done = usize::try_from(found - BASELINE).unwrap_or(0);
        for migration in self.migrations.iter().skip(done) {
            transaction.execute_batch(migration)?;
        }
        transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
        transaction.pragma_update(None, "user_version", newest)?;
        transaction.commit()?;
        Ok(())
    }
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

/// Returns the version of the schema; 0 if the file has none.
pub(crate) fn version(connection: &Connection) -> Fallible<i64> {
    Ok(connection.query_row("PRAGMA user_version", [], |row| row.get(0))?)
}

#[cfg(test)]
mod tests;
