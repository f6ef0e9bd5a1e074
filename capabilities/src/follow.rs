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
    pub(crate) fn mark(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Notes that no look follows, so that readers poll again.
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

    /// Explains the refusal of a position. A server that lags may still receive one that `may_follow`.
    async fn refusal(&self, error: Error, _may_follow: bool) -> Error {
        error
    }

    /// Returns the last position; 0 if the thread does not exist.
    async fn last(&self) -> Result<Seq>;
}

struct Subscription<L> {
    log: L,
    /// The last position seen. The thread must have it.
    after: Seq,
    subscriber: Subscriber,
    /// When the thread was last marked as watched.
    watched: Option<Instant>,
    page: VecDeque<HistoryEvent>,
    ended: bool,
}

/// Returns the events after a `Seq`, and then the events to come.
pub(crate) fn follow(log: impl EventLog, subscriber: Subscriber, after: Seq) -> HistoryEvents {
    let page = VecDeque::new();
    let subscription = Subscription { log, after, subscriber, watched: None, page, ended: false };
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
        let page = self.log.page(self.after).await?;
        if let Some(last) = page.back() {
            if !self.after.is_of(last.seq.generation()) {
                return Err(Error::erased(OPERATION));
            }
            self.after = last.seq;
            self.page = page;
            return Ok(());
        }
        if self.renew_watch().await? {
            // Appends before the mark did not notify.
            return Ok(());
        }
        // Only an erasure, a loss or a restore takes a position from a thread.
        if self.after.generation().is_some() || self.after > Seq::ZERO {
            let last = self.log.last().await?;
            if !self.after.is_within(last) {
                return Err(self.log.refusal(Error::erased(OPERATION), self.after.may_follow(last)).await);
            }
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
