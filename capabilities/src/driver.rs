//! What a backend implements so that a URL opens it.
//!
//! A [`Driver`] names the URLs of one kind of backend. It reads a URL into a [`Location`], without I/O; the location opens a
//! [`Connection`], or is diagnosed without being opened; the connection returns the stores of any number of namespaces.
//! The registry of the crate `larder` holds the drivers of a program, those of this crate and your own.

mod path;
mod url;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{Contract, Embedder, Namespace, Result, StoreSet};
use serde::Serialize;

use crate::diagnose::Findings;
#[cfg(any(feature = "postgres", feature = "redis", feature = "s3"))]
pub(crate) use url::OPERATION;
pub use url::{BackendUrl, invalid_url};

/// One kind of backend: its URLs, and how they are opened.
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

    /// Returns the schemes of its URLs, in lower case and without the colon. A scheme of one letter would be read as the
    /// drive of a path elsewhere; use two or more.
    fn schemes(&self) -> &'static [&'static str];

    /// Returns the contracts that it provides.
    fn contracts(&self) -> &'static [Contract];

    /// Returns the query parameters that its URLs take. The registry refuses all others before [`read`](Self::read) is called.
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
    /// `InvalidInput` naming `url` ([`invalid_url`]) for a URL that is malformed or has a value out of range. The message
    /// never repeats the URL, which may hold a secret.
    fn read(&self, url: &BackendUrl<'_>) -> Result<Box<dyn Location>>;
}

/// How far the data behind one URL is shared.
///
/// With [`Process`](Self::Process) and [`Machine`](Self::Machine) the URL after its scheme is a path, so that a test can put
/// a path of its own there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sharing {
    /// Each opening is a backend of its own, which ends with it.
    Opening,
    /// All openings in one process share it. Another process cannot open it until they are closed.
    Process,
    /// All processes of one machine share it.
    Machine,
    /// All machines that reach the server share it.
    Network,
}

/// What one URL names: read and checked, not opened.
#[async_trait]
pub trait Location: Send + Sync {
    /// Opens it, for all namespaces at once.
    ///
    /// # Errors
    /// The backend's own.
    ///
    /// # Cancellation
    /// Nothing stays open.
    async fn open(self: Box<Self>) -> Result<Arc<dyn Connection>>;

    /// Adds what is found at the location, without opening it and without a change that stays.
    async fn diagnose(&self, findings: &Findings);

    /// Returns what opening would change, in a sentence; `None` if it changes nothing or only a server can tell.
    fn changes_on_open(&self) -> Option<&'static str> {
        None
    }
}

/// An open backend.
#[async_trait]
pub trait Connection: Send + Sync + 'static {
    /// Opens the stores of one namespace: those of the requested contracts that the backend provides. A contract that
    /// cannot be opened is recorded by [`StoreSet::with_error`] and does not fail the others.
    ///
    /// # Cancellation
    /// Nothing stays open.
    async fn stores(&self, request: &StoresRequest) -> StoreSet;

    /// Returns the state of its connection pool; `None` if it has none.
    fn pool(&self) -> Option<Pool> {
        None
    }

    /// Returns whether it was closed for good, so that no call can succeed any more.
    fn is_closed(&self) -> bool {
        false
    }

    /// Closes it. A backend whose stores share files waits until every clone and store is dropped.
    async fn close(self: Arc<Self>) {}
}

/// Which stores to open, and how.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StoresRequest {
    /// The namespace.
    pub namespace: Namespace,
    /// The contracts to open; all of them unless narrowed.
    pub contracts: Vec<Contract>,
    /// Lets the vector store embed texts itself.
    pub embedder: Option<Arc<dyn Embedder>>,
}

impl StoresRequest {
    /// Asks for all contracts of a namespace.
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

    /// Lets the vector store embed texts itself.
    #[must_use]
    pub fn with_embedder(mut self, embedder: Option<Arc<dyn Embedder>>) -> Self {
        self.embedder = embedder;
        self
    }

    /// Returns whether the contract is asked for.
    #[must_use]
    pub fn wants(&self, contract: Contract) -> bool {
        self.contracts.contains(&contract)
    }
}

/// The state of a connection pool. All stores of a backend share it, in every namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Pool {
    /// The number of open connections.
    pub open: u32,
    /// The number of connections in use; `None` if calls share them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_use: Option<u32>,
    /// The largest number of connections; `None` if no setting bounds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Whether the backend was closed, so that no call can succeed any more.
    pub closed: bool,
}

impl Pool {
    /// A pool with so many open connections, and no known limit.
    #[must_use]
    pub fn new(open: u32) -> Self {
        Self { open, in_use: None, max: None, closed: false }
    }
}
