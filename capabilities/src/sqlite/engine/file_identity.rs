//! Detects that a file of the database was moved, replaced or removed.
//!
//! SQLite continues to write to such a file while it is open. A program that opens the path later would not
//! find those commits. Two programs with different files for the write-ahead log or its index would damage
//! the database.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use larder_kernel::{Error, ErrorKind, Outcome};

use crate::files::{Identity, identity, next_to, real_path};

/// The time after a check in which a write begins without another one. It is checked again after its commit.
const FRESH: Duration = Duration::from_millis(1);

/// The paths of the files of an open database, and their identities.
pub(super) struct FileGuard {
    files: [(PathBuf, Option<Identity>); 3],
    /// The instant of the last check; `None` if it found that a file moved.
    kept_at: Cell<Option<Instant>>,
}

impl FileGuard {
    /// Returns the guard of a database that was just opened. Its log and the index of the log exist while it
    /// is open.
    pub(super) fn of(path: &Path) -> Self {
        let real = real_path(path);
        let files = [path.to_owned(), next_to(&real, "-wal"), next_to(&real, "-shm")];
        let files = files.map(|path| {
            let opened = identity(&path);
            (path, opened)
        });
        Self { files, kept_at: Cell::new(Some(Instant::now())) }
    }

    /// Rejects a write if a path no longer leads to the opened file. It looks the files up and opens none.
    pub(super) fn check_before(&self, operation: &'static str) -> Result<(), Error> {
        match self.kept_at.get() {
            Some(kept_at) if kept_at.elapsed() < FRESH => Ok(()),
            _ => self.check(operation, Outcome::NotApplied),
        }
    }

    /// Rejects the answer to a write that was committed, if a path no longer leads to the opened file.
    pub(super) fn check_after(&self, operation: &'static str) -> Result<(), Error> {
        self.check(operation, Outcome::Unknown)
    }

    /// Returns true if the last check found every file at its path.
    pub(super) fn is_kept(&self) -> bool {
        self.kept_at.get().is_some()
    }

    fn check(&self, operation: &'static str, outcome: Outcome) -> Result<(), Error> {
        if self.files.iter().all(|(path, opened)| identity(path) == *opened) {
            self.kept_at.set(Some(Instant::now()));
            return Ok(());
        }
        self.kept_at.set(None);
        let message = "the file, its `-wal` or its `-shm` was moved, replaced or removed while it was open; \
                       put it back, or open it again";
        Err(Error::new(ErrorKind::Unavailable, operation, message).with_outcome(outcome))
    }
}
