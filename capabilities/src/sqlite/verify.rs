//! Verification of a database file: every row is read, in one snapshot, on a connection that only reads.

mod repair;
mod rows;
mod schema_objects;
mod sums;

use larder_kernel::{Error, ErrorKind, Outcome, Result};
use rusqlite::Connection;

use super::config::SqliteConfig;
use super::failure::{Failure, Fallible};
use super::read_only;
use super::schema::{self, Schema};
use crate::verify::{Fault, FaultKind, Faults, OPERATION};

pub(super) use repair::repair;

/// Verifies the file.
///
/// # Errors
/// The errors of opening it. A file that is no database, or has damaged pages, is a fault.
pub(super) async fn verify(config: &SqliteConfig, faults: &Faults) -> Result<()> {
    let (config, found) = (config.clone(), faults.clone());
    let done = tokio::task::spawn_blocking(move || look(&config, &found)).await;
    done.unwrap_or_else(|_| {
        let message = "the verification did not complete; run it again";
        Err(Error::new(ErrorKind::Unexpected, OPERATION, message).with_outcome(Outcome::NotApplied))
    })
}

fn look(config: &SqliteConfig, faults: &Faults) -> Result<()> {
    let path = config.path.display().to_string();
    if !config.path.is_file() {
        let message = "the database file does not exist; check the path";
        return Err(Error::new(ErrorKind::NotFound, OPERATION, message).with_field("path"));
    }
    let opened = || -> Fallible<Connection> {
        let connection = read_only::open(&config.path)?;
        connection.busy_timeout(config.busy_timeout)?;
        connection.execute_batch("BEGIN")?;
        schema::check_owner(&connection)?;
        Schema::CURRENT.check_version(&connection)?;
        Ok(connection)
    };
    let connection = match opened() {
        Ok(connection) => connection,
        Err(failure) if is_damage(&failure) => {
            let seen = failure.into_error(OPERATION).message().to_owned();
            faults.add(Fault::new(FaultKind::Format, path, seen));
            return Ok(());
        }
        Err(failure) => return Err(failure.into_error(OPERATION)),
    };
    all(&connection, &path, faults).map_err(|failure| failure.into_error(OPERATION))
}

/// Runs every check on one snapshot.
fn all(connection: &Connection, path: &str, faults: &Faults) -> Fallible<()> {
    schema_objects::check(connection, faults)?;
    integrity(connection, path, faults)?;
    sums::check(connection, faults)?;
    rows::check(connection, faults)
}

/// Returns true if the file itself is damaged, so that the failure is a finding.
fn is_damage(failure: &Failure) -> bool {
    match failure {
        Failure::Contract(error) => error.kind() == ErrorKind::Corrupt,
        Failure::Sqlite(error) => {
            matches!(
                error.sqlite_error_code(),
                Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase)
            )
        }
        Failure::BudgetExceeded => false,
    }
}

/// Checks the pages, the order of the trees, and each index against its table.
fn integrity(connection: &Connection, path: &str, faults: &Faults) -> Fallible<()> {
    let mut statement = connection.prepare("PRAGMA integrity_check(1000)")?;
    let mut rows = statement.query([])?;
    loop {
        let line: String = match rows.next() {
            Ok(Some(row)) => row.get(0)?,
            Ok(None) => return Ok(()),
            Err(error) => {
                faults.add(Fault::new(FaultKind::Record, path, format!("integrity_check failed: {error}")));
                return Ok(());
            }
        };
        for line in line.lines().filter(|line| *line != "ok" && !line.starts_with("***")) {
            let index = line.contains("index");
            let kind = if index { FaultKind::Index } else { FaultKind::Record };
            faults.add(Fault::new(kind, path, line).with_repair(index.then_some("rebuild the index")));
        }
    }
}

/// Adds a fault if a query or a row cannot be read because the file is damaged.
fn noted(done: Fallible<()>, place: &str, faults: &Faults) -> Fallible<()> {
    match done {
        Err(failure) if is_damage(&failure) || is_missing(&failure) => {
            let seen = failure.into_error(OPERATION).message().to_owned();
            faults.add(Fault::new(FaultKind::Record, place, format!("the rest cannot be read: {seen}")));
            Ok(())
        }
        done => done,
    }
}

/// Returns true if a statement names a table or a column that the file lacks, which the check of the schema
/// has reported.
fn is_missing(failure: &Failure) -> bool {
    matches!(failure, Failure::Sqlite(error)
        if error.sqlite_error_code() == Some(rusqlite::ErrorCode::Unknown))
}

#[cfg(test)]
mod tests;
