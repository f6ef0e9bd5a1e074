//! The diagnosis of a database file. It neither creates nor changes the file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};

use super::config::{SqliteConfig, Synchronous};
use super::failure::{Failure, Fallible};
use super::read_only::{immutable_uri, wal_path};
use super::schema::{self, Schema};
use crate::diagnose::{Check, Findings, disk, millis, round_trip};
use crate::files::{is_volatile, real_path};

const OPERATION: &str = "sqlite.diagnose";
const THERE: &str = "this file contains all data except blobs";
const OWNER: &str = "a file of another program is refused and not changed";
const SCHEMA: &str =
    "opening upgrades a recent schema, and refuses one that is too old or newer than this program";
const JOURNAL: &str = "readers and the writer run concurrently, also in several processes";
const DURABLE: &str = "determines what an acknowledged write survives";
const WAL: &str = "a long write-ahead log slows down reads, and backups need it";
const WHOLE: &str = "a damaged file returns wrong data or errors";
const WRITABLE: &str = "the stores write to the file, and SQLite creates files next to it";
/// A WAL above this size was not truncated.
const WAL_BYTES_WARN: u64 = 256 * 1024 * 1024;
const READS: u32 = 9;
const READ_SLOW: Duration = Duration::from_millis(20);
/// The time limit of the integrity check. The other checks take far less.
const CHECK_TIME_MAX: Duration = Duration::from_secs(20);

/// Diagnoses the file.
pub(crate) async fn diagnose(config: &SqliteConfig, findings: &Findings) {
    let (config, looking) = (config.clone(), findings.clone());
    // A step that hangs in the system blocks only its thread; the caller still gets its result in time.
    if tokio::task::spawn_blocking(move || look(&config, &looking)).await.is_err() {
        findings.add(Check::fail("reach", "the check of the file did not complete", THERE, "run it again"));
    }
}

/// Returns the changes that opening would make, as [`opening_changes`](crate::diagnose::opening_changes)
/// describes.
pub(crate) fn opening_changes(config: &SqliteConfig) -> Option<&'static str> {
    match std::fs::metadata(&config.path) {
        Err(_) if config.mode.is_read_only() => return None,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Some("the file does not exist, and opening would create it");
        }
        // Opening reports a file that cannot be read.
        Err(_) => return None,
        Ok(_) => {}
    }
    let version =
        reading(&config.path, |connection| Ok((schema::is_owned(connection)?, schema::version(connection)?)));
    let formats = Schema::CURRENT.formats();
    match version {
        Ok((false, _)) => Some("the file is empty, and opening would create the schema"),
        // Opening rejects a file that is too old, so it changes nothing.
        Ok((true, found)) if (formats.oldest..formats.newest).contains(&found) => {
            Some("the schema is of an older version, and opening would upgrade it")
        }
        _ => None,
    }
}

fn look(config: &SqliteConfig, findings: &Findings) {
    // Without symbolic links: the folder of the real file also holds the files next to it.
    let path = &real_path(&config.path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error) => {
            absent(&error, folder, findings);
            return;
        }
    };
    if !found.is_file() {
        let advice = "name a file";
        findings.add(Check::fail("reach", "the path is not a file", THERE, advice));
        return;
    }
    findings.add(Check::ok("reach", format!("a file of {} KiB", found.len() / 1024), THERE));
    if config.mode.is_read_only() {
        let seen = "not needed: `mode=ro` only reads";
        findings.add(Check::ok("writable", seen, WRITABLE));
    } else {
        writable(path, folder, findings);
    }
    if let Ok(check) = disk::rights(path) {
        findings.add(check);
    }
    disk::file_system(folder, findings);
    findings.add(disk::identities(path));
    findings.add(if is_volatile(path) || is_volatile(folder) {
        disk::volatile(DURABLE)
    } else {
        durability(config)
    });
    findings.add(journal(path, found.len()));
    findings.add(wal(path));
    match reading(path, inside) {
        Ok(checks) => checks.into_iter().for_each(|check| findings.add(check)),
        Err(failure) => {
            let error = failure.into_error(OPERATION);
            let seen = format!("the file cannot be read: {}", error.kind());
            findings.add(Check::fail("schema", seen, SCHEMA, error.message().to_owned()));
        }
    }
}

