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
    pub(crate) last: u64,
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
    /// The revision up to which the bucket was read.
    after: u64,
    /// The revision at which the watch began. The bucket must have reached any later `after`.
    begun: u64,
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
    let (after, events) = (after.get(), VecDeque::new());
    let mut watch =
        Watch { log, after, begun: after, fresh: after == 0, excused: 0, events, more: true, ended: false };
    watch.advance().await?;
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

    /// Reads the next page.
    async fn advance(&mut self) -> Result<()> {
        // If the future is dropped after this, `more` makes the next one read again.
        self.more = true;
        self.log.mark_seen();
        let page = self.log.page(self.after).await?;
        // Only an erasure takes a bucket back to before a seen revision.
        if self.after > self.begun && page.last < self.after {
            if !self.fresh {
                return Err(Error::erased(OPERATION));
            }
            // Reads the bucket again from the beginning.
            self.after = 0;
            return Ok(());
        }
        if self.fresh {
            self.excused = page.forgotten;
        }
        if page.last <= self.after {
            self.more = false;
            return Ok(());
        }
        if self.after < page.forgotten && self.excused < page.forgotten {
            let message = "deletions after that revision are no longer recorded; watch from revision 0";
            return Err(Error::new(ErrorKind::Conflict, OPERATION, message));
        }
        self.after = page.cursor;
        self.fresh &= page.events.is_empty();
        self.events = page.events;
        self.more = page.more;
        Ok(())
    }
}
