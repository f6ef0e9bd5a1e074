//! The stores between which records move.

use std::fmt;
use std::sync::Arc;

use larder_kernel::{
    BlobStore, Contract, Error, ErrorKind, GraphStore, HistoryProvider, KeyValueStore, Result, TaskStore,
    VectorStore,
};

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
