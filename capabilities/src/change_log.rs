//! Watches: the changes of a bucket, read in pages and again after each notification.

use std::collections::VecDeque;

use async_trait::async_trait;
use futures_util::StreamExt;
use larder_kernel::{Error, ErrorKind, KeyValueEvent, KeyValueEvents, Result, Revision};

pub(crate) const OPERATION: &str = "key_value.watch";
/// The maximum number of changes in one page.
pub(crate) const PAGE_CHANGES_MAX: usize = 256;
/// A page ends when its values reach this size.
pub(crate) const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The changes of one bucket whose keys have a prefix.
#[async_trait]
pub(crate) trait ChangeLog: Send + 'static {
    /// Returns the next changes after a revision, and the bucket's counters at the same instant.
    async fn page(&self, after: u64) -> Result<ChangePage>;

    /// Explains the refusal of a revision. A server that lags may still receive one that `may_follow`.
    async fn refusal(&mut self, error: Error, _may_follow: bool) -> Error {
        error
    }

    /// Marks all notifications so far as seen. The caller does this before it reads a page, so that it misses
    /// no change.
    fn mark_seen(&mut self);

    /// Waits for a notification or until the next poll is due. Fails if the database is closed.
    async fn wait(&mut self) -> Result<()>;
}

/// One page of changes of a bucket. All fields are zero or empty if the bucket does not exist.
#[derive(Default)]
pub(crate) struct ChangePage {
    /// The last revision of the bucket.
    pub(crate) last: Revision,
    /// The greatest revision among changes that the bucket no longer stores.
    pub(crate) forgotten: u64,
    /// The revision up to which the bucket was read. Ignored if `last` is not after the requested revision.
    pub(crate) cursor: u64,
    pub(crate) events: VecDeque<KeyValueEvent>,
    /// True if another page may follow immediately.
    pub(crate) more: bool,
}

struct Watch<L> {
    log: L,
    /// The revision up to which the bucket was read. The bucket must have assigned it.
    after: Revision,
    /// True if the watch began at revision 0 and has delivered nothing yet. It has then delivered no key that
    /// could be deleted, and needs no forgotten change.
    fresh: bool,
    /// The greatest forgotten revision that the watch may miss: the changes forgotten before its first
    /// delivery.
    excused: u64,
    events: VecDeque<KeyValueEvent>,
    more: bool,
    ended: bool,
}

/// Returns the changes after a revision, and then the changes to come. Reads the first page, so that a
/// revision that is too old fails here.
pub(crate) async fn follow(log: impl ChangeLog, after: Revision) -> Result<KeyValueEvents> {
    let fresh = after == Revision::ZERO && after.generation().is_none();
    let events = VecDeque::new();
    let mut watch = Watch { log, after, fresh, excused: 0, events, more: true, ended: false };
    watch.begin().await?;
    let events = futures_util::stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        watch.ended = event.is_err();
        Some((event, watch))
    });
    Ok(events.boxed())
}

impl<L: ChangeLog> Watch<L> {
    async fn next(&mut self) -> Option<Result<KeyValueEvent>> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(event) = self.events.pop_front() {
                return Some(Ok(event));
            }
            if let Err(error) = self.wait_and_advance().await {
                return Some(Err(error));
            }
        }
    }

    async fn wait_and_advance(&mut self) -> Result<()> {
        if !self.more {
            self.log.wait().await?;
        }
        self.advance().await
    }

    /// Reads the first page. Refuses a revision that the bucket has not assigned.
    async fn begin(&mut self) -> Result<()> {
        self.log.mark_seen();
        let page = self.log.page(self.after.get()).await?;
        if let Err(error) = self.after.check_resume(OPERATION, "after", page.last) {
            return Err(self.log.refusal(error, self.after.may_follow(page.last)).await);
        }
        self.after = self.after.anchored(page.last);
        self.take(page)
    }

    /// Reads the next page.
    async fn advance(&mut self) -> Result<()> {
        // If the future is dropped after this, `more` makes the next one read again.
        self.more = true;
        self.log.mark_seen();
        let page = self.log.page(self.after.get()).await?;
        // Only an erasure, a loss or a restore takes a revision from a bucket.
        if !self.after.is_within(page.last) {
            if !self.fresh {
                let may_follow = self.after.may_follow(page.last);
                return Err(self.log.refusal(Error::erased(OPERATION), may_follow).await);
            }
            // Reads the bucket again from the beginning.
            self.after = Revision::ZERO;
            return Ok(());
        }
        self.take(page)
    }

    fn take(&mut self, page: ChangePage) -> Result<()> {
        if self.fresh {
            self.excused = page.forgotten;
        }
        if page.last <= self.after {
            self.more = false;
            return Ok(());
        }
        if self.after.get() < page.forgotten && self.excused < page.forgotten {
            let message = "deletions after that revision are no longer recorded; watch from revision 0";
            return Err(Error::new(ErrorKind::Conflict, OPERATION, message));
        }
        self.after = Revision::new(page.cursor).in_generation(page.last.generation());
        self.fresh &= page.events.is_empty();
        self.events = page.events;
        self.more = page.more;
        Ok(())
    }
}
