//! Execution of long work outside the async runtime.

use std::sync::{RwLock, TryLockError};

use larder_kernel::{Error, ErrorKind, Outcome, Result};

/// The cost of waiting for a lock, in steps. It is unbounded, because the holder's time is unknown.
pub(crate) const WAIT_STEPS: usize = usize::MAX;

/// The largest number of steps (a multiplication, a visited edge, an encoded byte) that runs on the caller's
/// thread. It takes well under 1 ms, about as long as moving to another thread.
const INLINE_STEPS_MAX: usize = 256 * 1024;

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns `true` if a reader of `lock` has to wait for a writer.
pub(crate) fn readers_wait<T>(lock: &RwLock<T>) -> bool {
    matches!(lock.try_read(), Err(TryLockError::WouldBlock))
}

/// Returns `true` if a writer of `lock` has to wait.
pub(crate) fn writers_wait<T>(lock: &RwLock<T>) -> bool {
    matches!(lock.try_write(), Err(TryLockError::WouldBlock))
}

/// Returns `true` if work of this many steps runs on another thread.
pub(crate) fn is_long(steps: usize) -> bool {
    steps > INLINE_STEPS_MAX
}

/// Runs `work` of about `steps` steps. Short work runs immediately, long work on a thread that may block.
///
/// Without a Tokio runtime the work runs immediately. Work that has begun runs to its end even if the future
/// is dropped, so a write is never seen in part. Work that still waits for a thread is dropped with the
/// future.
///
/// # Errors
/// The errors of the work. `Unavailable` if the runtime shuts down before the work begins, and `Unexpected`
/// if the work panics.
#[doc(hidden)]
pub async fn run<T, W>(operation: &'static str, steps: usize, work: W) -> Result<T>
where
    T: Send + 'static,
    W: FnOnce() -> Result<T> + Send + 'static,
{
    if !is_long(steps) || tokio::runtime::Handle::try_current().is_err() {
        return work();
    }
    let task = tokio::task::spawn_blocking(work);
    let _guard = AbortOnDrop(task.abort_handle());
    match task.await {
        Ok(answer) => answer,
        // Only a runtime that shuts down cancels the work, and only before it began.
        Err(error) if error.is_cancelled() => {
            Err(Error::new(ErrorKind::Unavailable, operation, "the async runtime is shutting down")
                .with_outcome(Outcome::NotApplied))
        }
        Err(_) => Err(Error::new(ErrorKind::Unexpected, operation, "the call panicked; report the defect")),
    }
}
