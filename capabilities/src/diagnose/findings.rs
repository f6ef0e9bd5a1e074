//! The checks of a diagnosis while it goes on.

use std::sync::{Arc, Mutex, PoisonError};

use super::Check;

/// What was found so far. Clones share it, so that what was found is told even if the rest takes too long.
#[derive(Debug, Clone, Default)]
pub struct Findings(Arc<Mutex<Vec<Check>>>);

impl Findings {
    /// Adds a check.
    pub fn add(&self, check: Check) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(check);
    }

    /// Takes all checks, in the order in which they were added.
    #[must_use]
    pub fn take(&self) -> Vec<Check> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
