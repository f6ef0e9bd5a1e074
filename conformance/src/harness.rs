//! Opens a backend for the suite.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
pub use larder_kernel::StoreSet;
use larder_kernel::{Contract, Embedder, Namespace, Result};

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

    /// Returns the number of items with which the suite tests methods that read or change many. A backend
    /// that needs a request for each item can return less; the suite uses at least 2,500.
    fn many_items(&self, _contract: Contract) -> usize {
        12_000
    }

    /// Removes the data that the suite left outside the namespaces. The runner has erased the namespaces.
    ///
    /// # Errors
    /// Errors of the backend.
    async fn destroy(&self) -> Result<()> {
        Ok(())
    }
}
