//! The result of a read of messages, which has a byte bound.

use serde::{Deserialize, Serialize};

use super::types::StoredMessage;
use crate::check::size;
use crate::limits::READ_BYTES_MAX;
use crate::position::Seq;

/// Messages of a thread, with the thread's last `Seq` at the instant of the read.
///
/// A page has at most the requested number of messages, and at most 16 MiB of them. To read on, pass
/// [`next`](Self::next) to [`page_after`](super::HistoryProvider::page_after), or
/// [`previous`](Self::previous) to [`tail`](super::HistoryProvider::tail).
///
/// ```
/// use larder_kernel::{ChatMessage, MessagePage, Seq, StoredMessage};
///
/// let messages = vec![StoredMessage::new(Seq::new(7), ChatMessage::user("Hello"))];
/// let page = MessagePage::new(messages, Seq::new(9));
/// assert_eq!((page.next(1), page.next(10)), (Some(Seq::new(7)), None));
/// // The size of the page left out messages, although fewer than 10 were read.
/// assert_eq!(page.with_more(true).next(10), Some(Seq::new(7)));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MessagePage {
    /// The messages, oldest first.
    pub messages: Vec<StoredMessage>,
    /// The thread's last `Seq` in the snapshot that the messages were read from; see
    /// [`ThreadInfo::last`](super::ThreadInfo::last).
    pub last: Seq,
    /// `true` if the page would have more messages without the limit on its bytes. A read from the beginning
    /// leaves out the newest messages, and a read from the end leaves out the oldest.
    pub more: bool,
}

impl MessagePage {
    /// Creates a page to which the limit on bytes did not apply.
    #[must_use]
    pub fn new(messages: Vec<StoredMessage>, last: Seq) -> Self {
        Self { messages, last, more: false }
    }

    /// Creates a page without messages.
    #[must_use]
    pub fn empty(last: Seq) -> Self {
        Self::new(Vec::new(), last)
    }

    /// Sets whether the limit on bytes left out messages.
    #[must_use]
    pub fn with_more(mut self, more: bool) -> Self {
        self.more = more;
        self
    }

    /// Returns the `Seq` to read after for the messages that follow a page with this limit; `None` if no
    /// messages followed.
    #[must_use]
    pub fn next(&self, limit: usize) -> Option<Seq> {
        self.messages.last().filter(|_| self.is_cut(limit)).map(|stored| stored.seq)
    }

    /// Returns the `Seq` to read before for the messages that precede a page with this limit; `None` if no
    /// messages preceded it.
    #[must_use]
    pub fn previous(&self, limit: usize) -> Option<Seq> {
        self.messages.first().filter(|_| self.is_cut(limit)).map(|stored| stored.seq)
    }

    fn is_cut(&self, limit: usize) -> bool {
        self.more || self.messages.len() >= limit
    }
}

/// Counts the bytes of a page. A store adds messages in the order of the read until one does not fit.
#[derive(Debug, Clone, Default)]
pub struct PageBytes {
    counted: u64,
    messages: u64,
}

impl PageBytes {
    /// The maximum size of a page, in bytes.
    pub const MAX: u64 = READ_BYTES_MAX as u64;

    /// Counts a message of this size and returns `true` if it fits into the page. The first message always
    /// fits. The measure is [`ChatMessage::size_bytes`](crate::ChatMessage::size_bytes).
    pub fn fits(&mut self, bytes: u64) -> bool {
        let counted = self.counted.saturating_add(bytes);
        if self.messages > 0 && counted > Self::MAX {
            return false;
        }
        self.counted = counted;
        self.messages += 1;
        true
    }

    /// Cuts messages in the order of the read to the first ones that fit into one page, and returns `true` if
    /// it removed any.
    pub fn cut(messages: &mut Vec<StoredMessage>) -> bool {
        let mut bytes = Self::default();
        let fitting = messages.iter().take_while(|stored| bytes.fits(size(stored.message.size_bytes())));
        let kept = fitting.count();
        let cut = kept < messages.len();
        messages.truncate(kept);
        cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_fits_exactly_its_limit_and_at_least_one_message() {
        let mut bytes = PageBytes::default();
        assert!(bytes.fits(PageBytes::MAX - 1) && bytes.fits(1) && bytes.fits(0));
        assert!(!bytes.fits(1) && bytes.fits(0));
        assert!(PageBytes::default().fits(u64::MAX));
    }

    #[test]
    fn a_page_continues_if_it_is_full_or_was_cut() {
        let stored = |seq| StoredMessage::new(Seq::new(seq), crate::ChatMessage::user("x"));
        let page = MessagePage::new(vec![stored(3), stored(4)], Seq::new(9));
        assert_eq!((page.next(2), page.previous(2)), (Some(Seq::new(4)), Some(Seq::new(3))));
        assert_eq!((page.next(3), page.previous(3)), (None, None));
        let cut = page.with_more(true);
        assert_eq!((cut.next(3), cut.previous(3)), (Some(Seq::new(4)), Some(Seq::new(3))));
        assert_eq!(MessagePage::empty(Seq::ZERO).next(0), None);
    }
}
