//! Opens a connection and reads every setting back.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::time::{Duration, Instant};

use larder_kernel::{Durability, Error, ErrorKind};
use rusqlite::{Connection, OpenFlags, config::DbConfig};

use super::super::config::SqliteConfig;
use super::super::failure::{Failure, Fallible};
use super::super::read_only;
use super::super::schema::{self, Schema};
use crate::files::{is_volatile, real_path};

const OPERATION: &str = "sqlite.open";
const STATEMENTS_CACHED: usize = 128;

thread_local! {
    /// The busy timeout of this thread's connection, and the start of the current wait. SQLite's handler is a
    /// plain function, and each connection stays on one thread.
    static BUSY: Cell<(Duration, Option<Instant>)> = const { Cell::new((Duration::ZERO, None)) };
}

/// Opens the writer connection; creates and migrates the file if needed.
pub(super) fn writer(config: &SqliteConfig, schema: Schema) -> Fallible<(Connection, Durability)> {
    check_path(&config.path, config.mode.is_read_only())?;
    if !config.mode.is_read_only() {
        create_file(config);
    }
    BUSY.set((config.busy_timeout, None));
    if config.mode.is_read_only() {
        return retry_busy(config.busy_timeout, || read_only_writer(config, schema));
    }
    retry_busy(config.busy_timeout, || {
        let mut connection = open(config)?;
        // SQLite opens a write-protected file for reading, and the first write would fail.
        if connection.is_readonly(rusqlite::MAIN_DB)? {
            let error = Error::new(
                ErrorKind::PermissionDenied,
                OPERATION,
                "the file cannot be written; check the permissions of the file and of its folder",
            );
            return Err(error.with_field("path").into());
        }
        schema::check_owner(&connection)?;
        schema.check_version(&connection)?;
        // The switch to WAL does not always wait for its lock, so the caller retries the whole step.
        let mode: String = connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        if !mode.eq_ignore_ascii_case("wal") {
            let error = Error::new(
                ErrorKind::Unsupported,
                OPERATION,
                "the file system does not support a \
                                                               write-ahead log; use a local disk",
            );
            return Err(error.with_field("path").into());
        }
        set_synchronous(&connection, config)?;
        schema.migrate(&mut connection)?;
        let durability = durability(&connection, &config.path)?;
        Ok((connection, durability))
    })
}

/// Opens the connection of a writer that refuses every write. The file must have the newest schema.
fn read_only_writer(config: &SqliteConfig, schema: Schema) -> Fallible<(Connection, Durability)> {
    let connection = open(config)?;
    schema::check_owner(&connection)?;
    let found = schema.check_version(&connection)?;
    if found != schema.formats().newest {
        let message = "the file has no schema or an older one, which `mode=ro` does not change; open it once \
                       without `mode=ro`";
        let error = Error::new(ErrorKind::Unsupported, OPERATION, message).with_field("path");
        return Err(error.with_context("format", found).into());
    }
    let durability = durability(&connection, &config.path)?;
    Ok((connection, durability))
}

/// Opens a reader connection.
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
    let mut connection = if config.mode.is_read_only() {
        read_only::open(&config.path)?
    } else {
        Connection::open_with_flags(&config.path, flags)?
    };
    connection.busy_handler(Some(wait_for_lock))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_CACHED);
    // Without this option SQLite may re-prepare a statement on each use: its plan may depend on bound values,
    // and clearing the bindings counts as a change of them.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    // On systems other than Apple's a plain flush is a full one.
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

/// Creates the file with the configured permissions if it is missing. SQLite gives the files next to it the
/// permissions of the file. If the file cannot be created, SQLite cannot create it either and says why.
#[cfg(unix)]
fn create_file(config: &SqliteConfig) {
    use std::os::unix::fs::PermissionsExt as _;
    let (path, mode) = (real_path(&config.path), config.permissions.mode());
    if create(&path, mode).is_ok() {
        // The umask may have removed permissions.
        let _ = std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode));
    }
}

#[cfg(not(unix))]
fn create_file(_config: &SqliteConfig) {}

/// Creates an empty file. Fails if the path exists.
#[cfg(unix)]
fn create(path: &Path, mode: u32) -> std::io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // Without a descriptor: closing one would release the locks of this process on the file, if another
    // thread opened it in the meantime.
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        let made = mknodat(CWD, path, FileType::RegularFile, Mode::from_raw_mode(mode), 0);
        if made.is_ok() || made == Err(rustix::io::Errno::EXIST) {
            return Ok(made?);
        }
    }
    std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map(drop)
}

/// Returns which failures a commit survives, by the connection's settings as read back, and by the file
/// systems of the file and of its write-ahead log.
fn durability(connection: &Connection, path: &Path) -> Fallible<Durability> {
    let setting = |pragma| connection.query_row(pragma, [], |row| row.get::<_, i64>(0));
    let flushes_fully = setting("PRAGMA fullfsync")? == 1 || !cfg!(target_vendor = "apple");
    let file = real_path(path);
    let is_volatile = is_volatile(&file) || file.parent().is_some_and(is_volatile);
    Ok(match setting("PRAGMA synchronous")? {
        2.. if flushes_fully && !is_volatile => Durability::Power,
        1.. => Durability::Process,
        _ => Durability::None,
    })
}

/// Makes the path absolute, so that all connections open one file even if the working directory changes, and
/// so that SQLite cannot interpret the text as anything but a path.
pub(super) fn with_absolute_path(mut config: SqliteConfig) -> Result<SqliteConfig, Error> {
    let invalid = |message| Error::invalid(OPERATION, "path", message);
    if config.path.as_os_str().is_empty() || config.path.as_os_str() == ":memory:" {
        return Err(invalid("names no file; for a store in memory use the memory backend"));
    }
    config.path = std::path::absolute(&config.path)
        .map_err(|_| invalid("is relative to a folder that no longer exists; use an absolute path"))?;
    Ok(config)
}

fn check_path(path: &Path, read_only: bool) -> Result<(), Error> {
    let invalid = |message| Err(Error::invalid(OPERATION, "path", message));
    if path.is_dir() {
        return invalid("is a folder; name the file in it");
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    if read_only && !path.exists() {
        let message = "the file does not exist, and `mode=ro` does not create it; check the path";
        return Err(Error::new(ErrorKind::NotFound, OPERATION, message).with_field("path"));
    }
    match folder {
        Some(folder) if !folder.is_dir() => invalid("the folder of the file does not exist; create it first"),
        _ => Ok(()),
    }
}

/// Repeats `step` for at most `timeout` while another connection holds the lock that it needs.
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

/// The busy handler: SQLite calls it while another connection holds the lock. `false` makes the statement
/// fail as busy.
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

/// Sleeps for a random time between 0.1 and 2 ms, so that processes that wait together do not wake together.
fn short_sleep() {
    let micros = 100 + RandomState::new().hash_one(0_u8) % 1_900;
    std::thread::sleep(Duration::from_micros(micros));
}
