//! One number for all that a contract holds.

use larder_kernel::Result;
use sha2::{Digest as _, Sha256};

use super::record::Record;
use crate::hex::hex;

/// What a scan came to: the same for two places that hold the same, whatever backends they are.
///
/// SHA-256 over the canonical JSON of each record in the contract's order, each after its length in eight bytes.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Digest {
    /// How many records there are.
    pub records: u64,
    /// SHA-256 in hexadecimal.
    pub sha256: String,
}

/// A digest under way.
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
