//! A namespace as a file.
//!
//! The file is text: one JSON object per line, after a checksum that covers every line up to it. A header
//! comes first, then the records, then an end line with their counts and digests. `guide/src/archive.md` in
//! the repository describes each field. Reading and writing a file blocks the thread for one line at a time.

mod format;
mod read;
mod write;

use std::path::{Path, PathBuf};

use larder_kernel::{BlobBytes, Contract, Namespace, Result};

pub(crate) use read::ArchiveScan;
pub use write::{dump, dump_undamaged};

use super::digest::Digest;
use super::missing::Missing;
use super::position::Position;
use super::record::BlobRecord;
use format::Header;

/// An archive that was read to its end and is intact.
#[derive(Debug, Clone)]
pub struct Archive {
    path: PathBuf,
    header: Header,
    /// The position of the first record of each contract.
    starts: Vec<(Contract, Position)>,
    digests: Vec<(Contract, Digest)>,
    missing: Vec<Missing>,
}

impl Archive {
    /// Reads the file to its end and checks every line, every blob, and the counts in the end line.
    ///
    /// # Errors
    /// `Corrupt` with `line` and `offset` if the file was altered or is truncated. `Unsupported` if it has
    /// another version. `NotFound`, `PermissionDenied` or `Unavailable` if it cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        read::open(path.as_ref())
    }

    /// Returns the archived namespace.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.header.namespace
    }

    /// Returns the archived contracts.
    #[must_use]
    pub fn contracts(&self) -> &[Contract] {
        &self.header.contracts
    }

    /// Returns the digest of each archived contract. Keys that have expired since are included.
    #[must_use]
    pub fn digests(&self) -> &[(Contract, Digest)] {
        &self.digests
    }

    /// Returns the data that the dump could not read and left out.
    #[must_use]
    pub fn missing(&self) -> &[Missing] {
        &self.missing
    }

    pub(crate) fn scan(&self, contract: Contract) -> Result<ArchiveScan> {
        let start = self.starts.iter().find(|(named, _)| *named == contract);
        ArchiveScan::new(&self.path, contract, start.map(|(_, position)| position))
    }

    pub(crate) fn body(&self, blob: &BlobRecord) -> Result<BlobBytes> {
        read::body(&self.path, blob)
    }
}
