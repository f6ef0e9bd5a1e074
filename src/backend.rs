//! An open backend.

use std::fmt;
use std::sync::Arc;

use larder_capabilities::driver::{Connection, Pool};
use larder_kernel::Contract;

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
    pub(crate) connection: Arc<dyn Connection>,
}

impl Backend {
    pub(crate) fn new(
        name: &'static str,
        contracts: &'static [Contract],
        connection: Arc<dyn Connection>,
    ) -> Self {
        Self { name, contracts, connection }
    }

    /// Returns the driver's name: `memory`, `sqlite`, `file`, `postgres`, `age`, `redis`, `s3`, or that of
    /// your own driver.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the contracts that the backend provides.
    #[must_use]
    pub fn contracts(&self) -> &'static [Contract] {
        self.contracts
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

    /// Closes the backend and waits for it: connections to a server end, and SQLite moves its write-ahead log
    /// into the file, so that a copy of the file is complete. Later calls of its stores fail with
    /// `Unavailable`.
    ///
    /// A program that drops the last handle instead waits at most 250 ms for SQLite.
    pub async fn close(self) {
        self.connection.close().await;
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend").field("name", &self.name).finish_non_exhaustive()
    }
}