fn absent(error: &std::io::Error, folder: &Path, findings: &Findings) {
    if error.kind() != std::io::ErrorKind::NotFound {
        let seen = format!("the file's metadata cannot be read: {}", error.kind());
        let advice = "check the permissions of the parent folders, and that the disk is mounted";
        findings.add(Check::fail("reach", seen, THERE, advice));
    } else if !folder.is_dir() {
        let advice = "create the folder, or check the path";
        findings.add(Check::fail("reach", "the folder of the file does not exist", THERE, advice));
    } else if disk::may_write(folder) {
        let advice = "nothing if it is new, because opening creates the file; otherwise check the path";
        findings.add(Check::warn("reach", "the file does not exist yet", THERE, advice));
        disk::file_system(folder, findings);
    } else {
        let advice = "grant this user write permission for the folder";
        findings.add(Check::fail(
            "reach",
            "the file does not exist, and this user cannot create it",
            THERE,
            advice,
        ));
    }
}

fn writable(path: &Path, folder: &Path, findings: &Findings) {
    let check = if !disk::may_write_file(path) {
        let advice = "grant this user write permission for the file, or mount the file system for writing";
        Check::fail("writable", "the file cannot be written", WRITABLE, advice)
    } else if !disk::may_write(folder) {
        let advice = "grant this user write permission for the folder";
        Check::fail("writable", "the folder cannot be written", WRITABLE, advice)
    } else {
        findings.add(disk::flushing(folder));
        Check::ok("writable", "this user can write the file and its folder", WRITABLE)
    };
    findings.add(check);
}

fn durability(config: &SqliteConfig) -> Check {
    match config.synchronous {
        Synchronous::Full => Check::ok("durability", "synchronous=full: power loss", DURABLE),
        Synchronous::Normal => {
            let advice = "remove `synchronous=normal` from the URL if the last writes must survive a power \
                          loss";
            Check::warn("durability", "synchronous=normal: kill -9, not always power loss", DURABLE, advice)
        }
    }
}

/// Returns the check of the journal mode. SQLite reports the mode if another connection has the file open;
/// otherwise the file's header does.
///
/// Only SQLite may open a file that this process has open. Closing any other descriptor of the file releases
/// all locks of the process on it.
fn journal(path: &Path, bytes: u64) -> Check {
    if bytes == 0 {
        return Check::ok("journal", "an empty file; opening sets it to WAL", JOURNAL);
    }
    let is_wal = if wal_path(path).exists() {
        let mode = |connection: &Connection| {
            Ok(connection.query_row("PRAGMA journal_mode", [], |row| row.get::<_, String>(0))?)
        };
        reading(path, mode).ok().map(|mode| mode.eq_ignore_ascii_case("wal"))
    } else {
        let mut header = [0; 20];
        let read = File::open(path).and_then(|mut file| file.read_exact(&mut header));
        let is_database = read.is_ok() && header.starts_with(b"SQLite format 3\0");
        // The two version fields of the file format.
        is_database.then_some(header.ends_with(&[2, 2]))
    };
    match is_wal {
        Some(true) => Check::ok("journal", "WAL", JOURNAL),
        Some(false) => {
            Check::warn("journal", "a rollback journal", JOURNAL, "nothing, because opening sets it to WAL")
        }
        None => {
            let advice = "name another file, or restore this one from a backup";
            Check::fail("journal", "the file is not an SQLite database", JOURNAL, advice)
        }
    }
}

