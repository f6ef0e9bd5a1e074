//! What a copy reads from.

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{BlobBytes, BlobGetOptions, Contract, Error, ErrorKind, Result, StoreSet};
use sha2::{Digest as _, Sha256};

use super::archive::Archive;
use super::record::{BlobRecord, Record};
use super::scan::{Ordered, Scan};
use crate::hex::hex;

/// Where records come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// Stores.
    Stores(StoreSet),
    /// A file that was written from stores.
    Archive(Archive),
}

impl Source {
    /// The contracts that it holds.
    #[must_use]
    pub fn contracts(&self) -> Vec<Contract> {
        match self {
            Self::Stores(side) => side.contracts(),
            Self::Archive(archive) => archive.contracts().to_vec(),
        }
    }

    /// The records of a contract, in its order.
    pub(crate) async fn scan(&self, contract: Contract) -> Result<Ordered> {
        let scan = match self {
            Self::Stores(side) => Scan::open(side, contract).await?,
            Self::Archive(archive) => Scan::Archive(Box::new(archive.scan(contract)?)),
        };
        Ok(Ordered::new(scan))
    }

    /// The bytes of a blob.
    pub(crate) async fn body(&self, blob: &BlobRecord) -> Result<BlobBytes> {
        match self {
            Self::Stores(side) => Ok(side.blobs()?.get(&blob.key, BlobGetOptions::default()).await?.bytes),
            Self::Archive(archive) => archive.body(blob),
        }
    }

    /// The record with what only the bytes of a blob tell.
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

/// The error where a contract is asked for that a side lacks.
pub(crate) fn lacking(contract: Contract) -> Error {
    let message = "one of the two sides provides no store of this contract";
    Error::new(ErrorKind::Unsupported, "transfer.walk", message).with_context("contract", contract.as_str())
}
