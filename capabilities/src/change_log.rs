//! Watches: the changes of a bucket, read in pages and again after each notification.

use std::collections::VecDeque;

use async_trait::async_trait;
use futures_util::StreamExt;
use larder_kernel::{Error, ErrorKind, KeyValueEvent, KeyValueEvents, Result, Revision};

pub(crate) const OPERATION: &str = "key_value.watch";
/// Most changes that are read at once.
pub(crate) const PAGE_CHANGES_MAX: usize = 256;
/// A page ends when its values reach this size.
pub(crate) const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The changes of one bucket whose keys have a prefix.
#[async_trait]
pub(crate) trait ChangeLog: Send + 'static {
    /// Returns the next changes after a revision, and the numbers of the bucket at the same instant.
    async fn page(&self, after: u64) -> Result<ChangePage>;

    /// Marks all notifications so far as seen. Called before a page is read, so that no change is missed.
    fn mark_seen(&mut self);

    /// Waits for a notification, or until it is time to read all the same. Fails if the database was closed.
    async fn wait(&mut self) -> Result<()>;
}

/// Some changes of a bucket. All zero and empty if it does not exist.
#[derive(Default)]
pub(crate) struct ChangePage {
    /// The last revision of the bucket.
    pub(crate) last: u64,
    /// The greatest revision of a change that the bucket has forgotten.
    pub(crate) forgotten: u64,
    /// The revision up to which the bucket was read. Ignored if `last` is not after the revision that was asked for.
    pub(crate) cursor: u64,
    pub(crate) events: VecDeque<KeyValueEvent>,
    /// Whether another page may follow at once.
    pub(crate) more: bool,
}

struct Watch<L> {
    log: L,
    /// The revision up to which the bucket was read.
    after: u64,
    /// Where the watch began: the bucket must have reached any later `after`.
    begun: u64,
    /// Whether the watch began at revision 0 and delivered nothing yet. Then it knows no key that could be gone, and needs
    /// nothing that was forgotten.
    fresh: bool,
    /// The greatest forgotten revision that the watch may lack: what was forgotten when it had delivered nothing yet.
    excused: u64,
    events: VecDeque<KeyValueEvent>,
    more: bool,
    ended: bool,
}

/// Returns the changes after a revision, and then those to come. Reads the first page, so that a revision that is too old is
/// refused here.
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
        // Only an erasure takes a bucket back behind a revision that was seen.
        if self.after > self.begun && page.last < self.after {
            if !self.fresh {
                return Err(Error::erased(OPERATION));
            }
            // Read again from the beginning.
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
            let message = "changes since that revision are forgotten; watch from revision 0 anew";
            return Err(Error::new(ErrorKind::Conflict, OPERATION, message));
        }
        self.after = page.cursor;
        self.fresh &= page.events.is_empty();
        self.events = page.events;
        self.more = page.more;
        Ok(())
    }
}
