//! The format number of a folder.
//!
//! The file `.larder/format` holds the number. Opening creates it in one step, or checks it. A running
//! program does not check it again. So a later format stores its blobs under other names than the folders of
//! `layout.rs`, which only an older program reads and writes.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use larder_kernel::{Error, ErrorKind};
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::format::Formats;

/// The format that this program reads and writes.
pub(crate) const FORMAT: i64 = 1;
const NAME: &str = "format";
const NUMBER_BYTES_MAX: u64 = 20;
const OPERATION: &str = "blobs.open";

/// Returns the formats that a program of the format `newest` supports.
pub(crate) fn formats(newest: i64) -> Formats {
    Formats { subject: "the folder", target: "a new folder", oldest: newest, newest }
}

/// Checks the number of a folder before any change. Returns false if it has none: it is new, or older than
/// the first number, which changed nothing else. `own` is the folder `.larder`.
pub(super) fn check(own: BorrowedFd<'_>, format: i64) -> io::Result<Result<bool, Error>> {
    let found = read(own)?;
    Ok(found.map_or(Ok(false), |found| formats(format).check(OPERATION, found?).map(|()| true)))
}

/// Creates the number of a folder, unless another process was faster, and checks it. The number is
/// complete when its name appears.
pub(super) fn create(
    (mut file, name): (File, String),
    temporary: BorrowedFd<'_>,
    own: BorrowedFd<'_>,
    format: i64,
) -> io::Result<Result<(), Error>> {
    writeln!(file, "{format}")?;
    file.sync_all()?;
    let created = rustix::fs::linkat(temporary, name.as_str(), own, NAME, AtFlags::empty());
    let created = match created {
        // A file system without hard links.
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS | Errno::MLINK) => {
            rustix::fs::renameat(temporary, name.as_str(), own, NAME)
        }
        created => created,
    };
    let _ = rustix::fs::unlinkat(temporary, name.as_str(), AtFlags::empty());
    match created {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(read(own)?.unwrap_or(Ok(0)).and_then(|found| formats(format).check(OPERATION, found)))
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
