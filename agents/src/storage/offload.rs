//! Keeping long work off the async runtime.

use larder_kernel::{Error, ErrorKind, Outcome, Result};

/// Steps (a multiplication, a visited edge) up to which work stays on the caller's thread: well under a millisecond,
/// about what the hop to another thread is worth.
const INLINE_STEPS_MAX: usize = 256 * 1024;

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs `work` of about `steps` steps: at once where it is short, else on a thread that may block.
///
/// Without a Tokio runtime there is nothing to keep free, and the work runs at once. Once begun it runs to its end,
/// also when the future is dropped, so a write done in it is never seen in part; work still waiting for a thread goes
/// with the future.
pub(crate) async fn run<T, W>(operation: &'static str, steps: usize, work: W) -> Result<T>
where
    T: Send + 'static,
    W: FnOnce() -> Result<T> + Send + 'static,
{
    if steps <= INLINE_STEPS_MAX || tokio::runtime::Handle::try_current().is_err() {
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
