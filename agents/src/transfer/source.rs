//! The source of a copy.

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{BlobBytes, BlobGetOptions, Contract, Error, ErrorKind, Result, StoreSet};
use sha2::{Digest as _, Sha256};

use super::archive::Archive;
use super::missing::Skips;
use super::record::{BlobRecord, Record};
use super::scan::{Ordered, Scan};
use crate::internal::hex;

/// A source of records.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Source {
    /// The open stores of a backend.
    Stores(StoreSet),
    /// A file that was written from stores.
    Archive(Archive),
}

impl Source {
    /// Returns the contracts of the source.
    #[must_use]
    pub fn contracts(&self) -> Vec<Contract> {
        match self {
            Self::Stores(side) => side.contracts(),
            Self::Archive(archive) => archive.contracts().to_vec(),
        }
    }

    /// Scans the records of a contract, in its order.
    pub(crate) async fn scan(&self, contract: Contract) -> Result<Ordered> {
        self.scan_skipping(contract, &Skips::default()).await
    }

    /// As `scan`, with this treatment of damaged data in stores.
    pub(crate) async fn scan_skipping(&self, contract: Contract, skips: &Skips) -> Result<Ordered> {
        let scan = match self {
            Self::Stores(side) => Scan::open(side, contract, skips).await?,
            Self::Archive(archive) => Scan::Archive(Box::new(archive.scan(contract)?)),
        };
        Ok(Ordered::new(scan))
    }

    /// Reads the bytes of a blob.
    pub(crate) async fn body(&self, blob: &BlobRecord) -> Result<BlobBytes> {
        match self {
            Self::Stores(side) => Ok(side.blobs()?.get(&blob.key, BlobGetOptions::default()).await?.bytes),
            Self::Archive(archive) => archive.body(blob),
        }
    }

    /// Completes a record with the data that requires reading a blob's bytes.
    pub(crate) async fn sealed(&self, record: Record) -> Result<Record> {
        let Record::Blob(mut blob) = record else { return Ok(record) };
        if blob.sha256.is_none() {
            let (mut bytes, mut digest) = (self.body(&blob).await?, Sha256::new());
            blob.size = 0;
            while let Some(piece) = bytes.try_next().await? {
                blob.size += larder_kernel::check::size(Bytes::len(&piece));
                digest.update(&piece);
            }
            let sha256: [u8; 32] = digest.finalize().into();
            blob.sha256 = Some(hex(&sha256));
        }
        Ok(Record::Blob(blob))
    }
}

impl From<StoreSet> for Source {
    fn from(side: StoreSet) -> Self {
        Self::Stores(side)
    }
}

impl From<Archive> for Source {
    fn from(archive: Archive) -> Self {
        Self::Archive(archive)
    }
}

/// Returns the error for a requested contract that a side does not have.
pub(crate) fn lacking(contract: Contract) -> Error {
    let message = "the source or the target has no store for this contract; select other contracts";
    Error::new(ErrorKind::Unsupported, "transfer.walk", message).with_context("contract", contract.as_str())
}
