//! Keeping long work off the async runtime.

use std::sync::{RwLock, TryLockError};

use larder_kernel::{Error, ErrorKind, Outcome, Result};

/// How many steps it takes to wait for a lock: nobody knows for how long others hold it.
pub(crate) const WAIT_STEPS: usize = usize::MAX;

/// Steps (a multiplication, a visited edge, a byte encoded) up to which work stays on the caller's thread: well under a millisecond,
/// about what the hop to another thread is worth.
const INLINE_STEPS_MAX: usize = 256 * 1024;

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Whether who reads under `lock` waits for a writer.
pub(crate) fn readers_wait<T>(lock: &RwLock<T>) -> bool {
    matches!(lock.try_read(), Err(TryLockError::WouldBlock))
}

/// Whether who writes under `lock` waits for anybody.
pub(crate) fn writers_wait<T>(lock: &RwLock<T>) -> bool {
    matches!(lock.try_write(), Err(TryLockError::WouldBlock))
}

/// Whether work of so many steps has a thread of its own.
pub(crate) fn is_long(steps: usize) -> bool {
    steps > INLINE_STEPS_MAX
}

/// Runs `work` of about `steps` steps: at once where it is short, else on a thread that may block.
///
/// Without a Tokio runtime there is nothing to keep free, and the work runs at once. Once begun it runs to its end,
/// also when the future is dropped, so a write done in it is never seen in part; work still waiting for a thread goes
/// with the future.
///
/// # Errors
/// Those of the work; `Unavailable` where the runtime shuts down before the work began, `Unexpected` where it panics.
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
        // Only a runtime that shuts down cancels the work, and then before it began.
        Err(error) if error.is_cancelled() => {
            Err(Error::new(ErrorKind::Unavailable, operation, "the async runtime is shutting down")
                .with_outcome(Outcome::NotApplied))
        }
        Err(_) => Err(Error::new(ErrorKind::Unexpected, operation, "the work ended in a panic")),
    }
}
