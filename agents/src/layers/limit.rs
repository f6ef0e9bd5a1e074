//! The layer that bounds how many calls are under way.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use larder_kernel::check::size;
use larder_kernel::{Error, ErrorKind, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::answer::Answer;
use super::middleware::{Call, Middleware, Opened};

/// Lets so many calls through at once; the others queue, first come first served, and where the queue is full a call
/// ends with `ResourceExhausted` and has changed nothing.
///
/// Every store that one layer wraps, and every clone of the layer, shares the bound, as they share the server behind.
/// A blob being read and a listing count until their streams end or are dropped: whoever copies from one stream into
/// another call needs room for two. `subscribe` and `watch`, which stand for hours, count only while they open.
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

/// Calls that may wait when nothing else is said.
const QUEUE_MAX_DEFAULT: usize = 1_024;

impl ConcurrencyLimitLayer {
    /// At most so many calls at once, at least one, and 1,024 that wait.
    #[must_use]
    pub fn new(calls_max: usize) -> Self {
        let calls_max = calls_max.clamp(1, Semaphore::MAX_PERMITS);
        let permits = Arc::new(Semaphore::new(calls_max));
        Self { gate: Arc::new(Gate { permits, waiting: AtomicUsize::new(0), queue_max: QUEUE_MAX_DEFAULT }) }
    }

    /// How many calls may wait. Clones made before keep a bound of their own.
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

/// A place in the queue, given back however the waiting ends.
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
            let message = "too many calls wait for the store already";
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