fn wal(path: &Path) -> Check {
    let bytes = std::fs::metadata(wal_path(path)).map_or(0, |found| found.len());
    let seen = format!("{} KiB", bytes / 1024);
    if bytes > WAL_BYTES_WARN {
        let advice =
            "look for a program that keeps a read transaction open, or run `PRAGMA wal_checkpoint(TRUNCATE)`";
        Check::warn("write_ahead_log", seen, WAL, advice)
    } else {
        Check::ok("write_ahead_log", seen, WAL)
    }
}

/// Runs `look` on a connection that leaves no trace.
///
/// While no connection has the file open, no WAL exists, and SQLite would create one only to read. With the
/// option `immutable` it creates none. If another process opens the file during the read, the result may be
/// wrong, so the file is read again.
fn reading<T>(path: &Path, look: impl Fn(&Connection) -> Fallible<T>) -> Fallible<T> {
    if !wal_path(path).exists() {
        let found = Connection::open_with_flags(
            immutable_uri(path),
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )
        .map_err(Failure::from)
        .and_then(|connection| look(&connection));
        if !wal_path(path).exists() {
            return found;
        }
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(Duration::from_secs(2))?;
    look(&connection)
}

/// Returns the checks that need a query of the database.
fn inside(connection: &Connection) -> Fallible<Vec<Check>> {
    let owned = schema::is_owned(connection)?;
    if let Err(failure) = schema::check_owner(connection) {
        let error = failure.into_error(OPERATION);
        let advice = error.message().to_owned();
        return Ok(vec![Check::fail("owner", "the database of another program", OWNER, advice)]);
    }
    let mut checks = vec![
        Check::ok("owner", if owned { "larder's" } else { "nobody's yet" }, OWNER),
        version(schema::version(connection)?),
    ];
    let read = || {
        let begun = Instant::now();
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))?;
        Ok(begun.elapsed())
    };
    let reads: Vec<Duration> = (0..READS).map(|_| read()).collect::<Fallible<_>>()?;
    checks.extend(round_trip(reads, READ_SLOW));
    checks.push(whole(connection)?);
    Ok(checks)
}

fn version(found: i64) -> Check {
    let formats = Schema::CURRENT.formats();
    let seen = format!("version {found} of {newest}, format number {found}", newest = formats.newest);
    match formats.check(OPERATION, found) {
        _ if found == 0 => Check::warn("schema", "none yet", SCHEMA, "nothing, because opening creates it"),
        Err(_) if found < formats.oldest => {
            Check::fail("schema", format!("{seen}: too old"), SCHEMA, formats.message(found))
        }
        Err(_) => {
            let seen = format!("{seen}: newer than this program supports");
            Check::fail("schema", seen, SCHEMA, formats.message(found))
        }
        Ok(()) if found < formats.newest => {
            let advice =
                "back the file up, then open it once with this version; older programs refuse it afterwards";
            Check::warn("schema", format!("{seen}: older"), SCHEMA, advice)
        }
        Ok(()) => Check::ok("schema", seen, SCHEMA),
    }
}

/// Runs the integrity check, up to its time limit.
fn whole(connection: &Connection) -> Fallible<Check> {
    let (interrupt, (done, waiting)) = (connection.get_interrupt_handle(), mpsc::channel::<()>());
    let answer = std::thread::scope(|scope| {
        scope.spawn(move || {
            if waiting.recv_timeout(CHECK_TIME_MAX) == Err(mpsc::RecvTimeoutError::Timeout) {
                interrupt.interrupt();
            }
        });
        let answer = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        drop(done);
        answer
    });
    let damaged = "restore it from a backup; `larder dump` may still read the undamaged parts";
    Ok(match answer {
        Ok(answer) if answer == "ok" => Check::ok("integrity", "quick_check found no damage", WHOLE),
        Ok(_) => Check::fail("integrity", "quick_check found damage", WHOLE, damaged),
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted) => {
            let seen = format!("no damage in the part that was read within {} ms", millis(CHECK_TIME_MAX));
            Check::ok("integrity", seen, WHOLE)
        }
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseCorrupt) => {
            Check::fail("integrity", "the file is damaged", WHOLE, damaged)
        }
        Err(error) => return Err(error.into()),
    })
}
