//! Data that cannot be read, and that an archive leaves out and lists.

use std::error::Error as _;
use std::sync::{Arc, Mutex, PoisonError};

use larder_kernel::{Contract, Error, ErrorKind, Result};
use serde::{Deserialize, Serialize};

use crate::internal::DamagedBlob;

/// Data that a dump could not read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Missing {
    /// The contract of the data.
    pub contract: Contract,
    /// The name of the data. It contains stored ids.
    pub place: String,
    /// The reason.
    pub reason: String,
}

/// The treatment of damaged data by a scan: it ends the scan, or is collected and skipped.
#[derive(Debug, Clone, Default)]
pub(crate) struct Skips(Option<Arc<Mutex<Vec<Missing>>>>);

impl Skips {
    /// Collects damaged data.
    pub(crate) fn collecting() -> Self {
        Self(Some(Arc::default()))
    }

    /// Returns true if the error is about damaged data, and such data is skipped.
    pub(crate) fn covers(&self, error: &Error) -> bool {
        self.0.is_some() && error.kind() == ErrorKind::Corrupt
    }

    /// Adds the damaged data, or returns the error if it is not skipped.
    pub(crate) fn skip(
        &self,
        contract: Contract,
        place: impl FnOnce() -> String,
        error: Error,
    ) -> Result<()> {
        match &self.0 {
            Some(missing) if self.covers(&error) => {
                let (place, reason) = (place(), error.message().to_owned());
                let missing = &mut missing.lock().unwrap_or_else(PoisonError::into_inner);
                missing.push(Missing { contract, place, reason });
                Ok(())
            }
            _ => Err(error),
        }
    }

    pub(crate) fn is_collecting(&self) -> bool {
        self.0.is_some()
    }

    /// Returns the data that was skipped.
    pub(crate) fn listed(&self) -> Vec<Missing> {
        let listed =
            self.0.as_ref().map(|missing| missing.lock().unwrap_or_else(PoisonError::into_inner).clone());
        listed.unwrap_or_default()
    }
}

/// Returns the key of a damaged blob in a listing, if the store says it.
pub(crate) fn damaged_key(error: &Error) -> Option<&str> {
    error.source()?.downcast_ref::<DamagedBlob>().map(|blob| blob.0.as_str())
}
