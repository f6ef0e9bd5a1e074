//! The checks of a diagnosis while it goes on.

use std::sync::{Arc, Mutex, PoisonError};

use super::Check;

/// What was found so far. Clones share it, so that what was found is told even if the rest takes too long.
#[derive(Debug, Clone, Default)]
pub(crate) struct Findings(Arc<Mutex<Vec<Check>>>);

impl Findings {
    pub(crate) fn add(&self, check: Check) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(check);
    }

    /// Everything that was found.
    pub(crate) fn take(&self) -> Vec<Check> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
