//! The checks of a running diagnosis.

use std::sync::{Arc, Mutex, PoisonError};

use super::Check;

/// The checks so far. Clones share them, so that these checks are reported even if the rest takes too long.
#[derive(Debug, Clone, Default)]
pub struct Findings(Arc<Mutex<Vec<Check>>>);

impl Findings {
    /// Adds a check.
    pub fn add(&self, check: Check) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(check);
    }

    /// Takes all checks, in the order of their addition.
    #[must_use]
    pub fn take(&self) -> Vec<Check> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
