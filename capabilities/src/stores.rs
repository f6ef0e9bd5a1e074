//! The six stores of an application, from one URL or from several.

use std::fmt;
use std::sync::Arc;

use larder_kernel::{
    BlobStore, Contract, Embedder, Error, ErrorKind, GraphStore, HistoryProvider, KeyValueStore, Namespace,
    Result, TaskStore, VectorStore,
};

use crate::connect::Target;

const CONNECT: &str = "connect";

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

            /// Only the stores of these contracts.
            pub(crate) fn keep(self, wanted: &[Contract]) -> Self {
                let Self { namespace, $($field),* } = self;
                Self { namespace, $($field: $field.filter(|_| wanted.contains(&Contract::$contract))),* }
            }

            /// These stores, and those of `other` where there is none here.
            fn or(self, other: Self) -> Self {
                Self { namespace: self.namespace, $($field: self.$field.or(other.$field)),* }
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
        }
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

fn absent(operation: &'static str, contract: Contract) -> Error {
    let message = format!(
        "no URL given provides the contract `{contract}`; add one that does with `StoresBuilder::{contract}_url`, for \
         example {}",
        example(contract)
    );
    Error::new(ErrorKind::Unsupported, operation, message).with_field("url")
}

const fn example(contract: Contract) -> &'static str {
    match contract {
        Contract::Blobs => "`file:./blobs`",
        _ => "`sqlite:./larder.db`",
    }
}

/// Chooses where the stores of one namespace are.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// use larder_capabilities::Stores;
/// use larder_kernel::Namespace;
///
/// let stores = Stores::builder()
///     .namespace(Namespace::new("tenant-1")?)
///     .url("memory:")
///     .tasks_url("memory:")
///     .connect()
///     .await?;
/// assert_eq!(stores.contracts().len(), 6);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct StoresBuilder {
    namespace: Option<Namespace>,
    url: Option<String>,
    own: Vec<(Contract, String)>,
    embedder: Option<Arc<dyn Embedder>>,
}

impl StoresBuilder {
    /// Sets the namespace; without it, it is `default`.
    #[must_use]
    pub fn namespace(mut self, namespace: Namespace) -> Self {
        self.namespace = Some(namespace);
        self
    }

    /// Sets the URL of every contract that it provides and that has no URL of its own.
    #[must_use]
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Sets the URL of the history provider.
    #[must_use]
    pub fn history_url(self, url: impl Into<String>) -> Self {
        self.own_url(Contract::History, url.into())
    }

    /// Sets the URL of the vector store.
    #[must_use]
    pub fn vectors_url(self, url: impl Into<String>) -> Self {
        self.own_url(Contract::Vectors, url.into())
    }

    /// Sets the URL of the graph store.
    #[must_use]
    pub fn graph_url(self, url: impl Into<String>) -> Self {
        self.own_url(Contract::Graph, url.into())
    }

    /// Sets the URL of the blob store.
    #[must_use]
    pub fn blobs_url(self, url: impl Into<String>) -> Self {
        self.own_url(Contract::Blobs, url.into())
    }

    /// Sets the URL of the task store.
    #[must_use]
    pub fn tasks_url(self, url: impl Into<String>) -> Self {
        self.own_url(Contract::Tasks, url.into())
    }

    /// Sets the URL of the key-value store.
    #[must_use]
    pub fn key_value_url(self, url: impl Into<String>) -> Self {
        self.own_url(Contract::KeyValue, url.into())
    }

    /// Lets the vector store embed texts itself.
    #[must_use]
    pub fn embedder(mut self, embedder: Arc<dyn Embedder>) -> Self {
        self.embedder = Some(embedder);
        self
    }

    fn own_url(mut self, contract: Contract, url: String) -> Self {
        self.own.retain(|(other, _)| *other != contract);
        self.own.push((contract, url));
        self
    }

    /// Reads every URL, then opens each of them once.
    ///
    /// # Errors
    /// `InvalidInput` naming `url` where none is given; `Unsupported` naming `url` where the URL of a contract does not
    /// provide it; else as [`open_place`](crate::open_place).
    pub async fn connect(self) -> Result<Stores> {
        let namespace = match self.namespace {
            Some(namespace) => namespace,
            None => Namespace::new("default")?,
        };
        let mut targets: Vec<(String, Target, Vec<Contract>)> = Vec::new();
        let own: Vec<Contract> = self.own.iter().map(|(contract, _)| *contract).collect();
        if let Some(url) = self.url {
            let target = Target::parse(&url)?;
            let wanted =
                target.contracts().iter().copied().filter(|contract| !own.contains(contract)).collect();
            targets.push((url, target, wanted));
        }
        for (contract, url) in self.own {
            let target = Target::parse(&url)?;
            if !target.contracts().contains(&contract) {
                return Err(wrong_url(contract));
            }
            match targets.iter_mut().find(|(known, ..)| *known == url) {
                Some((_, _, wanted)) => wanted.push(contract),
                None => targets.push((url, target, vec![contract])),
            }
        }
        if targets.is_empty() {
            return Err(Error::invalid(CONNECT, "url", "none is given; set one with `StoresBuilder::url`"));
        }
        let mut stores = Stores::none(namespace.clone());
        for (_, target, wanted) in targets.into_iter().filter(|(.., wanted)| !wanted.is_empty()) {
            let opened = target.open().await?.open_some(&namespace, self.embedder.clone(), &wanted).await?;
            stores = stores.or(opened);
        }
        Ok(stores)
    }
}

fn wrong_url(contract: Contract) -> Error {
    let message = format!(
        "the URL given for the contract `{contract}` does not provide it in this build; give one that does, for example \
         {}",
        example(contract)
    );
    Error::new(ErrorKind::Unsupported, CONNECT, message).with_field("url")
}

impl fmt::Debug for StoresBuilder {
    /// Without the URLs, which may hold secrets, and the namespace.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own: Vec<Contract> = self.own.iter().map(|(contract, _)| *contract).collect();
        f.debug_struct("StoresBuilder").field("own_url", &own).finish_non_exhaustive()
    }
}
