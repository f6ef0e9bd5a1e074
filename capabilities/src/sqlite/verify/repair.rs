//! The repair: counters, last numbers and indexes, which follow from other rows. It removes no row.

use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_kernel::{Error, ErrorKind, Outcome, Result};
use rusqlite::{Connection, OpenFlags};

use super::super::config::SqliteConfig;
use super::super::failure::{Failure, Fallible};
use super::super::schema::{self, Schema};
use super::super::value::now_ms;
use super::{schema_objects, sums};
use crate::verify::{OPERATION, Repaired};

/// Copies the database, then repairs it in one transaction.
///
/// # Errors
/// `Conflict` if another process, or another handle of this one, has the file open. The errors of the file.
pub(in super::super) async fn repair(config: &SqliteConfig) -> Result<Repaired> {
    let path = config.path.clone();
    let done = tokio::task::spawn_blocking(move || run(&path)).await;
    done.unwrap_or_else(|_| {
        Err(Error::new(ErrorKind::Unexpected, OPERATION, "the repair did not complete; run it again"))
    })
}

fn run(path: &Path) -> Result<Repaired> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let opened = || -> Fallible<Connection> {
        let connection = Connection::open_with_flags(path, flags)?;
        // In this mode, the first transaction takes the locks and the connection keeps them.
        connection.busy_timeout(Duration::ZERO)?;
        connection.execute_batch("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE; COMMIT")?;
        schema::check_owner(&connection)?;
        Schema::CURRENT.check_version(&connection)?;
        Ok(connection)
    };
    let mut connection = opened().map_err(refused)?;
    let copy = copy_path(path);
    let done = connection
        .backup(rusqlite::MAIN_DB, &copy, None::<fn(rusqlite::backup::Progress)>)
        .map_err(Failure::from);
    let done = done.and_then(|()| make_durable(&copy)).and_then(|()| apply(&mut connection));
    done.map_err(|failure| failure.into_error(OPERATION))?;
    Ok(Repaired::new(copy))
}

fn refused(failure: Failure) -> Error {
    if failure.is_busy() {
        let message = "another process has the database open; end it, then repair; nothing was changed";
        return Error::new(ErrorKind::Conflict, OPERATION, message).with_outcome(Outcome::NotApplied);
    }
    failure.into_error(OPERATION)
}

fn copy_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".before-repair-{}", now_ms()));
    PathBuf::from(name)
}

fn make_durable(copy: &Path) -> Fallible<()> {
    let flushed = std::fs::File::open(copy).and_then(|file| file.sync_all());
    flushed.map_err(|_| {
        let message = "the copy of the database cannot be flushed; nothing was repaired";
        Error::new(ErrorKind::Unavailable, OPERATION, message).with_outcome(Outcome::NotApplied).into()
    })
}

fn apply(connection: &mut Connection) -> Fallible<()> {
    let transaction = connection.transaction()?;
    for statement in schema_objects::missing_indexes(&transaction)? {
        transaction.execute_batch(&statement)?;
    }
    // The counts below may read an index.
    transaction.execute_batch("REINDEX")?;
    for (_, statement) in sums::CHECKS.iter().filter_map(|check| check.repair) {
        transaction.execute_batch(statement)?;
    }
    transaction.commit()?;
    Ok(())
}
