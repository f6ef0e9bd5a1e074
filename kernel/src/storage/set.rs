//! The stores of one namespace as one value.

use std::fmt;
use std::sync::Arc;

use super::{Contract, Store};
use crate::capability::Capabilities;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Namespace;
use crate::{BlobStore, GraphStore, HistoryProvider, KeyValueStore, TaskStore, VectorStore};

/// An open store, no store, or the error from opening the store.
enum Slot<S: ?Sized> {
    Absent,
    Open(Arc<S>),
    Failed(Error),
}

impl<S: ?Sized> Slot<S> {
    fn store(&self) -> Option<&Arc<S>> {
        if let Self::Open(store) = self { Some(store) } else { None }
    }

    fn get(&self, operation: &'static str, contract: Contract) -> Result<Arc<S>> {
        match self {
            Self::Open(store) => Ok(store.clone()),
            Self::Failed(error) => Err(error.clone()),
            Self::Absent => Err(absent(operation, contract)),
        }
    }
}

impl<S: ?Sized> Clone for Slot<S> {
    fn clone(&self) -> Self {
        match self {
            Self::Absent => Self::Absent,
            Self::Open(store) => Self::Open(store.clone()),
            Self::Failed(error) => Self::Failed(error.clone()),
        }
    }
}

/// The stores of one namespace: all six or fewer. Clones share the stores.
///
/// Backends return a `StoreSet`; the conformance suite and transfers accept one. Each contract is open,
/// absent or failed. The accessor of a failed contract returns the error.
pub struct StoreSet {
    history: Slot<dyn HistoryProvider>,
    vectors: Slot<dyn VectorStore>,
    graph: Slot<dyn GraphStore>,
    blobs: Slot<dyn BlobStore>,
    tasks: Slot<dyn TaskStore>,
    key_value: Slot<dyn KeyValueStore>,
}

macro_rules! each_contract {
    ($($field:ident, $with:ident, $operation:literal, $kind:ident, $contract:ident, $what:literal;)*) => {
        impl StoreSet {
            $(
                #[doc = concat!("Returns the ", $what, ".")]
                ///
                /// # Errors
                /// `Unsupported` if the set has no such store; the error from opening the store if that
                /// failed.
                pub fn $field(&self) -> Result<Arc<dyn $kind>> {
                    self.$field.get($operation, Contract::$contract)
                }

                #[doc = concat!("Sets the ", $what, ".")]
                #[must_use]
                pub fn $with(mut self, store: Arc<dyn $kind>) -> Self {
                    self.$field = Slot::Open(store);
                    self
                }
            )*

            /// Records the error from opening the store of a contract. The contract's accessor returns this
            /// error.
            #[must_use]
            pub fn with_error(mut self, contract: Contract, error: Error) -> Self {
                match contract {
                    $(Contract::$contract => self.$field = Slot::Failed(error),)*
                }
                self
            }

            /// Returns the contracts whose stores are open.
            #[must_use]
            pub fn contracts(&self) -> Vec<Contract> {
                let open = [$(self.$field.store().is_some().then_some(Contract::$contract)),*];
                open.into_iter().flatten().collect()
            }

            /// Returns the contracts whose stores could not be opened, with their errors.
            #[must_use]
            pub fn errors(&self) -> Vec<(Contract, &Error)> {
                let failed = [$(
                    match &self.$field {
                        Slot::Failed(error) => Some((Contract::$contract, error)),
                        Slot::Open(_) | Slot::Absent => None,
                    }
                ),*];
                failed.into_iter().flatten().collect()
            }

            /// Returns a contract's store as [`Store`]; `None` if the set has no such store.
            #[must_use]
            pub fn store(&self, contract: Contract) -> Option<&dyn Store> {
                match contract {
                    $(Contract::$contract => self.$field.store().map(|store| &**store as &dyn Store),)*
                }
            }

            /// Keeps only the stores of these contracts.
            #[must_use]
            pub fn only(self, contracts: &[Contract]) -> Self {
                Self {
                    $($field: match contracts.contains(&Contract::$contract) {
                        true => self.$field,
                        false => Slot::Absent,
                    },)*
                }
            }

            /// Takes the stores of absent contracts from another set.
            #[must_use]
            pub fn or(self, other: Self) -> Self {
                Self {
                    $($field: if matches!(self.$field, Slot::Absent) { other.$field } else { self.$field },)*
                }
            }
        }

        impl Clone for StoreSet {
            fn clone(&self) -> Self {
                Self { $($field: self.$field.clone(),)* }
            }
        }

        impl Default for StoreSet {
            fn default() -> Self {
                Self { $($field: Slot::Absent,)* }
            }
        }
    };
}

each_contract! {
    history, with_history, "stores.history", HistoryProvider, History, "history provider";
    vectors, with_vectors, "stores.vectors", VectorStore, Vectors, "vector store";
    graph, with_graph, "stores.graph", GraphStore, Graph, "graph store";
    blobs, with_blobs, "stores.blobs", BlobStore, Blobs, "blob store";
    tasks, with_tasks, "stores.tasks", TaskStore, Tasks, "task store";
    key_value, with_key_value, "stores.key_value", KeyValueStore, KeyValue, "key-value store";
}

impl StoreSet {
    /// Creates a set without stores.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the capabilities of a contract's store; `None` if the set has no such store.
    #[must_use]
    pub fn capabilities(&self, contract: Contract) -> Option<Capabilities> {
        self.store(contract).map(Store::capabilities)
    }

    /// Returns the namespace of the first open store.
    #[must_use]
    pub fn namespace(&self) -> Option<&Namespace> {
        Contract::ALL.iter().find_map(|contract| self.store(*contract)).map(Store::namespace)
    }

    /// Removes everything that the namespace contains in all stores of the set.
    ///
    /// # Errors
    /// The first error of a store. The other stores are erased nevertheless. Call `erase` again to complete
    /// the erasure.
    ///
    /// # Cancellation
    /// If the future is dropped, any part may have been removed. Call `erase` again to complete the erasure.
    pub async fn erase(&self) -> Result<()> {
        let mut result = Ok(());
        for store in Contract::ALL.iter().filter_map(|contract| self.store(*contract)) {
            result = result.and(store.erase().await);
        }
        result
    }
}

impl fmt::Debug for StoreSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSet").field("contracts", &self.contracts()).finish_non_exhaustive()
    }
}

fn absent(operation: &'static str, contract: Contract) -> Error {
    let example = match contract {
        Contract::Blobs => "`file:./blobs`",
        _ => "`sqlite:./larder.db`",
    };
    let message = format!(
        "no open backend provides the contract `{contract}`; open one that does, for example {example}"
    );
    Error::new(ErrorKind::Unsupported, operation, message).with_field("url")
}
