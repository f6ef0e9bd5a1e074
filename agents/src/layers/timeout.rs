//! The layer that limits the time of a call.

use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use larder_kernel::{ErrorKind, Result};

use super::answer::Answer;
use super::middleware::{Call, Middleware, Opened};

/// Ends a call that exceeds its time limit with the error `Timeout`.
///
/// The outcome is `NotApplied` for a read and `Unknown` for a write, because the write was sent. For a
/// streamed blob body, the limit restarts with each piece that the store takes. A stream of stored data (a
/// blob, a listing) has the limit for each of its items. `subscribe` and `watch` wait for other writers, so
/// the limit applies only to opening them.
///
/// ```
/// use std::time::Duration;
/// use larder_agents::InMemoryHistoryProvider;
/// use larder_agents::layers::{Layer, TimeoutLayer};
/// use larder_kernel::{ChatMessage, HistoryProviderExt, Thread};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let history = TimeoutLayer::new(Duration::from_secs(5))
///     .history(std::sync::Arc::new(InMemoryHistoryProvider::new()));
/// history.append(&Thread::new("assistant", "session-1")?, ChatMessage::user("Hello")).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct TimeoutLayer {
    call_time_max: Duration,
}

impl TimeoutLayer {
    /// Limits each call to `call_time_max`.
    #[must_use]
    pub fn new(call_time_max: Duration) -> Self {
        Self { call_time_max }
    }
}

impl super::layer::MiddlewareLayer for TimeoutLayer {
    type Hook = Timeout;

    fn hook(&self) -> Timeout {
        Timeout { call_time_max: self.call_time_max }
    }
}

#[derive(Debug)]
pub(super) struct Timeout {
    call_time_max: Duration,
}

const LATE: &str = "the call exceeded the time limit of the timeout layer; raise the limit or check the \
                    backend";

impl Middleware for Timeout {
    async fn around<'a, T: Answer>(
        &'a self,
        call: Call<'a>,
        mut attempt: impl FnMut() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> Result<T> {
        let mut answer = attempt();
        let pieces = || call.taken.as_ref().map_or(0, |taken| taken.pieces());
        loop {
            let before = pieces();
            match tokio::time::timeout(self.call_time_max, &mut answer).await {
                Ok(result) => return result,
                Err(_) if pieces() > before => {}
                Err(_) => return Err(call.gone(ErrorKind::Timeout, LATE)),
            }
        }
    }

    async fn open<'a, T: Opened>(
        &'a self,
        call: Call<'a>,
        attempt: impl FnMut() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> Result<T> {
        let operation = call.operation;
        let live = call.live;
        let opened = self.around(call, attempt).await?;
        if live {
            return Ok(opened);
        }
        let limit = self.call_time_max;
        Ok(opened.with_stream(|items| timed(items, limit, operation)))
    }
}

/// Wraps a stream so that a late item ends it with `Timeout`.
fn timed<T: Send + 'static>(
    items: BoxStream<'static, Result<T>>,
    limit: Duration,
    operation: &'static str,
) -> BoxStream<'static, Result<T>> {
    stream::try_unfold(items, move |mut items| async move {
        match tokio::time::timeout(limit, items.try_next()).await {
            Ok(next) => Ok(next?.map(|item| (item, items))),
            Err(_) => Err(Call::read(operation).gone(ErrorKind::Timeout, LATE)),
        }
    })
    .boxed()
}
