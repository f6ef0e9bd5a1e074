//! Connections that only read and leave nothing behind.

use std::path::{Path, PathBuf};

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use super::failure::Fallible;
use crate::diagnose::disk;
use crate::files::{next_to, real_path};

/// Opens the file for reading.
///
/// On a read-only file system without a write-ahead log, the file is opened as immutable, because SQLite
/// would create files next to it. Elsewhere another process may write, so SQLite takes its usual locks. A
/// connection that is opened for writing removes its files when it closes; it never writes, because of
/// `query_only`, and it keeps a log that another process left.
pub(super) fn open(path: &Path) -> Fallible<Connection> {
    let read_only = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let log_bytes = std::fs::metadata(wal_path(path)).map_or(0, |found| found.len());
    if disk::is_read_only(path) && log_bytes == 0 {
        let flags = read_only | OpenFlags::SQLITE_OPEN_URI;
        return Ok(Connection::open_with_flags(immutable_uri(path), flags)?);
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if !(disk::may_write_file(path) && disk::may_write(folder)) {
        return Ok(Connection::open_with_flags(path, read_only)?);
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.execute_batch("PRAGMA query_only = ON")?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, log_bytes > 0)?;
    Ok(connection)
}

/// Returns the path of the write-ahead log, which SQLite names after the real file.
pub(super) fn wal_path(path: &Path) -> PathBuf {
    next_to(&real_path(path), "-wal")
}

/// Returns the path as a URI of an immutable file.
pub(super) fn immutable_uri(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_encoded_bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'_' | b'-' => {
                uri.push(char::from(*byte));
            }
            // SQLite's form of Windows separators and drives.
            b'\\' if cfg!(windows) => uri.push('/'),
            b':' if cfg!(windows) => uri.push(':'),
            other => uri.push_str(&format!("%{other:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    uri
}
