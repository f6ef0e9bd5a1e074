//! The stores between which records move.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{
    BlobBytes, BlobGetOptions, BlobStore, Contract, Error, ErrorKind, GraphStore, HistoryProvider,
    KeyValueStore, Result, TaskStore, VectorStore,
};
use sha2::{Digest as _, Sha256};

use super::archive::Archive;
use super::record::{BlobRecord, Record};
use super::walk::{Ordered, Walk};
use crate::hex::hex;

/// The stores of one namespace on one place: all six or fewer.
#[derive(Clone, Default)]
pub struct Side {
    pub(crate) history: Option<Arc<dyn HistoryProvider>>,
    pub(crate) vectors: Option<Arc<dyn VectorStore>>,
    pub(crate) graph: Option<Arc<dyn GraphStore>>,
    pub(crate) blobs: Option<Arc<dyn BlobStore>>,
    pub(crate) tasks: Option<Arc<dyn TaskStore>>,
    pub(crate) key_value: Option<Arc<dyn KeyValueStore>>,
}

macro_rules! stores {
    ($($field:ident, $with:ident, $kind:ident, $contract:ident, $what:literal;)*) => {
        impl Side {
            $(
                #[doc = concat!("Adds the ", $what, ".")]
                #[must_use]
                pub fn $with(mut self, store: Arc<dyn $kind>) -> Self {
                    self.$field = Some(store);
                    self
                }

                pub(crate) fn $field(&self) -> Result<&Arc<dyn $kind>> {
                    self.$field.as_ref().ok_or_else(|| lacking(Contract::$contract))
                }
            )*

            /// The contracts for which a store is there.
            #[must_use]
            pub fn contracts(&self) -> Vec<Contract> {
                let there = [$(self.$field.is_some().then_some(Contract::$contract)),*];
                there.into_iter().flatten().collect()
            }

            pub(crate) async fn erase(&self, contract: Contract) -> Result<()> {
                match contract {
                    $(Contract::$contract => self.$field()?.erase().await,)*
                }
            }
        }
    };
}

stores! {
    history, with_history, HistoryProvider, History, "history provider";
    vectors, with_vectors, VectorStore, Vectors, "vector store";
    graph, with_graph, GraphStore, Graph, "graph store";
    blobs, with_blobs, BlobStore, Blobs, "blob store";
    tasks, with_tasks, TaskStore, Tasks, "task store";
    key_value, with_key_value, KeyValueStore, KeyValue, "key-value store";
}

impl Side {
    /// No stores yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

impl fmt::Debug for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Side").field("contracts", &self.contracts()).finish()
    }
}

/// The error where a contract is asked for that a side lacks.
pub(crate) fn lacking(contract: Contract) -> Error {
    let message = "one of the two sides provides no store of this contract";
    Error::new(ErrorKind::Unsupported, "transfer.walk", message).with_context("contract", contract.as_str())
}

/// Where records come from.
#[derive(Debug, Clone)]
pub enum Source {
    /// Stores.
    Stores(Side),
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
    pub(crate) async fn walk(&self, contract: Contract) -> Result<Ordered> {
        let walk = match self {
            Self::Stores(side) => Walk::open(side, contract).await?,
            Self::Archive(archive) => Walk::Archive(Box::new(archive.walk(contract)?)),
        };
        Ok(Ordered::new(walk))
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

impl From<Side> for Source {
    fn from(side: Side) -> Self {
        Self::Stores(side)
    }
}

impl From<Archive> for Source {
    fn from(archive: Archive) -> Self {
        Self::Archive(archive)
    }
}
