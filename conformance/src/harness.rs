//! Opens a backend for the suite.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
pub use larder_kernel::StoreSet;
use larder_kernel::{Contract, Embedder, ErrorKind, Namespace, Result};

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

/// A fault around a backend, outside of its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Edge {
    /// Another process holds a lock and does not run.
    FrozenHolder,
    /// The server gets no byte. A relay causes it, so a harness does not.
    SilentServer,
    /// The folder or the file moves away while it is open, and comes back.
    MovedFolder,
    /// The role loses its rights, and gets them back.
    RevokedRole,
    /// The server is a standby.
    Standby,
    /// A pooler in transaction mode is between the store and the server.
    Pooler,
}

impl Edge {
    /// All faults.
    pub const ALL: [Self; 6] = [
        Self::FrozenHolder,
        Self::SilentServer,
        Self::MovedFolder,
        Self::RevokedRole,
        Self::Standby,
        Self::Pooler,
    ];

    /// Returns the name in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FrozenHolder => "frozen holder",
            Self::SilentServer => "silent server",
            Self::MovedFolder => "moved folder",
            Self::RevokedRole => "revoked role",
            Self::Standby => "standby",
            Self::Pooler => "pooler",
        }
    }
}

/// A fault that a harness causes.
#[async_trait]
pub trait EdgeFault: Send + Sync {
    /// Returns the backend that the fault affects.
    fn harness(&self) -> Arc<dyn Harness>;

    /// Returns the harness that opens the same data without the fault; `None` if the harness that staged the
    /// fault does.
    fn direct(&self) -> Option<Arc<dyn Harness>> {
        None
    }

    /// Returns the longest time of a call during the fault.
    fn call_time_max(&self) -> Duration;

    /// Returns the kinds of error with which a write may end during the fault. The list is empty if writes
    /// must succeed.
    fn kinds(&self) -> &'static [ErrorKind];

    /// Begins the fault.
    ///
    /// # Errors
    /// An error if it cannot be caused.
    async fn begin(&self) -> Result<()>;

    /// Ends the fault.
    ///
    /// # Errors
    /// An error if it cannot be ended.
    async fn end(&self) -> Result<()>;
}

/// The answer of a harness to the request for a fault.
#[non_exhaustive]
pub enum Staged {
    /// It can.
    Ready(Box<dyn EdgeFault>),
    /// The backend can have the fault, and something is missing to cause it.
    Skipped(String),
    /// The backend cannot have the fault.
    Impossible,
}

impl fmt::Debug for Staged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ready(_) => "Ready",
            Self::Skipped(_) => "Skipped",
            Self::Impossible => "Impossible",
        })
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

    /// Returns the size of the largest stream that the suite writes, in bytes. A backend that computes on
    /// every byte can return less; the suite uses at least 1 MiB.
    fn largest_stream(&self) -> usize {
        64 << 20
    }

    /// Prepares a fault around the backend. The level `faults` begins and ends it.
    ///
    /// # Errors
    /// Errors of the preparation.
    async fn stage(&self, _edge: Edge) -> Result<Staged> {
        Ok(Staged::Impossible)
    }

    /// Removes the data that the suite left outside the namespaces. The runner has erased the namespaces.
    ///
    /// # Errors
    /// Errors of the backend.
    async fn destroy(&self) -> Result<()> {
        Ok(())
    }
}
