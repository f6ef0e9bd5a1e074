//! Verification of stored data, without opening the stores.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> larder::Result<()> {
//! let verified = larder::Registry::default().verify("memory:").await?;
//! assert!(verified.faults.is_empty());
//! # Ok(())
//! # }
//! ```

pub use larder_capabilities::verify::{Fault, FaultKind, Faults, Repaired, Verified};
use larder_kernel::{Error, ErrorKind, Result};

use crate::registry::Registry;

impl Registry {
    /// Reads all data behind a URL, in every namespace and in one consistent state, and returns what is
    /// damaged. It changes nothing. Writers may run at the same time.
    ///
    /// # Errors
    /// `Unsupported` if the backend has no verification; the error names the backend. Otherwise as
    /// [`open`](crate::open).
    pub async fn verify(&self, url: &str) -> Result<Verified> {
        let (target, faults) = (self.read(url)?, Faults::default());
        Box::pin(target.location.verify(&faults)).await.map_err(|error| named(error, target.name))?;
        Ok(faults.take())
    }

    /// Draws a new generation for every thread, bucket and board behind a URL, in every namespace, and
    /// returns their number. Call it after a restore: every `Seq`, `Revision` and token from before is then
    /// `Conflict`.
    ///
    /// # Errors
    /// `Unsupported` if the backend stores no generations; the error names the backend. Otherwise as
    /// [`open`](crate::open).
    pub async fn renew_generations(&self, url: &str) -> Result<u64> {
        let target = self.read(url)?;
        Box::pin(target.location.renew_generations()).await.map_err(|error| named(error, target.name))
    }

    /// Copies the data behind a URL, then repairs what follows from other data, such as counters and indexes.
    /// It removes no record.
    ///
    /// # Errors
    /// `Conflict` if another process has the backend open; `Unsupported` if the backend has no repair.
    /// Otherwise as [`open`](crate::open).
    pub async fn repair(&self, url: &str) -> Result<Repaired> {
        let target = self.read(url)?;
        Box::pin(target.location.repair()).await.map_err(|error| named(error, target.name))
    }
}

/// Adds the name of the backend to the error of one that cannot do this.
fn named(error: Error, backend: &str) -> Error {
    if error.kind() != ErrorKind::Unsupported || error.field().is_some() {
        return error;
    }
    Error::new(error.kind(), error.operation(), format!("{}: {}", backend, error.message()))
}
