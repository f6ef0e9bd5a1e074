//! Subscriptions: the log of a thread, read in pages and again after each announcement.
//!
//! Announcing costs a writer, so appends announce only in threads that say that somebody follows them. A subscription has
//! its thread say so for a while, and again before that ends; one that goes away need not take it back.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use futures_util::StreamExt;
use larder_kernel::{Error, HistoryEvent, HistoryEvents, Result, Seq};
use tokio::sync::watch;

pub(crate) const OPERATION: &str = "history.subscribe";
/// How long a thread announces after it was last told that somebody follows it.
const LEASE: Duration = Duration::from_secs(300);
/// How long a reader waits for an announcement before it looks by itself.
pub(crate) const POLL: Duration = Duration::from_secs(1);

/// One reader's bell.
pub(crate) struct Bell {
    rung: watch::Receiver<()>,
}

impl Bell {
    pub(crate) fn new(rung: watch::Receiver<()>) -> Self {
        Self { rung }
    }

    /// Marks everything so far as heard. Called before the log is read, so that no change is slept over.
    pub(crate) fn hush(&mut self) {
        self.rung.mark_unchanged();
    }

    /// Waits for the bell, or until it is time to look all the same.
    pub(crate) async fn wait(&mut self) {
        if let Ok(Err(_)) = tokio::time::timeout(POLL, self.rung.changed()).await {
            tokio::time::sleep(POLL).await;
        }
    }
}

/// The log of one thread.
#[async_trait]
pub(crate) trait Log: Send + Sync + 'static {
    /// The next events after `after`, in order.
    async fn page(&self, after: Seq) -> Result<VecDeque<HistoryEvent>>;

    /// Has appends announced for so long. False where that cannot be noted, as in a thread that is not there yet: its first
    /// append is announced in any case, and what is not announced is found by looking.
    async fn watch(&self, lease: Duration) -> Result<bool>;

    /// The greatest number given.
    async fn last(&self) -> Result<Seq>;
}

struct Subscription<L> {
    log: L,
    /// The last number seen.
    after: Seq,
    /// Whether that number is one of an event that was told, so that the thread must have come that far.
    told: bool,
    bell: Bell,
    /// When the thread was last told that somebody follows it.
    watched: Option<Instant>,
    page: VecDeque<HistoryEvent>,
    ended: bool,
}

/// The events after a `Seq`, and then those to come.
pub(crate) fn follow(log: impl Log, bell: Bell, after: Seq) -> HistoryEvents {
    let page = VecDeque::new();
    let subscription = Subscription { log, after, told: false, bell, watched: None, page, ended: false };
    futures_util::stream::unfold(subscription, |mut subscription| async move {
        let event = subscription.next().await?;
        subscription.ended = event.is_err();
        Some((event, subscription))
    })
    .boxed()
}

impl<L: Log> Subscription<L> {
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

    /// Reads the next page. Waits where there is none.
    async fn read(&mut self) -> Result<()> {
        self.bell.hush();
        self.page = self.log.page(self.after).await?;
        if let Some(last) = self.page.back() {
            (self.after, self.told) = (last.seq, true);
            return Ok(());
        }
        if self.watches_anew().await? {
            // What was appended before it did is not announced.
            return Ok(());
        }
        // A thread that stands behind what was told of it was erased; nothing else takes it there.
        if self.told && self.log.last().await? < self.after {
            return Err(Error::erased(OPERATION));
        }
        self.bell.wait().await;
        Ok(())
    }

    /// Has appends announced, if that is due. False where it is not, or cannot be.
    async fn watches_anew(&mut self) -> Result<bool> {
        if self.watched.is_some_and(|since| since.elapsed() < LEASE / 2) {
            return Ok(false);
        }
        let asked = Instant::now();
        let noted = self.log.watch(LEASE).await?;
        self.watched = noted.then_some(asked);
        Ok(noted)
    }
}
