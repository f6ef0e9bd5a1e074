//! Subscriptions: the log of a thread, read in pages and again after each notification.
//!
//! A notification costs the writer time, so appends notify only in threads that are marked as watched. A
//! subscription marks its thread with a lease and renews the lease before it expires. After a subscription is
//! dropped, its lease expires.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt;
use larder_kernel::{Error, HistoryEvent, HistoryEvents, Result, Seq};
use tokio::sync::watch;

pub(crate) const OPERATION: &str = "history.subscribe";
/// The time for which appends to a thread notify after the last mark.
pub(crate) const LEASE: Duration = Duration::from_secs(300);
/// The time for which a reader waits for a notification before it polls.
pub(crate) const POLL: Duration = Duration::from_secs(1);
/// The age of the last look at all subscriptions after which a reader polls. It is longer than a look may
/// take: if a slow look made all readers poll, they would make the next one slower still.
const LOOK_AGE_MAX: Duration = Duration::from_secs(60);

/// The time at which a backend last looked at all of its subscriptions together. Its readers do not poll as
/// long as it does so.
#[derive(Clone, Default)]
pub(crate) struct Looks(Arc<Mutex<Option<Instant>>>);

impl Looks {
    /// Notes that a look began or ended.
    #[cfg(feature = "postgres")]
    pub(crate) fn mark(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Notes that no look follows, so that readers poll again.
    #[cfg(feature = "postgres")]
    pub(crate) fn end(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn are_recent(&self) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.is_some_and(|at| at.elapsed() < LOOK_AGE_MAX)
    }
}

/// The reader's end of the notifications.
pub(crate) struct Subscriber {
    notified: watch::Receiver<()>,
    looks: Option<Looks>,
}

impl Subscriber {
    pub(crate) fn new(notified: watch::Receiver<()>) -> Self {
        Self { notified, looks: None }
    }

    /// Waits for a notification alone while the backend looks at all subscriptions.
    #[cfg(feature = "postgres")]
    pub(crate) fn with_looks(self, looks: Looks) -> Self {
        Self { looks: Some(looks), ..self }
    }

    /// Marks all notifications so far as seen. The caller does this before it reads the log, so that it
    /// misses no change.
    pub(crate) fn mark_seen(&mut self) {
        self.notified.mark_unchanged();
    }

    /// Waits for a notification or until the next poll is due.
    pub(crate) async fn wait(&mut self) {
        loop {
            match tokio::time::timeout(POLL, self.notified.changed()).await {
                Ok(Ok(())) => return,
                Ok(Err(_)) => return tokio::time::sleep(POLL).await,
                Err(_) if self.looks.as_ref().is_some_and(Looks::are_recent) => {}
                Err(_) => return,
            }
        }
    }
}

/// The log of one thread.
#[async_trait]
pub(crate) trait EventLog: Send + Sync + 'static {
    /// Returns the next events after `after`, in order.
    async fn page(&self, after: Seq) -> Result<VecDeque<HistoryEvent>>;

    /// Makes appends notify for the duration of the lease. Returns false if the mark cannot be stored, as in
    /// a thread that does not exist yet. The first append of a new thread always notifies, and the poll finds
    /// the rest.
    async fn watch(&self, lease: Duration) -> Result<bool>;

    /// Returns the greatest number assigned so far.
    async fn last(&self) -> Result<Seq>;
}

struct Subscription<L> {
    log: L,
    /// The last number seen.
    after: Seq,
    /// True if that number belongs to a delivered event, so that the thread must have reached it.
    delivered: bool,
    subscriber: Subscriber,
    /// When the thread was last marked as watched.
    watched: Option<Instant>,
    page: VecDeque<HistoryEvent>,
    ended: bool,
}

/// Returns the events after a `Seq`, and then the events to come.
pub(crate) fn follow(log: impl EventLog, subscriber: Subscriber, after: Seq) -> HistoryEvents {
    let page = VecDeque::new();
    let subscription =
        Subscription { log, after, delivered: false, subscriber, watched: None, page, ended: false };
    futures_util::stream::unfold(subscription, |mut subscription| async move {
        let event = subscription.next().await?;
        subscription.ended = event.is_err();
        Some((event, subscription))
    })
    .boxed()
}

impl<L: EventLog> Subscription<L> {
    async fn next(&mut self) -> Option<Result<HistoryEvent>> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(event) = self.page.pop_front() {
                return Some(Ok(event));
            }
            if let Err(error) = self.read().await {
                return Some(Err(error));
            }
        }
    }

    /// Reads the next page. If it is empty, waits.
    async fn read(&mut self) -> Result<()> {
        self.subscriber.mark_seen();
        self.page = self.log.page(self.after).await?;
        if let Some(last) = self.page.back() {
            (self.after, self.delivered) = (last.seq, true);
            return Ok(());
        }
        if self.renew_watch().await? {
            // Appends before the mark did not notify.
            return Ok(());
        }
        // Only an erasure takes a thread back to before a delivered event.
        if self.delivered && self.log.last().await? < self.after {
            return Err(Error::erased(OPERATION));
        }
        self.subscriber.wait().await;
        Ok(())
    }

    /// Marks the thread as watched if that is due. Returns false if it is not due or cannot be stored.
    async fn renew_watch(&mut self) -> Result<bool> {
        if self.watched.is_some_and(|since| since.elapsed() < LEASE / 2) {
            return Ok(false);
        }
        let marked = Instant::now();
        let stored = self.log.watch(LEASE).await?;
        self.watched = stored.then_some(marked);
        Ok(stored)
    }
}
