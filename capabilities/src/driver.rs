//! The traits of a backend that a URL opens.
//!
//! A [`Driver`] names the URLs of one kind of backend. It reads a URL into a [`Location`], without I/O. The
//! location opens a [`Connection`], or is diagnosed without being opened. The connection returns the stores
//! of any number of namespaces. The registry of the crate `larder` holds the drivers of a program: those of
//! this crate and your own.

#[cfg(any(feature = "sqlite", all(feature = "fs", unix)))]
mod mode;
mod path;
mod url;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{Contract, Embedder, Namespace, Result, StoreSet};
use serde::Serialize;

use crate::diagnose::Findings;
use crate::verify::{self, Faults, Repaired};
#[cfg(any(feature = "sqlite", all(feature = "fs", unix)))]
pub use mode::OpenMode;
pub use url::{BackendUrl, invalid_url};
#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
pub(crate) use url::{OPERATION, unknown_parameter};

/// One kind of backend: its URLs and the way to open them.
///
/// ```
/// # extern crate larder_capabilities as larder;
/// use larder::driver::{BackendUrl, Driver};
///
/// for driver in larder::drivers() {
///     println!("{}: takes {:?}", driver.name(), driver.parameters());
/// }
/// ```
pub trait Driver: fmt::Debug + Send + Sync + 'static {
    /// Returns the name in reports and health checks. It is one of the [`schemes`](Self::schemes).
    fn name(&self) -> &'static str;

    /// Returns the schemes of its URLs, in lower case and without the colon. Use at least two letters: a
    /// scheme of one letter looks like a Windows drive.
    fn schemes(&self) -> &'static [&'static str];

    /// Returns the contracts that the backend provides.
    fn contracts(&self) -> &'static [Contract];

    /// Returns the query parameters that its URLs accept. The registry rejects all others before it calls
    /// [`read`](Self::read).
    fn parameters(&self) -> &'static [&'static str] {
        &[]
    }

    /// Returns how far the data behind one URL is shared.
    fn sharing(&self) -> Sharing {
        Sharing::Network
    }

    /// Reads and checks a URL, without I/O.
    ///
    /// # Errors
    /// `InvalidInput` naming `url` ([`invalid_url`]) for a URL that is malformed or has a value out of range.
    /// The message never repeats the URL, which may hold a secret.
    fn read(&self, url: &BackendUrl<'_>) -> Result<Box<dyn Location>>;
}

/// The scope in which the data behind one URL is shared.
///
/// With [`Process`](Self::Process) and [`Machine`](Self::Machine) the URL after its scheme is a path, so that
/// a test can insert its own path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sharing {
    /// Each opening creates a separate backend, which ends when it is closed.
    Opening,
    /// All openings in one process share the data. Another process cannot open the backend until they are
    /// closed.
    Process,
    /// All processes of one machine share the data.
    Machine,
    /// All machines that reach the server share the data.
    Network,
}

/// The backend that one URL names: read and checked, not opened.
#[async_trait]
pub trait Location: Send + Sync {
    /// Opens the backend, for all namespaces.
    ///
    /// # Errors
    /// The errors of the backend.
    ///
    /// # Cancellation
    /// Nothing stays open.
    async fn open(self: Box<Self>) -> Result<Arc<dyn Connection>>;

    /// Adds the findings about the location, without opening it and without a lasting change.
    async fn diagnose(&self, findings: &Findings);

    /// Reads all data of all namespaces in one consistent state, and adds what is damaged. Changes nothing.
    ///
    /// # Errors
    /// `Unsupported` if the backend has no verification; otherwise the errors of opening it.
    async fn verify(&self, _faults: &Faults) -> Result<()> {
        Err(verify::unsupported("verification"))
    }

    /// Copies the data, then repairs what follows from other data. Removes no record.
    ///
    /// # Errors
    /// `Unsupported` if the backend has no repair; `Conflict` if another process has it open.
    async fn repair(&self) -> Result<Repaired> {
        Err(verify::unsupported("repair"))
    }

    /// Draws a new generation for every thread, bucket and board of all namespaces, and returns their number.
    /// Every position from before is then of another generation.
    ///
    /// # Errors
    /// `Unsupported` if the backend stores no generations; otherwise the errors of opening and writing.
    async fn renew_generations(&self) -> Result<u64> {
        Err(verify::unsupported("generations to renew"))
    }

    /// Returns one sentence about the changes that opening would make; `None` if it changes nothing, or if
    /// only a server can determine the changes.
    fn changes_on_open(&self) -> Option<&'static str> {
        None
    }
}

/// An open backend.
#[async_trait]
pub trait Connection: Send + Sync + 'static {
    /// Opens the stores of one namespace: the requested contracts that the backend provides.
    /// [`StoreSet::with_error`] records a contract that cannot be opened; the other contracts are not
    /// affected.
    ///
    /// # Cancellation
    /// Nothing stays open.
    async fn stores(&self, request: &StoresRequest) -> StoreSet;

    /// Returns the state of the connection pool; `None` if the backend has none.
    fn pool(&self) -> Option<Pool> {
        None
    }

    /// Returns true if the backend is closed, so that every further call fails.
    fn is_closed(&self) -> bool {
        false
    }

    /// Closes the backend and waits for it. Later calls of its stores fail with `Unavailable`, if the backend
    /// has anything to close.
    async fn close(self: Arc<Self>) {}
}

/// The stores to open, and their options.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoresRequest {
    /// The namespace.
    pub namespace: Namespace,
    /// The contracts to open; by default all of them.
    pub contracts: Vec<Contract>,
    /// The embedder with which the vector store embeds texts.
    pub embedder: Option<Arc<dyn Embedder>>,
}

impl StoresRequest {
    /// Requests all contracts of a namespace.
    #[must_use]
    pub fn new(namespace: Namespace) -> Self {
        Self { namespace, contracts: Contract::ALL.to_vec(), embedder: None }
    }

    /// Narrows the request to these contracts.
    #[must_use]
    pub fn with_contracts(mut self, contracts: Vec<Contract>) -> Self {
        self.contracts = contracts;
        self
    }

    /// Sets the embedder with which the vector store embeds texts.
    #[must_use]
    pub fn with_embedder(mut self, embedder: Option<Arc<dyn Embedder>>) -> Self {
        self.embedder = embedder;
        self
    }

    /// Returns true if the contract is requested.
    #[must_use]
    pub fn wants(&self, contract: Contract) -> bool {
        self.contracts.contains(&contract)
    }
}

/// The state of a connection pool. All stores of a backend share the pool, in every namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Pool {
    /// The number of open connections.
    pub open: u32,
    /// The number of connections in use; `None` if calls share them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_use: Option<u32>,
    /// The maximum number of connections; `None` if no setting limits it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// True if the backend is closed, so that every further call fails.
    pub closed: bool,
}

impl Pool {
    /// Creates the state of a pool with this many open connections and no known limit.
    #[must_use]
    pub fn new(open: u32) -> Self {
        Self { open, in_use: None, max: None, closed: false }
    }
}
