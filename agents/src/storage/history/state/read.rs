//! The reads of a thread's messages, which have a byte bound.

use larder_kernel::storage::history::PageBytes;
use larder_kernel::{MessageFilter, MessagePage, Seq, Thread};

use super::{Entry, ThreadState};

impl ThreadState {
    /// Returns the messages of a page from entries in the order of the read.
    fn page<'a>(&self, entries: impl Iterator<Item = &'a Entry>) -> MessagePage {
        let (mut messages, mut bytes, mut more) = (Vec::new(), PageBytes::default(), false);
        for entry in entries {
            more = !bytes.fits(entry.bytes);
            if more {
                break;
            }
            messages.push(self.stored(entry));
        }
        MessagePage::new(messages, self.last()).with_more(more)
    }

    fn newest_page<'a>(&self, newest_first: impl Iterator<Item = &'a Entry>) -> MessagePage {
        let mut page = self.page(newest_first);
        page.messages.reverse();
        page
    }

    pub(in crate::storage::history) fn window(&self, offset: u64, limit: usize) -> MessagePage {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(self.messages.len());
        self.page(self.messages.range(offset..).take(limit))
    }

    pub(in crate::storage::history) fn tail(&self, before: Option<Seq>, limit: usize) -> MessagePage {
        self.newest_page(self.messages.range(..self.index_before(before)).rev().take(limit))
    }

    pub(in crate::storage::history) fn tail_matching(
        &self,
        thread: &Thread,
        filter: &MessageFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> MessagePage {
        let newest_first = self.messages.range(..self.index_before(before)).rev();
        let kept = newest_first.filter(|entry| filter.keeps(thread, &entry.message));
        self.newest_page(kept.take(limit))
    }

    fn index_before(&self, before: Option<Seq>) -> usize {
        before.map_or(self.messages.len(), |before| {
            self.messages.partition_point(|entry| entry.seq < before.get())
        })
    }

    pub(in crate::storage::history) fn after(&self, after: i64, limit: usize) -> MessagePage {
        self.page(self.messages.range(self.index_after(after)..).take(limit))
    }
}
