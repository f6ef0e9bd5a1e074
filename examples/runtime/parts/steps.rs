//! The points at which a run can be interrupted.

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Counts the steps of a run, and optionally blocks the run forever at one of them.
///
/// Dropping a blocked run has the same effect on it as the death of its process.
#[derive(Debug)]
pub(crate) struct Steps {
    made: AtomicU64,
    until: Option<u64>,
    stopped: Notify,
}

impl Steps {
    /// Runs to the end.
    pub(crate) fn all() -> Self {
        Self { made: AtomicU64::new(0), until: None, stopped: Notify::new() }
    }

    /// Runs to the step of this number; the first step is 1.
    pub(crate) fn until(step: u64) -> Self {
        Self { until: Some(step), ..Self::all() }
    }

    /// Returns the number of steps so far.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Marks a point before or after a write to a store.
    pub(super) async fn pass(&self) {
        let made = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        if self.until.is_some_and(|until| made >= until) {
            self.stopped.notify_one();
            pending::<()>().await;
        }
    }

    /// Completes when the run blocks.
    pub(super) async fn stopped(&self) {
        self.stopped.notified().await;
    }
}
