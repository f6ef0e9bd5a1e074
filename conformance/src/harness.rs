//! How the suite opens a backend.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use larder_kernel::{
    BlobStore, Capabilities, Contract, Embedder, GraphStore, HistoryProvider, KeyValueStore, Namespace,
    Result, Store, TaskStore, VectorStore,
};

/// The stores that one opening of a backend yields. A contract that the backend does not serve is `None`.
#[derive(Debug, Clone, Default)]
pub struct StoreSet {
    /// Conversations.
    pub history: Option<Arc<dyn HistoryProvider>>,
    /// Documents with embeddings.
    pub vectors: Option<Arc<dyn VectorStore>>,
    /// Entities and relationships.
    pub graph: Option<Arc<dyn GraphStore>>,
    /// Files.
    pub blobs: Option<Arc<dyn BlobStore>>,
    /// Task boards.
    pub tasks: Option<Arc<dyn TaskStore>>,
    /// Small state.
    pub key_value: Option<Arc<dyn KeyValueStore>>,
}

impl From<larder_kernel::StoreSet> for StoreSet {
    fn from(set: larder_kernel::StoreSet) -> Self {
        Self {
            history: set.history().ok(),
            vectors: set.vectors().ok(),
            graph: set.graph().ok(),
            blobs: set.blobs().ok(),
            tasks: set.tasks().ok(),
            key_value: set.key_value().ok(),
        }
    }
}

impl StoreSet {
    /// The store of a contract as what all of them share.
    #[must_use]
    pub fn store(&self, contract: Contract) -> Option<&dyn Store> {
        match contract {
            Contract::History => self.history.as_deref().map(|store| store as &dyn Store),
            Contract::Vectors => self.vectors.as_deref().map(|store| store as &dyn Store),
            Contract::Graph => self.graph.as_deref().map(|store| store as &dyn Store),
            Contract::Blobs => self.blobs.as_deref().map(|store| store as &dyn Store),
            Contract::Tasks => self.tasks.as_deref().map(|store| store as &dyn Store),
            Contract::KeyValue => self.key_value.as_deref().map(|store| store as &dyn Store),
        }
    }

    /// What the store of a contract declares; `None` where it is not served.
    #[must_use]
    pub fn capabilities(&self, contract: Contract) -> Option<Capabilities> {
        self.store(contract).map(Store::capabilities)
    }
}

/// What an opening asks for beyond the namespace.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Computes the embeddings that documents lack.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// Which of the place's handles to use: different numbers must not share connections or caches.
    pub handle: usize,
}

impl OpenOptions {
    /// Sets which of the place's handles to use.
    #[must_use]
    pub fn with_handle(mut self, handle: usize) -> Self {
        self.handle = handle;
        self
    }

    /// Sets what computes missing embeddings.
    #[must_use]
    pub fn with_embedder(mut self, embedder: Arc<dyn Embedder>) -> Self {
        self.embedder = Some(embedder);
        self
    }
}

/// A backend that is spoken to through a relay, and the times that it then keeps.
#[derive(Debug, Clone)]
pub struct Relayed {
    /// The backend. It reaches the same place as the harness that it comes from.
    pub harness: Arc<dyn Harness>,
    /// How long it waits for the answer to what it sent. Short, for a run waits so long for every silence.
    pub answer_time_max: Duration,
    /// How long a call takes at most, whatever becomes of the connection.
    pub call_time_max: Duration,
}

/// Opens one backend for the suite. All openings reach the same place.
#[async_trait]
pub trait Harness: fmt::Debug + Send + Sync + 'static {
    /// The backend's name in reports.
    fn name(&self) -> &str;

    /// Where it is, with secrets hidden.
    fn url(&self) -> String;

    /// Where it is, with its secrets, so that another process can open the same place. `None` where that is not possible.
    fn shared_url(&self) -> Option<String> {
        None
    }

    /// Opens a namespace on the same place, through the handle that the options name.
    ///
    /// # Errors
    /// The backend's own.
    async fn open(&self, namespace: &Namespace, options: &OpenOptions) -> Result<StoreSet>;

    /// A harness on another, empty place of the same backend, which nobody else uses, so that every handle on it can be
    /// closed and the place opened again. `None` where the backend keeps nothing once its handles are closed.
    ///
    /// # Errors
    /// The backend's own.
    async fn isolated(&self) -> Result<Option<Arc<dyn Harness>>> {
        Ok(None)
    }

    /// Where the backend's servers listen, each as `host:port`; none where it has no server whose connections can be
    /// relayed.
    fn servers(&self) -> Vec<String> {
        Vec::new()
    }

    /// The same place, with every connection made to a relay instead of a server: `relays` stand for the
    /// [`servers`](Self::servers), in their order. Where there are several, the relays also put their own ports in the
    /// place of the servers' wherever a server tells its clients where else to connect to. `None` where none of that is
    /// possible.
    ///
    /// # Errors
    /// The backend's own.
    async fn relayed(&self, _relays: &[SocketAddr]) -> Result<Option<Relayed>> {
        Ok(None)
    }

    /// Removes what the suite left behind outside the namespaces, which the runner has erased.
    ///
    /// # Errors
    /// The backend's own.
    async fn destroy(&self) -> Result<()> {
        Ok(())
    }
}
