//! The six stores of an application, from one URL or from several.

use std::fmt;
use std::sync::Arc;

use larder_agents::layers::Layer;
use larder_kernel::{
    BlobStore, Contract, Error, ErrorKind, GraphStore, HistoryProvider, KeyValueStore, Namespace, Result,
    TaskStore, VectorStore,
};

use crate::builder::StoresBuilder;
use crate::connect::Place;

/// The stores of one namespace. A store that the URLs do not provide is the typed `Unsupported` when it is asked for.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// use larder_capabilities::Stores;
/// use larder_kernel::{ChatMessage, HistoryProviderExt, Thread};
///
/// let stores = Stores::connect("memory:").await?;
/// let thread = Thread::new("assistant", "session-1")?;
/// stores.history()?.append(&thread, ChatMessage::user("Hello")).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Stores {
    namespace: Namespace,
    history: Option<Arc<dyn HistoryProvider>>,
    vectors: Option<Arc<dyn VectorStore>>,
    graph: Option<Arc<dyn GraphStore>>,
    blobs: Option<Arc<dyn BlobStore>>,
    tasks: Option<Arc<dyn TaskStore>>,
    key_value: Option<Arc<dyn KeyValueStore>>,
    /// Where the stores came from.
    origins: Vec<(Place, Vec<Contract>)>,
}

/// Writes, for each contract, the accessor and the setter, and what runs over all six.
macro_rules! each_contract {
    ($($field:ident, $with:ident, $operation:literal, $kind:ident, $contract:ident, $what:literal;)*) => {
        impl Stores {
            $(
                #[doc = concat!("The ", $what, ".")]
                ///
                /// # Errors
                /// `Unsupported` where no URL provides it.
                pub fn $field(&self) -> Result<Arc<dyn $kind>> {
                    self.$field.clone().ok_or_else(|| absent($operation, Contract::$contract))
                }

                #[doc = concat!("Sets the ", $what, ", for example to one of your own.")]
                #[must_use]
                pub fn $with(mut self, store: Arc<dyn $kind>) -> Self {
                    self.$field = Some(store);
                    self.origins = only(self.origins, |contract| contract != Contract::$contract);
                    self
                }
            )*

            /// The contracts for which a store is there.
            #[must_use]
            pub fn contracts(&self) -> Vec<Contract> {
                let there = [$(self.$field.is_some().then_some(Contract::$contract)),*];
                there.into_iter().flatten().collect()
            }

            /// Removes everything that the namespace holds in all of the stores: the deletion on request.
            ///
            /// # Errors
            /// The first that a store gives; the others are erased all the same. Calling again completes it.
            pub async fn erase(&self) -> Result<()> {
                let mut result = Ok(());
                $(
                    if let Some(store) = &self.$field {
                        result = result.and(store.erase().await);
                    }
                )*
                result
            }

            /// These stores with a layer, or a stack of layers, around each.
            ///
            /// ```
            /// # #[tokio::main(flavor = "current_thread")]
            /// # async fn main() -> larder_kernel::Result<()> {
            /// use std::time::Duration;
            /// use larder_agents::layers::{Layers, RetryLayer};
            /// use larder_capabilities::Stores;
            ///
            /// let layers = Layers::new().trace("memory").retry(RetryLayer::new()).timeout(Duration::from_secs(5));
            /// let stores = Stores::connect("memory:").await?.layered(&layers);
            /// # Ok(())
            /// # }
            /// ```
            #[must_use]
            pub fn layered(self, layer: &dyn Layer) -> Self {
                let Self { mut namespace, $($field,)* origins } = self;
                $(let $field = $field.map(|store| layer.$field(store));)*
                // A tenant's layer calls the namespace by the tenant's name for it.
                $(if let Some(store) = &$field {
                    namespace = store.namespace().clone();
                })*
                Self { namespace, $($field,)* origins }
            }

            /// The stores as one side of a copy: see [`transfer`](larder_agents::transfer).
            #[must_use]
            pub fn side(&self) -> larder_agents::transfer::Side {
                let mut side = larder_agents::transfer::Side::new();
                $(
                    if let Some(store) = &self.$field {
                        side = side.$with(store.clone());
                    }
                )*
                side
            }

            /// Only the stores of these contracts.
            pub(crate) fn keep(self, wanted: &[Contract]) -> Self {
                let Self { namespace, $($field,)* origins } = self;
                let origins = only(origins, |contract| wanted.contains(&contract));
                Self { namespace, $($field: $field.filter(|_| wanted.contains(&Contract::$contract)),)* origins }
            }

            /// These stores, and those of `other` where there is none here.
            pub(crate) fn or(self, other: Self) -> Self {
                let there = self.contracts();
                let mut origins = self.origins;
                origins.extend(only(other.origins, |contract| !there.contains(&contract)));
                Self { namespace: self.namespace, $($field: self.$field.or(other.$field),)* origins }
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

impl Stores {
    /// Opens all that one URL provides, in the namespace `default`. See [`connect`](crate::connect) for the URLs.
    ///
    /// # Errors
    /// As [`open_place`](crate::open_place).
    pub async fn connect(url: &str) -> Result<Self> {
        Self::builder().url(url).connect().await
    }

    /// Opens stores from several URLs, in a namespace, or with an embedder.
    #[must_use]
    pub fn builder() -> StoresBuilder {
        StoresBuilder::default()
    }

    /// No stores yet: the start for stores of your own.
    #[must_use]
    pub fn none(namespace: Namespace) -> Self {
        Self {
            namespace,
            history: None,
            vectors: None,
            graph: None,
            blobs: None,
            tasks: None,
            key_value: None,
            origins: Vec::new(),
        }
    }

    /// All of these stores came from the place.
    pub(crate) fn with_origin(mut self, place: &Place) -> Self {
        self.origins = vec![(place.clone(), self.contracts())];
        self
    }

    /// The places that the stores came from, and which of the stores did.
    pub(crate) fn origins(&self) -> &[(Place, Vec<Contract>)] {
        &self.origins
    }

    /// The scheme of the place that the contract's store came from.
    pub(crate) fn backend(&self, contract: Contract) -> &'static str {
        let from = self.origins.iter().find(|(_, contracts)| contracts.contains(&contract));
        from.map_or("custom", |(place, _)| place.scheme())
    }

    /// The namespace in which the stores are open.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }
}

impl fmt::Debug for Stores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stores").field("contracts", &self.contracts()).finish_non_exhaustive()
    }
}

/// The places with those contracts only that are wanted of them, and without those of which none is.
fn only(
    origins: Vec<(Place, Vec<Contract>)>,
    wanted: impl Fn(Contract) -> bool,
) -> Vec<(Place, Vec<Contract>)> {
    let kept = origins.into_iter().map(|(place, mut contracts)| {
        contracts.retain(|contract| wanted(*contract));
        (place, contracts)
    });
    kept.filter(|(_, contracts)| !contracts.is_empty()).collect()
}

fn absent(operation: &'static str, contract: Contract) -> Error {
    let message = format!(
        "no URL given provides the contract `{contract}`; add one that does with `StoresBuilder::{contract}_url`, for \
         example {}",
        example(contract)
    );
    Error::new(ErrorKind::Unsupported, operation, message).with_field("url")
}

pub(crate) const fn example(contract: Contract) -> &'static str {
    match contract {
        Contract::Blobs => "`file:./blobs`",
        _ => "`sqlite:./larder.db`",
    }
}
