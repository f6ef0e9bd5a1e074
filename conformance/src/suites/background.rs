//! Work that runs concurrently with a case and ends with it.

use std::future::Future;

use tokio::task::JoinHandle;

use crate::case::CaseResult;

/// A task that is aborted when the case drops it, so that it writes nothing after the case's namespace is
/// erased.
pub(crate) struct BackgroundTask<T>(JoinHandle<T>);

impl<T: Send + 'static> BackgroundTask<T> {
    /// Starts the work.
    pub(crate) fn start(work: impl Future<Output = T> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }

    /// Returns `true` if the work has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.0.is_finished()
    }

    /// Waits for the work.
    pub(crate) async fn end(mut self) -> CaseResult<T> {
        Ok((&mut self.0).await?)
    }
}

impl<T> Drop for BackgroundTask<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
