//! Backward reads of a thread, as far as a window needs.

use std::sync::Arc;

use larder_kernel::{
    CompactionStrategy, HistoryProvider, MessagePage, Reach, Result, Seq, StoredMessage, Thread, Window,
    WindowMessage, check,
};

use super::memory::MemoryFilter;
use crate::lookback::Lookback;
use crate::tokens::TokenCounter;

/// The largest page, in messages. A message may be megabytes.
const PAGE_MESSAGES_MAX: usize = 1_000;
/// The size of the first page if the number of messages in the reach is unknown.
const PAGE_MESSAGES_FIRST: usize = 32;

/// The parameters of a read.
pub(super) struct Reader<'a> {
    pub(super) history: &'a dyn HistoryProvider,
    pub(super) thread: &'a Thread,
    /// The last position that the summary covers.
    pub(super) after: Option<Seq>,
    pub(super) filter: &'a MemoryFilter,
    pub(super) last: Option<usize>,
    pub(super) max_bytes: Option<u64>,
    /// The strategies that process each message independently. They run on each page, and the reach applies
    /// to their result.
    pub(super) each: &'a [Arc<dyn CompactionStrategy>],
    pub(super) reach: Reach,
    pub(super) counter: &'a dyn TokenCounter,
    pub(super) scan_messages_max: u64,
    /// `true` to keep the messages of each stage, for an explanation.
    pub(super) keeps_stages: bool,
}

/// The result of a read.
#[derive(Default)]
pub(super) struct ReadBack {
    /// The messages that the memory shows, and their form after each strategy that looks at each message
    /// alone. Without an explanation only the last stage is kept.
    pub(super) stages: Vec<Vec<WindowMessage>>,
    pub(super) messages_read: u64,
    pub(super) pages: u64,
    /// `true` if a filtered window reached its limit on messages to read before it was full.
    pub(super) scan_ended: bool,
    kept: usize,
    kept_bytes: u64,
    lookback: Lookback,
    memory_full: bool,
}

