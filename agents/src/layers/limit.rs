//! The layer that limits concurrent calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use larder_kernel::check::size;
use larder_kernel::{Error, ErrorKind, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answer::Answer;
use super::middleware::{Call, Middleware, Opened};

/// Limits the number of concurrent calls. Further calls wait in a queue, in the order of arrival. If the
/// queue is full, a call fails with `ResourceExhausted` and changes nothing.
///
/// All stores that one layer wraps, and all clones of the layer, share the limit, as they share the server
/// behind it. The read of a blob and a listing count until their streams end or are dropped. A caller that
/// copies from one stream into another call therefore needs two slots. `subscribe` and `watch`, which stay
/// open for hours, count only while they open.
///
/// ```
/// use larder_agents::InMemoryKeyValueStore;
/// use larder_agents::layers::{ConcurrencyLimitLayer, Layer};
/// use larder_kernel::{BucketName, Key, KeyValueStoreExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let limit = ConcurrencyLimitLayer::new(16).with_queue_max(1_000);
/// let store = limit.key_value(std::sync::Arc::new(InMemoryKeyValueStore::new()));
/// store.set(&BucketName::new("state")?, &Key::new("cursor")?, "7".into()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct ConcurrencyLimitLayer {
    gate: Arc<Gate>,
}

#[derive(Debug)]
struct Gate {
    permits: Arc<Semaphore>,
    waiting: AtomicUsize,
    queue_max: usize,
}

/// The default length of the queue.
const QUEUE_MAX_DEFAULT: usize = 1_024;

impl ConcurrencyLimitLayer {
    /// Allows at most `calls_max` concurrent calls, at least 1, and 1,024 waiting calls.
    #[must_use]
    pub fn new(calls_max: usize) -> Self {
        let calls_max = calls_max.clamp(1, Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(calls_max));
        Self { gate: Arc::new(Gate { permits, waiting: AtomicUsize::new(0), queue_max: QUEUE_MAX_DEFAULT }) }
    }

    /// Sets the length of the queue. Clones made before this call keep their own limit.
    #[must_use]
    pub fn with_queue_max(self, queue_max: usize) -> Self {
        let permits = Arc::clone(&self.gate.permits);
        Self { gate: Arc::new(Gate { permits, waiting: AtomicUsize::new(0), queue_max }) }
    }
}

impl super::layer::MiddlewareLayer for ConcurrencyLimitLayer {
    type Hook = Limit;

    fn hook(&self) -> Limit {
        Limit { gate: Arc::clone(&self.gate) }
    }
}

#[derive(Debug)]
pub(super) struct Limit {
    gate: Arc<Gate>,
}

/// A slot in the queue, released on drop.
struct Place<'a>(&'a AtomicUsize);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Gate {
    async fn enter(&self, operation: &'static str) -> Result<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        let waiting = self.waiting.fetch_add(1, Ordering::AcqRel);
        let _place = Place(&self.waiting);
        if waiting >= self.queue_max {
            let message = "too many calls wait for the store; try again later or raise the limit";
            return Err(Error::new(ErrorKind::ResourceExhausted, operation, message)
                .with_limit(size(waiting) + 1, size(self.queue_max)));
        }
        Arc::clone(&self.permits).acquire_owned().await.map_err(|_| {
            Error::new(ErrorKind::Unexpected, operation, "the limit's semaphore is closed")
                .with_outcome(larder_kernel::Outcome::NotApplied)
        })
    }
}

impl Middleware for Limit {
    async fn around<'a, T: Answer>(
        &'a self,
        call: Call<'a>,
        mut attempt: impl FnMut() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> Result<T> {
        let _permit = self.gate.enter(call.operation).await?;
        attempt().await
    }

    async fn open<'a, T: Opened>(
        &'a self,
        call: Call<'a>,
        mut attempt: impl FnMut() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> Result<T> {
        let permit = self.gate.enter(call.operation).await?;
        let opened = attempt().await?;
        if call.live {
            return Ok(opened);
        }
        Ok(opened.with_stream(|mut items| {
            let mut permit = Some(permit);
            futures_util::stream::poll_fn(move |context| {
                let polled = items.poll_next_unpin(context);
                if matches!(polled, std::task::Poll::Ready(None | Some(Err(_)))) {
                    drop(permit.take());
                }
                polled
            })
            .boxed()
        }))
    }
}
