//! Detects that the database file was moved, replaced or removed.
//!
//! SQLite continues to write to such a file while it is open. A program that opens the path later would not
//! find those commits.

use std::path::{Path, PathBuf};

use larder_kernel::{Error, ErrorKind, Outcome};

/// The identity of the file that was opened at a path.
pub(super) struct FileGuard {
    path: PathBuf,
    file: Option<Identity>,
}

/// The device and the inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Identity(u64, u64);

#[cfg(unix)]
fn identity(path: &Path) -> Option<Identity> {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::metadata(path).ok()?;
    Some(Identity(found.dev(), found.ino()))
}

/// On other systems an open file cannot be moved or removed.
#[cfg(not(unix))]
fn identity(_path: &Path) -> Option<Identity> {
    None
}

impl FileGuard {
    /// Returns the guard of a database that was just opened.
    pub(super) fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), file: identity(path) }
    }

    /// Rejects a write if the path no longer leads to the opened file. It looks the file up and does not open
    /// it.
    pub(super) fn check(&self, operation: &'static str) -> Result<(), Error> {
        if identity(&self.path) == self.file {
            return Ok(());
        }
        let message =
            "the file was moved, replaced or removed while it was open; put it back, or open it again";
        let error = Error::new(ErrorKind::Unavailable, operation, message);
        Err(error.with_outcome(Outcome::NotApplied))
    }
}
