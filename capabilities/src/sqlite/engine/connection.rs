//! Opening one connection, with every setting read back.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::{Duration, Instant};

use larder_kernel::{Durability, Error, ErrorKind};
use rusqlite::{Connection, OpenFlags, config::DbConfig};

use super::super::config::SqliteConfig;
use super::super::failure::{Failure, Fallible};
use super::super::schema;

const OPERATION: &str = "sqlite.open";
const STATEMENTS_CACHED: usize = 128;

thread_local! {
    /// How long this thread's connection waits for a lock, and since when it does. SQLite's handler is a plain function,
    /// and each connection stays on one thread.
    static BUSY: Cell<(Duration, Option<Instant>)> = const { Cell::new((Duration::ZERO, None)) };
}

/// Opens the connection that writes, making and migrating the file where needed.
pub(super) fn writer(config: &SqliteConfig) -> Fallible<(Connection, Durability)> {
    check_path(&config.path)?;
    BUSY.set((config.busy_timeout, None));
    retry_busy(config.busy_timeout, || {
        let mut connection = open(config)?;
        // SQLite opens a file that may not be written for reading, and the first write would fail.
        if connection.is_readonly(rusqlite::MAIN_DB)? {
            let error = Error::new(
                ErrorKind::PermissionDenied,
                OPERATION,
                "the file may not be written; check the rights of the file and of its folder",
            );
            return Err(error.with_field("path").into());
        }
        schema::check_owner(&connection)?;
        schema::check_version(&connection)?;
        // The switch to WAL does not always wait for its lock, hence the retry around the whole.
        let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if !mode.eq_ignore_ascii_case("wal") {
            let error =
                Error::new(ErrorKind::Unsupported, OPERATION, "the file system allows no WAL journal");
            return Err(error.with_field("path").into());
        }
        set_synchronous(&connection, config)?;
        schema::migrate(&mut connection)?;
        let durability = durability(&connection)?;
        Ok((connection, durability))
    })
}

/// Opens a connection that reads.
pub(super) fn reader(config: &SqliteConfig) -> Fallible<Connection> {
    BUSY.set((config.busy_timeout, None));
    retry_busy(config.busy_timeout, || {
        let connection = open(config)?;
        connection.execute_batch("PRAGMA query_only = ON")?;
        Ok(connection)
    })
}

fn open(config: &SqliteConfig) -> Fallible<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(&config.path, flags)?;
    connection.busy_handler(Some(wait_for_lock))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    // Else SQLite prepares statements with an order anew for each use: it plans some by what is bound, and the cache clears
    // that, which counts as another value.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // Elsewhere than on Apple's systems a plain flush is a full one.
    connection.execute_batch(
        "PRAGMA foreign_keys = ON; PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 67108864;
         PRAGMA fullfsync = ON; PRAGMA checkpoint_fullfsync = ON;",
    )?;
    Ok(connection)
}

fn set_synchronous(connection: &Connection, config: &SqliteConfig) -> Fallible<()> {
    connection.pragma_update(None, "synchronous", config.synchronous.as_sql())?;
    Ok(())
}

/// What the connection's settings, as they read back, make a commit survive.
fn durability(connection: &Connection) -> Fallible<Durability> {
    let setting = |pragma| connection.query_row(pragma, [], |row| row.get::<_, i64>(0));
    let flushes_fully = setting("PRAGMA fullfsync")? == 1 || !cfg!(target_vendor = "apple");
    Ok(match setting("PRAGMA synchronous")? {
        2.. if flushes_fully => Durability::Power,
        1.. => Durability::Process,
        _ => Durability::None,
    })
}

/// The same with a path that means one file for all connections, whatever becomes of the working directory, and that
/// SQLite takes for a path and for nothing else.
pub(super) fn with_absolute_path(mut config: SqliteConfig) -> Result<SqliteConfig, Error> {
    let invalid = |message| Error::invalid(OPERATION, "path", message);
    if config.path.as_os_str().is_empty() || config.path.as_os_str() == ":memory:" {
        return Err(invalid("names no file; for a store in memory use the memory backend"));
    }
    config.path =
        std::path::absolute(&config.path).map_err(|_| invalid("is relative to a folder that is gone"))?;
    Ok(config)
}

fn check_path(path: &Path) -> Result<(), Error> {
    let invalid = |message| Err(Error::invalid(OPERATION, "path", message));
    if path.is_dir() {
        return invalid("is a folder; name the file in it");
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => invalid("the folder of the file does not exist; make it first"),
        _ => Ok(()),
    }
}

/// Repeats `step` while somebody else holds the lock that it needs, for at most `timeout`.
pub(super) fn retry_busy<T>(timeout: Duration, mut step: impl FnMut() -> Fallible<T>) -> Fallible<T> {
    let since = Instant::now();
    loop {
        match step() {
            Err(failure) if Failure::is_busy(&failure) && since.elapsed() < timeout => short_sleep(),
            result => return result,
        }
    }
}

/// Runs `step` on this thread's connection with a shorter busy timeout.
pub(super) fn with_busy_timeout<T>(timeout: Duration, step: impl FnOnce() -> T) -> T {
    let usual = BUSY.get();
    BUSY.set((timeout.min(usual.0), None));
    let done = step();
    BUSY.set(usual);
    done
}

/// SQLite calls this while a lock is held elsewhere; `false` makes the statement fail as busy.
fn wait_for_lock(attempt: i32) -> bool {
    let (timeout, since) = BUSY.get();
    let since = since.filter(|_| attempt > 0).unwrap_or_else(Instant::now);
    BUSY.set((timeout, Some(since)));
    if since.elapsed() >= timeout {
        return false;
    }
    short_sleep();
    true
}

/// Sleeps between 0.1 and 2 ms, at random, so that processes that wait together do not wake together.
fn short_sleep() {
    let micros = 100 + RandomState::new().hash_one(0_u8) % 1_900;
    std::thread::sleep(Duration::from_micros(micros));
}
