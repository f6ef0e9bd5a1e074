//! The format number of a folder.
//!
//! The file `.larder/format` holds the number. Opening creates it in one step, or checks it. A running
//! program does not check it again. So a later format stores its blobs under other names than the folders of
//! `layout.rs`, which only an older program reads and writes. The format with versions uses the same names,
//! because only a new folder gets it.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use larder_kernel::{Error, ErrorKind};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::format::Formats;

/// The newest format that this program reads and writes.
pub(crate) const FORMAT: i64 = VERSIONED;
/// The format of folders without versions.
const PLAIN: i64 = 1;
/// The format of folders that keep earlier versions of blobs. A program without versions would lose them, so
/// it must not open such a folder.
const VERSIONED: i64 = 2;
const NAME: &str = "format";
const NUMBER_BYTES_MAX: u64 = 20;
const OPERATION: &str = "blobs.open";

/// Returns the formats that a program of the format `newest` supports.
pub(crate) fn formats(newest: i64) -> Formats {
    Formats { subject: "the folder", target: "a new folder", oldest: PLAIN, newest }
}

/// Returns `true` if folders of this format keep earlier versions.
pub(super) fn has_versions(number: i64) -> bool {
    number >= VERSIONED
}

/// Returns the format of a new folder. A later release creates folders of its format.
pub(super) fn of_new(newest: i64, versions: bool) -> i64 {
    match newest {
        VERSIONED if !versions => PLAIN,
        newest => newest,
    }
}

/// Returns the error for a folder that was created without versions.
pub(super) fn without_versions() -> Error {
    let message = "the folder was created without versions of blobs; copy its blobs to a new folder with \
                   `blob_versions=true`, or open it without";
    Error::invalid(OPERATION, "blob_versions", message)
}

/// Checks the number of a folder before any change, and returns it. A folder without a number is new, or
/// older than the first number, which changed nothing else. `own` is the folder `.larder`.
pub(super) fn check(own: BorrowedFd<'_>, newest: i64) -> io::Result<Result<Option<i64>, Error>> {
    Ok(read(own)?.transpose().and_then(|found| {
        found.map_or(Ok(()), |found| formats(newest).check(OPERATION, found))?;
        Ok(found)
    }))
}

/// Creates the number of a folder, unless another process was faster, and returns the folder's number. The
/// number is complete when its name appears.
pub(super) fn create(
    (mut file, name): (File, String),
    temporary: BorrowedFd<'_>,
    own: BorrowedFd<'_>,
    newest: i64,
    number: i64,
) -> io::Result<Result<i64, Error>> {
    writeln!(file, "{number}")?;
    file.sync_all()?;
    let created = rustix::fs::linkat(temporary, name.as_str(), own, NAME, AtFlags::empty());
    let without_links = matches!(created, Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK));
    let created = match created {
        Err(_) if without_links && !has_versions(number) => {
            rustix::fs::renameat(temporary, name.as_str(), own, NAME)
        }
        created => created,
    };
    let _ = rustix::fs::unlinkat(temporary, name.as_str(), AtFlags::empty());
    if without_links && has_versions(number) {
        let message = "needs a file system with hard links; use another one, or no versions";
        return Ok(Err(Error::invalid(OPERATION, "blob_versions", message)));
    }
    match created {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(read(own)?.unwrap_or(Ok(0)).and_then(|found| formats(newest).check(OPERATION, found).map(|()| found)))
}

/// Reads the number; `None` if the folder has none.
fn read(own: BorrowedFd<'_>) -> io::Result<Option<Result<i64, Error>>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::openat(own, NAME, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut text = String::new();
    let read = file.take(NUMBER_BYTES_MAX).read_to_string(&mut text);
    let number = match read {
        Err(error) if error.kind() != io::ErrorKind::InvalidData => return Err(error),
        _ => text.strip_suffix('\n').and_then(|text| text.parse().ok()).filter(|number| *number > 0),
    };
    let damaged = "the file `.larder/format` holds no format number; restore it from a backup";
    Ok(Some(number.ok_or_else(|| Error::new(ErrorKind::Corrupt, OPERATION, damaged))))
}

/// Reads the number of the folder at `root` without creating anything; `None` if it has none.
pub(super) fn number(root: &Path) -> io::Result<Option<Result<i64, Error>>> {
    match rustix::fs::open(
        root.join(".larder"),
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        Ok(own) => read(own.as_fd()),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}
