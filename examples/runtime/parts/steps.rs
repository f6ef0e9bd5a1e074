//! The points at which a run can be cut off.

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

/// Counts the steps of a run and, where it is told to, lets it stand still at one of them for good.
///
/// A run that stands still is dropped, which is to it what the death of its process is.
#[derive(Debug)]
pub(crate) struct Steps {
    made: AtomicU64,
    until: Option<u64>,
    stopped: Notify,
}

impl Steps {
    /// To the end.
    pub(crate) fn all() -> Self {
        Self { made: AtomicU64::new(0), until: None, stopped: Notify::new() }
    }

    /// To the step of this number, the first being 1.
    pub(crate) fn until(step: u64) -> Self {
        Self { until: Some(step), ..Self::all() }
    }

    /// How many steps were made.
    pub(crate) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Stands before or after something that is stored.
    pub(super) async fn pass(&self) {
        let made = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        if self.until.is_some_and(|until| made >= until) {
            self.stopped.notify_one();
            pending::<()>().await;
        }
    }

    /// Ready when the run stands still.
    pub(super) async fn stopped(&self) {
        self.stopped.notified().await;
    }
}
