//! Detects that a file of the database was moved, replaced or removed.
//!
//! SQLite continues to write to such a file while it is open. A program that opens the path later would not
//! find those commits. Two programs with different files for the write-ahead log or its index would damage
//! the database.

use std::path::{Path, PathBuf};

use larder_kernel::{Error, ErrorKind, Outcome};

use crate::files::{Identity, identity, next_to, real_path};

/// The paths of the files of an open database, and their identities.
pub(super) struct FileGuard {
    files: [(PathBuf, Option<Identity>); 3],
}

impl FileGuard {
    /// Returns the guard of a database that was just opened. Its log and the index of the log exist while it
    /// is open.
    pub(super) fn of(path: &Path) -> Self {
        let real = real_path(path);
        let files = [path.to_owned(), next_to(&real, "-wal"), next_to(&real, "-shm")];
        Self {
            files: files.map(|path| {
                let opened = identity(&path);
                (path, opened)
            }),
        }
    }

    /// Rejects a write if a path no longer leads to the opened file. It looks the files up and opens none.
    pub(super) fn check(&self, operation: &'static str, outcome: Outcome) -> Result<(), Error> {
        if self.files.iter().all(|(path, opened)| identity(path) == *opened) {
            return Ok(());
        }
        let message = "the file, its `-wal` or its `-shm` was moved, replaced or removed while it was open; \
                       put it back, or open it again";
        Err(Error::new(ErrorKind::Unavailable, operation, message).with_outcome(outcome))
    }
}
