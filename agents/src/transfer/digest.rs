//! A digest of all records of a contract.

use larder_kernel::Result;
use sha2::{Digest as _, Sha256};

use super::record::Record;
use crate::internal::hex;

/// The result of a scan. Two backends with the same data have the same digest, regardless of the kind of
/// backend.
///
/// The digest is the SHA-256 of the canonical JSON of each record, in the contract's order, each after its
/// length in 8 bytes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Digest {
    /// The number of records.
    pub records: u64,
    /// The SHA-256, in hexadecimal.
    pub sha256: String,
}

/// A digest under construction.
#[derive(Default)]
pub(crate) struct Digester {
    records: u64,
    sha256: Sha256,
}

impl Digester {
    /// Adds a sealed record.
    pub(crate) fn add(&mut self, record: &Record) -> Result<()> {
        let canonical = record.canonical()?;
        self.sha256.update(larder_kernel::check::size(canonical.len()).to_be_bytes());
        self.sha256.update(canonical);
        self.records += 1;
        Ok(())
    }

    pub(crate) fn finish(self) -> Digest {
        let sha256: [u8; 32] = self.sha256.finalize().into();
        Digest { records: self.records, sha256: hex(&sha256) }
    }
}
