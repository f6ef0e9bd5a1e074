//! Steps on the runtime's blocking pool, and their cancellation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use larder_kernel::{Error, ErrorKind, Outcome, Result};

/// The cancellation of a write whose future was dropped. A running step cannot be stopped. So it checks this
/// flag before its effect becomes visible, under the locks that the next write of the same key needs. A
/// cancelled write therefore never overwrites a write that was acknowledged later.
#[derive(Clone)]
pub(crate) struct CancelFlag(Arc<AtomicBool>);

/// Owned by the future; sets the flag when it is dropped.
pub(crate) struct CancelOnDrop(Arc<AtomicBool>);

/// Returns a guard for the future of a write, and the flag for its steps.
pub(crate) fn cancellation() -> (CancelOnDrop, CancelFlag) {
    let cancelled = Arc::new(AtomicBool::new(false));
    (CancelOnDrop(Arc::clone(&cancelled)), CancelFlag(cancelled))
}

impl CancelFlag {
    /// Ends a step whose future was dropped.
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        if !self.0.load(Ordering::SeqCst) {
            return Ok(());
        }
        let message = "the call was cancelled before it took effect; try again";
        Err(Error::new(ErrorKind::Unavailable, operation, message).with_outcome(Outcome::NotApplied))
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Removes a step from the queue when its future is dropped.
struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs a step on the runtime's blocking pool. A step that has begun runs to its end even if its future is
/// dropped.
pub(crate) async fn blocking<T: Send + 'static>(
    operation: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let step = tokio::task::spawn_blocking(work);
    let _queued = AbortOnDrop(step.abort_handle());
    match step.await {
        Ok(result) => result,
        Err(_) => Err(aborted(operation)),
    }
}

/// Returns the error of a step that panicked or that the runtime dropped.
pub(crate) fn aborted(operation: &'static str) -> Error {
    let message = "the operation did not complete; the runtime is shutting down, or the operation panicked";
    Error::new(ErrorKind::Unexpected, operation, message)
}
