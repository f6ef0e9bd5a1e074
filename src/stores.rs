//! The six stores of an application.

use std::fmt;

use larder_agents::layers::Layer;
use larder_capabilities::driver::StoresRequest;
use larder_kernel::{Contract, Error, Namespace, Result, StoreSet};

use crate::backend::Backend;
use crate::{Blobs, Graph, History, KeyValue, Tasks, Vectors};

/// The stores of one namespace, from one or more backends. Clones share them.
///
/// ```
/// use larder::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder::Result<()> {
/// let stores = larder::open("memory:").await?;
/// let thread = Thread::new("assistant", "session-1")?;
/// stores.history()?.append(&thread, ChatMessage::user("Hello")).await?;
/// stores.erase().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Stores {
    namespace: Namespace,
    set: StoreSet,
    /// The backends, and the contracts that each of them serves.
    origins: Vec<(Backend, Vec<Contract>)>,
}

macro_rules! accessors {
    ($($name:ident: $handle:ident, $what:literal;)*) => {
        impl Stores {
            $(
                #[doc = concat!("Returns the ", $what, ".")]
                ///
                /// # Errors
                /// `Unsupported` if no backend provides the contract; the error of opening it if that failed.
                pub fn $name(&self) -> Result<$handle> {
                    self.set.$name().map($handle::new)
                }
            )*
        }
    };
}

accessors! {
    history: History, "conversations";
    vectors: Vectors, "documents with embeddings";
    graph: Graph, "knowledge graph";
    blobs: Blobs, "files";
    tasks: Tasks, "task boards";
    key_value: KeyValue, "small state";
}

impl Stores {
    /// Creates stores from your own implementations, without a URL.
    #[must_use]
    pub fn new(namespace: Namespace, set: StoreSet) -> Self {
        Self { namespace, set, origins: Vec::new() }
    }

    /// Creates stores that all come from one backend.
    pub(crate) fn of(namespace: Namespace, set: StoreSet, backend: Backend) -> Self {
        let origins = vec![(backend, set.contracts())];
        Self { namespace, set, origins }
    }

    /// Returns the namespace in which the stores are open.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Returns the contracts whose stores are open.
    #[must_use]
    pub fn contracts(&self) -> Vec<Contract> {
        self.set.contracts()
    }

    /// Returns the contracts that could not be opened, with the reasons.
    #[must_use]
    pub fn errors(&self) -> Vec<(Contract, &Error)> {
        self.set.errors()
    }

    /// Returns the stores as trait objects, which transfers, layers and the conformance suite take.
    #[must_use]
    pub fn set(&self) -> &StoreSet {
        &self.set
    }

    /// Replaces stores with your own implementations, which then count as opened without a URL.
    #[must_use]
    pub fn with(self, own: StoreSet) -> Self {
        let namespace = self.namespace.clone();
        Self::new(namespace, own).or(self)
    }

    /// Wraps every store in a layer, or in a stack of layers.
    ///
    /// ```
    /// use std::time::Duration;
    /// use larder::layers::{Layers, RetryLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// let layers = Layers::new().trace("memory").retry(RetryLayer::new()).timeout(Duration::from_secs(5));
    /// let stores = larder::open("memory:").await?.layered(&layers);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn layered(self, layer: &dyn Layer) -> Self {
        let set = layer.over(self.set);
        // A tenant layer reports the namespace under the tenant's name.
        let namespace = set.namespace().cloned().unwrap_or(self.namespace);
        Self { namespace, set, origins: self.origins }
    }

    /// Erases the namespace in every store, for example on a deletion request.
    ///
    /// # Errors
    /// The first error of a store. The other stores are still erased; calling again completes the erasure.
    pub async fn erase(&self) -> Result<()> {
        self.set.erase().await
    }

    /// Closes the backends of the stores and waits for them, as [`Backend::close`] describes. Call it at the
    /// end of a program.
    ///
    /// Stores of your own implementations stay open. Later calls of other clones and of handles fail with
    /// `Unavailable`, where the backend has anything to close.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// let stores = larder::open("memory:").await?;
    /// stores.close().await;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn close(self) {
        let Self { origins, set, .. } = self;
        drop(set);
        for (backend, _) in origins {
            backend.close().await;
        }
    }

    /// Returns the backends of the stores, and the contracts that each of them serves.
    pub(crate) fn origins(&self) -> &[(Backend, Vec<Contract>)] {
        &self.origins
    }

    /// Returns the name of the backend that serves a contract; `custom` for your own store.
    pub(crate) fn backend_name(&self, contract: Contract) -> &'static str {
        let from = self.origins.iter().find(|(_, contracts)| contracts.contains(&contract));
        from.map_or("custom", |(backend, _)| backend.name())
    }

    /// Fills the missing contracts from other stores.
    pub(crate) fn or(self, other: Self) -> Self {
        let open = self.contracts();
        let mut origins = self.origins;
        for (backend, mut contracts) in other.origins {
            contracts.retain(|contract| !open.contains(contract));
            if !contracts.is_empty() {
                origins.push((backend, contracts));
            }
        }
        Self { namespace: self.namespace, set: self.set.or(other.set), origins }
    }
}

impl Backend {
    /// Opens every store of one namespace. A contract that cannot be opened fails at its accessor.
    pub async fn stores(&self, namespace: &Namespace) -> Stores {
        self.stores_for(StoresRequest::new(namespace.clone())).await
    }

    /// Opens the stores that a request names, with the embedder of the request.
    pub async fn stores_for(&self, request: StoresRequest) -> Stores {
        // Boxed, because opening pgvector or a folder creates a large future.
        let set = Box::pin(self.connection.stores(&request)).await;
        Stores::of(request.namespace, set, self.clone())
    }
}

impl From<Stores> for StoreSet {
    fn from(stores: Stores) -> Self {
        stores.set
    }
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stores").field("contracts", &self.contracts()).finish_non_exhaustive()
    }
}