impl Reader<'_> {
    /// Reads as far as needed and returns the stages, each oldest first.
    pub(super) async fn read(&self) -> Result<ReadBack> {
        let mut back = ReadBack { stages: vec![Vec::new(); self.stages()], ..ReadBack::default() };
        if self.is_unbounded() && self.filter.is_empty() {
            self.read_forward(&mut back).await?;
        } else {
            self.read_backward(&mut back).await?;
            back.stages.iter_mut().for_each(|stage| stage.reverse());
        }
        Ok(back)
    }

    /// Returns `true` if every message that passes the filter is read.
    fn is_unbounded(&self) -> bool {
        let reaches_all = matches!(self.reach, Reach::Everything | Reach::Each);
        reaches_all && self.last.is_none() && self.max_bytes.is_none()
    }

    fn stages(&self) -> usize {
        if self.keeps_stages { 1 + self.each.len() } else { 1 }
    }

    async fn read_forward(&self, back: &mut ReadBack) -> Result<()> {
        let mut after = self.after.unwrap_or(Seq::MIN);
        loop {
            let page = self.history.page_after(self.thread, after, PAGE_MESSAGES_MAX).await?;
            let next = page.next(PAGE_MESSAGES_MAX);
            back.pages += 1;
            back.messages_read += check::size(page.messages.len());
            for (stage, messages) in
                back.stages.iter_mut().zip(self.pass(page.messages, Order::Forward).await?)
            {
                stage.extend(messages);
            }
            match next {
                Some(next) => after = next,
                None => return Ok(()),
            }
        }
    }

    async fn read_backward(&self, back: &mut ReadBack) -> Result<()> {
        let mut before = None;
        let mut size = 0;
        loop {
            size = self.page_size(back, size);
            let page = self.page_before(before, size).await?;
            back.pages += 1;
            back.messages_read += check::size(page.messages.len());
            let previous = page.previous(size);
            let covered = self.after.is_some_and(|after| previous.is_some_and(|first| first <= after));
            let page = self.limit(page.messages, back);
            let stages = self.pass(page, Order::Backward).await?;
            self.measure(back, stages.last().map_or(&[], Vec::as_slice));
            for (stage, messages) in back.stages.iter_mut().zip(stages) {
                stage.extend(messages);
            }
            if previous.is_none() || covered || back.memory_full || back.lookback.is_enough(self.reach) {
                return Ok(());
            }
            if self.scan_left(back) == Some(0) {
                back.scan_ended = true;
                return Ok(());
            }
            before = previous;
        }
    }

    /// Reads the page before a position. The store applies the filter, so it returns no message that the
    /// memory hides.
    async fn page_before(&self, before: Option<Seq>, size: usize) -> Result<MessagePage> {
        if self.filter.is_empty() {
            self.history.tail(self.thread, before, size).await
        } else {
            self.history.tail_matching(self.thread, self.filter, before, size).await
        }
    }

    /// Returns the number of messages that a filtered window may still read, or `None` if only its reach
    /// limits it.
    fn scan_left(&self, back: &ReadBack) -> Option<u64> {
        let limited = !self.filter.is_empty() && !self.is_unbounded();
        limited.then(|| self.scan_messages_max.saturating_sub(back.messages_read))
    }

    /// Returns the number of messages that are still needed, if known, otherwise a growing page size.
    fn page_size(&self, back: &ReadBack, before: usize) -> usize {
        let of_reach = back.lookback.missing(self.reach);
        let of_memory = self.last.map(|last| last.saturating_sub(back.kept));
        let needed = [of_reach, of_memory].into_iter().flatten().min();
        let grown = if before == 0 { PAGE_MESSAGES_FIRST } else { before.saturating_mul(2) };
        let size = needed.unwrap_or(grown).clamp(1, PAGE_MESSAGES_MAX);
        let left = self.scan_left(back).and_then(|left| usize::try_from(left).ok());
        left.map_or(size, |left| size.min(left).max(1))
    }

    /// Removes the summarized part, and messages that are older than the memory shows.
    fn limit(&self, mut page: Vec<StoredMessage>, back: &mut ReadBack) -> Vec<StoredMessage> {
        let mut start = page.len();
        for (place, stored) in page.iter().enumerate().rev() {
            if self.after.is_some_and(|after| stored.seq <= after) {
                break;
            }
            let bytes = back.kept_bytes.saturating_add(check::size(stored.message.size_bytes()));
            if self.last.is_some_and(|last| back.kept >= last)
                || self.max_bytes.is_some_and(|max| bytes > max)
            {
                back.memory_full = true;
                break;
            }
            back.kept += 1;
            back.kept_bytes = bytes;
            start = place;
        }
        page.drain(..start);
        back.memory_full |= self.last.is_some_and(|last| back.kept >= last);
        page
    }

    /// Applies the strategies that process each message independently to a page, oldest first.
    async fn pass(&self, page: Vec<StoredMessage>, order: Order) -> Result<Vec<Vec<WindowMessage>>> {
        let mut stages = Vec::new();
        let mut keep = |messages: &[WindowMessage]| {
            if self.keeps_stages {
                stages.push(order.of(messages.to_vec()));
            }
        };
        let mut messages: Vec<WindowMessage> = page.into_iter().map(WindowMessage::from).collect();
        keep(&messages);
        for strategy in self.each {
            let window = Window::new(messages).with_thread(self.thread.clone());
            messages = strategy.compact(window).await?.messages;
            keep(&messages);
        }
        if !self.keeps_stages {
            stages.push(order.of(messages));
        }
        Ok(stages)
    }

    fn measure(&self, back: &mut ReadBack, messages: &[WindowMessage]) {
        for WindowMessage { origin, message, .. } in messages {
            back.lookback.add(self.reach, self.counter, *origin, message);
        }
    }
}

/// The order in which pages are joined.
#[derive(Clone, Copy)]
enum Order {
    Forward,
    Backward,
}

impl Order {
    fn of(self, mut messages: Vec<WindowMessage>) -> Vec<WindowMessage> {
        if matches!(self, Self::Backward) {
            messages.reverse();
        }
        messages
    }
}
