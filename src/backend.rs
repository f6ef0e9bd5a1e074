//! An open backend.

use std::fmt;
use std::sync::Arc;

use larder_capabilities::driver::{Connection, Pool, StoresRequest};
use larder_kernel::{Contract, Namespace, Result};

use crate::registry::Registry;
use crate::stores::Stores;

/// An open backend, from which stores in any number of namespaces can be taken. Clones share it.
///
/// ```
/// use larder::prelude::*;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder::Result<()> {
/// let backend = Backend::open("memory:").await?;
/// let tenant = backend.stores(&Namespace::new("tenant-1")?).await;
/// let history = tenant.history()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Backend {
    name: &'static str,
    contracts: &'static [Contract],
    connection: Arc<dyn Connection>,
}

impl Backend {
    pub(crate) fn new(
        name: &'static str,
        contracts: &'static [Contract],
        connection: Arc<dyn Connection>,
    ) -> Self {
        Self { name, contracts, connection }
    }

    /// Opens the backend behind a URL, with the drivers of this build.
    ///
    /// # Errors
    /// As [`open`](crate::open).
    pub async fn open(url: &str) -> Result<Self> {
        Registry::default().backend(url).await
    }

    /// Returns the driver's name: `memory`, `sqlite`, `file`, `postgres`, `age`, `redis`, `s3`, or that of your own driver.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the contracts that the backend provides.
    #[must_use]
    pub fn contracts(&self) -> &'static [Contract] {
        self.contracts
    }

    /// Opens every store of one namespace. A contract that cannot be opened fails at its accessor.
    pub async fn stores(&self, namespace: &Namespace) -> Stores {
        self.stores_for(StoresRequest::new(namespace.clone())).await
    }

    /// Opens the stores that a request names, with its embedder.
    pub async fn stores_for(&self, request: StoresRequest) -> Stores {
        // Boxed, since opening pgvector or a folder makes a large future.
        let set = Box::pin(self.connection.stores(&request)).await;
        Stores::of(request.namespace, set, self.clone())
    }

    /// Returns the state of the connection pool; `None` if the backend has none.
    #[must_use]
    pub fn pool(&self) -> Option<Pool> {
        self.connection.pool()
    }

    /// Returns whether the backend was closed, so that no call of its stores can succeed any more.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Closes the backend. SQLite waits until every clone and every store taken from it is dropped.
    pub async fn close(self) {
        self.connection.close().await;
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("name", &self.name).finish_non_exhaustive()
    }
}
