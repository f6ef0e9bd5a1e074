//! Convenience methods for [`HistoryProvider`], the same for every backend.

use super::{AppendOptions, HistoryProvider, StoredMessage};
use crate::error::Result;
use crate::id::Thread;
use crate::limits::PAGE_ITEMS_MAX;
use crate::message::ChatMessage;
use crate::position::Seq;

/// Convenience methods of every [`HistoryProvider`]. Backends do not override them.
pub trait HistoryProviderExt: HistoryProvider {
    /// Appends one message and returns its `Seq`.
    ///
    /// # Errors
    /// The errors of [`HistoryProvider::append_many`].
    fn append(&self, thread: &Thread, message: ChatMessage) -> impl Future<Output = Result<Seq>> + Send {
        async { Ok(self.append_many(thread, vec![message], AppendOptions::default()).await?.last) }
    }

    /// Returns the number of messages in the thread.
    ///
    /// # Errors
    /// The errors of [`HistoryProvider::thread_info`].
    fn count_messages(&self, thread: &Thread) -> impl Future<Output = Result<u64>> + Send {
        async { Ok(self.thread_info(thread).await?.messages) }
    }

    /// Returns the newest `limit` messages, oldest first, in as many reads as their size needs. Memory use is
    /// proportional to the size of the messages.
    ///
    /// # Errors
    /// The errors of [`HistoryProvider::tail`].
    fn last_messages(
        &self,
        thread: &Thread,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<StoredMessage>>> + Send {
        self.messages_before(thread, None, limit)
    }

    /// Returns the newest `limit` messages before a `Seq`, oldest first, in as many reads as their size
    /// needs. Memory use is proportional to the size of the messages.
    ///
    /// # Errors
    /// The errors of [`HistoryProvider::tail`].
    fn messages_before(
        &self,
        thread: &Thread,
        before: Option<Seq>,
        limit: usize,
    ) -> impl Future<Output = Result<Vec<StoredMessage>>> + Send {
        async move {
            // The pages, newest first.
            let (mut pages, mut before, mut left) = (Vec::new(), before, limit);
            loop {
                let page = self.tail(thread, before, left).await?;
                left -= page.messages.len().min(left);
                before = page.messages.first().map(|oldest| oldest.seq);
                let more = page.more;
                pages.push(page.messages);
                if !more || left == 0 {
                    return Ok(pages.into_iter().rev().flatten().collect());
                }
            }
        }
    }

    /// Reads the whole thread, page by page. Memory use is proportional to the size of the thread.
    ///
    /// # Errors
    /// The errors of [`HistoryProvider::page_after`].
    fn all_messages(&self, thread: &Thread) -> impl Future<Output = Result<Vec<StoredMessage>>> + Send {
        async {
            let mut messages = Vec::new();
            let mut after = Seq::MIN;
            loop {
                let page = self.page_after(thread, after, PAGE_ITEMS_MAX).await?;
                let next = page.next(PAGE_ITEMS_MAX);
                messages.extend(page.messages);
                match next {
                    Some(next) => after = next,
                    None => return Ok(messages),
                }
            }
        }
    }
}

impl<T: HistoryProvider + ?Sized> HistoryProviderExt for T {}
