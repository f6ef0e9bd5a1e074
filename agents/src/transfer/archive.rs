//! A namespace as a file.
//!
//! The file is text: one JSON object a line, each after a checksum that covers every line up to it. First stands a header,
//! then the records, then an end with their numbers and digests. `guide/src/archive.md` in the repository describes each
//! field. Reading and writing a file blocks the thread for a line at a time.

mod format;
mod read;
mod write;

use std::path::{Path, PathBuf};

use larder_kernel::{BlobBytes, Contract, Namespace, Result};

pub(crate) use read::ArchiveScan;
pub use write::dump;

use super::digest::Digest;
use super::position::Position;
use super::record::BlobRecord;
use format::Header;

/// An archive that was read to its end and found whole.
#[derive(Debug, Clone)]
pub struct Archive {
    path: PathBuf,
    header: Header,
    /// Where the records of each contract begin.
    starts: Vec<(Contract, Position)>,
    digests: Vec<(Contract, Digest)>,
}

impl Archive {
    /// Reads the file to its end and checks every line, every blob, and the numbers at the end.
    ///
    /// # Errors
    /// `Corrupt` with `line` and `offset` where the file was altered or ends too early; `Unsupported` where it has another
    /// version; `NotFound`, `PermissionDenied` or `Unavailable` where it cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        read::open(path.as_ref())
    }

    /// The namespace that was written.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.header.namespace
    }

    /// The contracts that were written.
    #[must_use]
    pub fn contracts(&self) -> &[Contract] {
        &self.header.contracts
    }

    /// What was written, by contract. Keys that have expired since count here.
    #[must_use]
    pub fn digests(&self) -> &[(Contract, Digest)] {
        &self.digests
    }

    pub(crate) fn scan(&self, contract: Contract) -> Result<ArchiveScan> {
        let start = self.starts.iter().find(|(named, _)| *named == contract);
        ArchiveScan::new(&self.path, contract, start.map(|(_, position)| position))
    }

    pub(crate) fn body(&self, blob: &BlobRecord) -> Result<BlobBytes> {
        read::body(&self.path, blob)
    }
}
