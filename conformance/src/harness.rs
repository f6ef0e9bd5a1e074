//! Opens a backend for the suite.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use larder_kernel::storage::guard;
use larder_kernel::{
    BlobStore, Capabilities, Contract, Embedder, GraphStore, HistoryProvider, KeyValueStore, Namespace,
    Result, Store, TaskStore, VectorStore,
};

/// The stores that one opening of a backend returns. A contract that the backend does not serve is `None`.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
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
    /// Returns the store of a contract as the trait that all stores share.
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

    /// Returns the stores as handles call them: a store refuses the options that it does not declare.
    pub(crate) fn guarded(self) -> Self {
        Self {
            history: self.history.map(guard::history),
            vectors: self.vectors.map(guard::vectors),
            graph: self.graph.map(guard::graph),
            blobs: self.blobs.map(guard::blobs),
            tasks: self.tasks.map(guard::tasks),
            key_value: self.key_value.map(guard::key_value),
        }
    }

    /// Returns the declared capabilities of a contract's store; `None` if the backend does not serve the
    /// contract.
    #[must_use]
    pub fn capabilities(&self, contract: Contract) -> Option<Capabilities> {
        self.store(contract).map(Store::capabilities)
    }

    /// Sets the store of conversations.
    #[must_use]
    pub fn with_history(mut self, history: Arc<dyn HistoryProvider>) -> Self {
        self.history = Some(history);
        self
    }

    /// Sets the store of documents.
    #[must_use]
    pub fn with_vectors(mut self, vectors: Arc<dyn VectorStore>) -> Self {
        self.vectors = Some(vectors);
        self
    }

    /// Sets the store of entities and relationships.
    #[must_use]
    pub fn with_graph(mut self, graph: Arc<dyn GraphStore>) -> Self {
        self.graph = Some(graph);
        self
    }

    /// Sets the store of files.
    #[must_use]
    pub fn with_blobs(mut self, blobs: Arc<dyn BlobStore>) -> Self {
        self.blobs = Some(blobs);
        self
    }

    /// Sets the store of task boards.
    #[must_use]
    pub fn with_tasks(mut self, tasks: Arc<dyn TaskStore>) -> Self {
        self.tasks = Some(tasks);
        self
    }

    /// Sets the store of small state.
    #[must_use]
    pub fn with_key_value(mut self, key_value: Arc<dyn KeyValueStore>) -> Self {
        self.key_value = Some(key_value);
        self
    }
}

/// The options of an opening, apart from the namespace.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    /// The embedder for documents without an embedding.
    pub embedder: Option<Arc<dyn Embedder>>,
    /// The number of the backend handle to use. Handles with different numbers must not share connections or
    /// caches.
    pub handle: usize,
}

impl OpenOptions {
    /// Sets the number of the backend handle to use.
    #[must_use]
    pub fn with_handle(mut self, handle: usize) -> Self {
        self.handle = handle;
        self
    }

    /// Sets the embedder for documents without an embedding.
    #[must_use]
    pub fn with_embedder(mut self, embedder: Arc<dyn Embedder>) -> Self {
        self.embedder = Some(embedder);
        self
    }
}

/// A backend whose connections go through a relay, with the time limits that it keeps there.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Relayed {
    /// The backend. It opens the same database as the harness that it comes from.
    pub harness: Arc<dyn Harness>,
    /// The longest time that the backend waits for a reply. Keep it short: a run waits this long for every
    /// silent connection.
    pub answer_time_max: Duration,
    /// The longest time that a call takes, even if the connection fails.
    pub call_time_max: Duration,
}

impl Relayed {
    /// Creates a backend whose connections go through a relay.
    #[must_use]
    pub fn new(harness: Arc<dyn Harness>, answer_time_max: Duration, call_time_max: Duration) -> Self {
        Self { harness, answer_time_max, call_time_max }
    }
}

/// Opens one backend for the suite. All openings reach the same database.
#[async_trait]
pub trait Harness: fmt::Debug + Send + Sync + 'static {
    /// Returns the backend's name in reports.
    fn name(&self) -> &str;

    /// Returns the backend's URL, with secrets hidden.
    fn url(&self) -> String;

    /// Returns the backend's URL with its secrets, so that another process can open the same database. `None`
    /// if that is not possible.
    fn shared_url(&self) -> Option<String> {
        None
    }

    /// Opens a namespace of the same database, through the handle that the options name.
    ///
    /// # Errors
    /// Errors of the backend.
    async fn open(&self, namespace: &Namespace, options: &OpenOptions) -> Result<StoreSet>;

    /// Returns a harness for a separate, empty database of the same backend, which only the caller uses. The
    /// caller can close every handle and open the database again. `None` if the backend keeps no data after
    /// its handles are closed.
    ///
    /// # Errors
    /// Errors of the backend.
    async fn isolated(&self) -> Result<Option<Arc<dyn Harness>>> {
        Ok(None)
    }

    /// Returns the addresses of the backend's servers, each as `host:port`. The list is empty if the backend
    /// has no server whose connections can be relayed.
    fn servers(&self) -> Vec<String> {
        Vec::new()
    }

    /// Returns a harness for the same database that connects to relays instead of servers. The `relays`
    /// replace the [`servers`](Self::servers), in the same order. With several servers, the relays also
    /// replace the servers' ports by their own wherever a server sends a client the address of another
    /// server. `None` if the backend cannot be relayed.
    ///
    /// # Errors
    /// Errors of the backend.
    async fn relayed(&self, _relays: &[SocketAddr]) -> Result<Option<Relayed>> {
        Ok(None)
    }

    /// Removes the data that the suite left outside the namespaces. The runner has erased the namespaces.
    ///
    /// # Errors
    /// Errors of the backend.
    async fn destroy(&self) -> Result<()> {
        Ok(())
    }
}
