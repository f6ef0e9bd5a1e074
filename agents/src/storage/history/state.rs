//! The state of one thread.

mod fence;
mod removal;
mod update;

use std::borrow::Borrow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use larder_kernel::check::size;
use larder_kernel::storage::history::check_replace_at;
use larder_kernel::{
    Appended, ChatMessage, Error, ErrorKind, FencingToken, Generation, HistoryEvent, HistoryEventKind,
    IdempotencyKey, MessageFilter, Replaced, Replacement, Result, Revision, RunId, Seq, StoredMessage,
    Thread, ThreadInfo, Ttl,
};

use super::events::{Event, EventKind};
use crate::storage::backend::{MemoryBackend, deadline_ms};
use crate::storage::sharded_map::{LogPage, Record};
use removal::Removals;

/// The quota shares of a thread, a message, a blob reference and a key, apart from their content.
const THREAD_SHARE_BYTES: u64 = 512;
const MESSAGE_SHARE_BYTES: u64 = 160;
const BLOB_SHARE_BYTES: u64 = 64;
const KEY_SHARE_BYTES: u64 = 128;
/// The largest number of events that a subscriber reads in one step.
const EVENTS_PAGE_MAX: usize = 256;

pub(super) struct ThreadState {
    generation: Generation,
    messages: VecDeque<Entry>,
    /// The total size of `messages`, in bytes.
    bytes: u64,
    /// The largest number assigned to a message or an event.
    last: i64,
    /// The number of the last event that removed messages.
    removed_last: i64,
    /// The events since the last clear, apart from messages, in order.
    events: Vec<Event>,
    keys: HashMap<IdempotencyKey, ([u8; 32], Appended)>,
    removals: Removals,
    /// The greatest fencing token with which a write succeeded.
    fence: Option<FencingToken>,
    life: Option<Life>,
    /// The thread's share of the quota.
    held: u64,
}

struct Entry {
    seq: i64,
    /// The number of the write that gave the message its content.
    revision: i64,
    message: Arc<ChatMessage>,
    bytes: u64,
    /// The thread's size directly after the write.
    thread_bytes: u64,
}

struct Life {
    ttl: Ttl,
    expires_at_ms: i64,
}

impl ThreadState {
    pub(super) fn new(operation: &'static str, backend: &MemoryBackend, thread: &Thread) -> Result<Self> {
        let ids = thread.agent.as_str().len() + thread.session.as_str().len();
        let held = THREAD_SHARE_BYTES + size(ids);
        backend.try_reserve(operation, held)?;
        Ok(Self {
            generation: Generation::draw(),
            messages: VecDeque::new(),
            bytes: 0,
            last: 0,
            removed_last: 0,
            events: Vec::new(),
            keys: HashMap::new(),
            removals: Removals::default(),
            fence: None,
            life: None,
            held,
        })
    }

    fn seq(&self, number: i64) -> Seq {
        Seq::new(number).in_generation(self.generation)
    }

    /// Returns the last position; 0 if the thread was never written.
    pub(super) fn last(&self) -> Seq {
        if self.last == 0 { Seq::ZERO } else { self.seq(self.last) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Returns `true` if a time to live is set.
    pub(super) fn has_life(&self) -> bool {
        self.life.is_some()
    }

    /// Restarts a time to live that counts from the last use. A clock that was set back never shortens it.
    pub(super) fn touch(&mut self, now_ms: i64) {
        if let Some(life) = self.life.as_mut().filter(|life| life.ttl.refresh_on_use) {
            life.expires_at_ms = life.expires_at_ms.max(deadline_ms(now_ms, life.ttl.after));
        }
    }

    pub(super) fn set_ttl(&mut self, ttl: Option<Ttl>, now_ms: i64) {
        self.life = ttl.map(|ttl| Life { ttl, expires_at_ms: deadline_ms(now_ms, ttl.after) });
    }

    /// Returns the first result of an append with this key, if the messages are the same.
    pub(super) fn repeated(&self, key: &IdempotencyKey, digest: &[u8; 32]) -> Result<Option<Appended>> {
        match self.keys.get(key) {
            None => Ok(None),
            Some((first, answer)) if first == digest => Ok(Some(*answer)),
            Some(_) => Err(Error::new(
                ErrorKind::Conflict,
                "history.append_many",
                "the idempotency key was used for different messages; use a new key",
            )),
        }
    }

    /// Appends messages. Remembers their key, if any.
    pub(super) fn append<M: Borrow<ChatMessage> + Into<Arc<ChatMessage>>>(
        &mut self,
        operation: &'static str,
        backend: &MemoryBackend,
        messages: Vec<M>,
        key: Option<(IdempotencyKey, [u8; 32])>,
    ) -> Result<Appended> {
        let key_bytes = key.as_ref().map_or(0, |(key, _)| KEY_SHARE_BYTES + size(key.as_str().len()));
        self.reserve(operation, backend, content_share(&messages) + key_bytes)?;
        let first = self.last + 1;
        for message in messages {
            let bytes = size(message.borrow().size_bytes());
            self.last += 1;
            self.bytes += bytes;
            let (seq, thread_bytes) = (self.last, self.bytes);
            let entry = Entry { seq, revision: seq, message: message.into(), bytes, thread_bytes };
            self.messages.push_back(entry);
        }
        let answer = Appended::new(self.seq(first), self.last());
        if let Some((key, digest)) = key {
            self.keys.insert(key, (digest, answer));
        }
        Ok(answer)
    }

    pub(super) fn window(&self, offset: u64, limit: usize) -> Vec<StoredMessage> {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX).min(self.messages.len());
        self.messages.range(offset..).take(limit).map(|entry| self.stored(entry)).collect()
    }

    pub(super) fn tail(&self, before: Option<Seq>, limit: usize) -> Vec<StoredMessage> {
        let end = self.index_before(before);
        self.messages.range(end.saturating_sub(limit)..end).map(|entry| self.stored(entry)).collect()
    }

    pub(super) fn tail_matching(
        &self,
        thread: &Thread,
        filter: &MessageFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Vec<StoredMessage> {
        let newest_first = self.messages.range(..self.index_before(before)).rev();
        let kept = newest_first.filter(|entry| filter.keeps(thread, &entry.message));
        let mut kept: Vec<StoredMessage> = kept.take(limit).map(|entry| self.stored(entry)).collect();
        kept.reverse();
        kept
    }

    fn index_before(&self, before: Option<Seq>) -> usize {
        before.map_or(self.messages.len(), |before| {
            self.messages.partition_point(|entry| entry.seq < before.get())
        })
    }

    pub(super) fn after(&self, after: i64, limit: usize) -> Vec<StoredMessage> {
        let later = self.messages.range(self.index_after(after)..);
        later.take(limit).map(|entry| self.stored(entry)).collect()
    }

    /// Returns the messages up to a `Seq`, for a copy.
    pub(super) fn copy(&self, up_to: Option<Seq>) -> Vec<Arc<ChatMessage>> {
        let up_to = up_to.map_or(i64::MAX, Seq::get);
        let entries = self.messages.iter().take_while(|entry| entry.seq <= up_to);
        entries.map(|entry| Arc::clone(&entry.message)).collect()
    }

    pub(super) fn info(&self, thread: &Thread) -> ThreadInfo {
        ThreadInfo::new(thread.clone(), size(self.messages.len()), self.bytes, self.last())
    }

    pub(super) fn clear(&mut self, backend: &MemoryBackend) -> u64 {
        self.life = None;
        self.forget_popped(backend, None);
        let removed = size(self.messages.len());
        if removed == 0 {
            return 0;
        }
        let freed = self.messages.drain(..).map(|entry| entry.share()).sum();
        self.bytes = 0;
        self.release(backend, freed);
        self.drop_events(backend, |_| true);
        self.log(backend, EventKind::Cleared { removed });
        removed
    }

    pub(super) fn clear_run(&mut self, backend: &MemoryBackend, run: &RunId) -> u64 {
        let (mut removed, mut bytes, mut freed) = (0, 0, 0);
        self.messages.retain(|entry| {
            let goes = entry.message.run.as_ref() == Some(run);
            if goes {
                removed += 1;
                bytes += entry.bytes;
                freed += entry.share();
            }
            !goes
        });
        if removed > 0 {
            self.bytes -= bytes;
            self.release(backend, freed);
            self.log(backend, EventKind::RunCleared { run: run.clone(), removed });
            self.end_life_if_empty();
        }
        removed
    }

    /// Removes the time to live of an empty thread, so that later messages do not inherit it.
    fn end_life_if_empty(&mut self) {
        if self.messages.is_empty() {
            self.life = None;
        }
    }

    pub(super) fn replace(&mut self, backend: &MemoryBackend, replacement: Replacement) -> Result<Replaced> {
        const OPERATION: &str = "history.replace";
        check_replace_at(replacement.up_to, replacement.seen, self.last())?;
        let (up_to, seen) = (replacement.up_to.get(), replacement.seen.get());
        if seen > self.last {
            return Err(Error::new(
                ErrorKind::Conflict,
                OPERATION,
                "`up_to` or `seen` is beyond the thread's last `Seq`; read the thread again",
            ));
        }
        if self.removed_last > seen {
            return Err(Error::new(
                ErrorKind::Conflict,
                OPERATION,
                "messages were removed from the thread after `seen`; read the thread again",
            ));
        }
        let going = self.index_after(up_to);
        let (bytes, freed) = self
            .messages
            .range(..going)
            .fold((0, 0), |(bytes, freed), entry| (bytes + entry.bytes, freed + entry.share()));
        let needed = content_share(&replacement.messages);
        backend.exchange(OPERATION, freed, needed)?;
        self.held = self.held + needed - freed;
        self.messages.drain(..going);
        let added: usize = replacement.messages.iter().map(ChatMessage::size_bytes).sum();
        self.bytes = self.bytes - bytes + size(added);
        let thread_bytes = self.bytes;
        let (mut seq, revision) = (up_to + 1, self.last + 1);
        for message in replacement.messages.into_iter().rev() {
            seq -= 1;
            let bytes = size(message.size_bytes());
            let message = Arc::new(message);
            self.messages.push_front(Entry { seq, revision, message, bytes, thread_bytes });
        }
        let removed = size(going);
        self.cover_replacements(backend, up_to);
        self.log(backend, EventKind::Replaced { first: seq, up_to, removed, thread_bytes });
        self.end_life_if_empty();
        Ok(Replaced::new(removed, self.last()))
    }

    /// Removes the replacements that one up to `up_to` covers, and the events at or below it, because new
    /// messages may use their numbers. Shrinks the other replacements to their remaining part.
    fn cover_replacements(&mut self, backend: &MemoryBackend, up_to: i64) {
        self.drop_events(backend, |event| match event.kind {
            EventKind::Replaced { up_to: earlier, .. } => earlier <= up_to,
            _ => event.seq <= up_to,
        });
        for event in &mut self.events {
            if let EventKind::Replaced { first, .. } = &mut event.kind {
                *first = (*first).max(up_to + 1);
            }
        }
    }

    /// Returns the events after `cursor`, and moves it to the last of them.
    pub(super) fn events_after(&self, cursor: &mut i64) -> LogPage<HistoryEvent> {
        let mut messages = self.messages.range(self.index_after(*cursor)..).peekable();
        let mut events =
            self.events[self.events.partition_point(|event| event.seq <= *cursor)..].iter().peekable();
        let mut page = Vec::new();
        loop {
            let event_seq = events.peek().map(|event| event.seq);
            let message_seq = messages.peek().map(|entry| entry.seq);
            let Some(seq) = event_seq.into_iter().chain(message_seq).min() else {
                return LogPage { events: page, more: false };
            };
            if page.len() >= EVENTS_PAGE_MAX {
                return LogPage { events: page, more: true };
            }
            *cursor = seq;
            if event_seq == Some(seq) {
                page.extend(events.next().and_then(|event| self.shown(event)));
            } else {
                page.extend(messages.next().map(|entry| entry.event().in_generation(self.generation)));
            }
        }
    }

    /// Returns an event as a subscriber receives it; `None` for an update that is not the message's last.
    fn shown(&self, event: &Event) -> Option<HistoryEvent> {
        let kind = match &event.kind {
            EventKind::RunCleared { run, removed } => {
                HistoryEventKind::RunCleared { run: run.clone(), removed: *removed }
            }
            EventKind::Cleared { removed } => HistoryEventKind::Cleared { removed: *removed },
            EventKind::Removed { seqs } => {
                HistoryEventKind::Removed { seqs: seqs.iter().copied().map(Seq::new).collect() }
            }
            EventKind::Rewound { after, removed } => {
                HistoryEventKind::Rewound { after: Seq::new(*after), removed: *removed }
            }
            EventKind::Updated { of, thread_bytes } => {
                let entry = self.index_of(*of).map(|index| &self.messages[index]);
                let entry = entry.filter(|entry| entry.revision == event.seq)?;
                HistoryEventKind::Updated {
                    of: Seq::new(*of),
                    message: Arc::clone(&entry.message),
                    thread_bytes: *thread_bytes,
                }
            }
            EventKind::Replaced { first, up_to, removed, thread_bytes } => {
                let from = self.messages.partition_point(|entry| entry.seq < *first);
                let left = self.messages.range(from..).take_while(|entry| entry.seq <= *up_to);
                HistoryEventKind::Replaced {
                    up_to: Seq::new(*up_to),
                    removed: *removed,
                    messages: left.map(|entry| self.stored(entry)).collect(),
                    thread_bytes: *thread_bytes,
                }
            }
        };
        Some(HistoryEvent::new(Seq::new(event.seq), kind).in_generation(self.generation))
    }

    fn stored(&self, entry: &Entry) -> StoredMessage {
        let revision = Revision::at(self.seq(entry.revision));
        StoredMessage::new(self.seq(entry.seq), Arc::clone(&entry.message)).with_revision(revision)
    }

    /// Returns the index of the message with a number.
    fn index_of(&self, seq: i64) -> Option<usize> {
        self.messages.binary_search_by_key(&seq, |entry| entry.seq).ok()
    }

    fn index_after(&self, seq: i64) -> usize {
        self.messages.partition_point(|entry| entry.seq <= seq)
    }

    /// Adds an event with the next number. It is counted without a cap, because it replaces removed data.
    fn log(&mut self, backend: &MemoryBackend, kind: EventKind) {
        self.last += 1;
        self.removed_last = self.last;
        let event = Event { seq: self.last, kind };
        let bytes = event.share();
        backend.count(bytes);
        self.held += bytes;
        self.events.push(event);
    }

    fn drop_events(&mut self, backend: &MemoryBackend, goes: impl Fn(&Event) -> bool) {
        let mut freed = 0;
        self.events.retain(|event| {
            let goes = goes(event);
            freed += if goes { event.share() } else { 0 };
            !goes
        });
        self.release(backend, freed);
    }

    fn reserve(&mut self, operation: &'static str, backend: &MemoryBackend, bytes: u64) -> Result<()> {
        backend.try_reserve(operation, bytes)?;
        self.held += bytes;
        Ok(())
    }

    fn release(&mut self, backend: &MemoryBackend, bytes: u64) {
        backend.release(bytes);
        self.held -= bytes;
    }
}

impl Record for ThreadState {
    fn is_unused(&self) -> bool {
        self.last == 0 && self.removals.is_empty()
    }

    fn held(&self) -> u64 {
        self.held
    }

    /// Applies an expiry that has passed as a clear. Every access calls this first.
    fn expire(&mut self, backend: &MemoryBackend, now_ms: i64) {
        if self.life.as_ref().is_some_and(|life| now_ms >= life.expires_at_ms) {
            self.clear(backend);
        }
        if self.removals.expires_at_ms().is_some_and(|at_ms| now_ms >= at_ms) {
            self.forget_popped(backend, Some(now_ms));
        }
    }

    fn expires_at_ms(&self) -> Option<i64> {
        let life = self.life.as_ref().map(|life| life.expires_at_ms);
        life.into_iter().chain(self.removals.expires_at_ms()).min()
    }
}

fn content_share<M: Borrow<ChatMessage>>(messages: &[M]) -> u64 {
    let share = |message: &ChatMessage| size(message.size_bytes()) + fixed_share(message);
    messages.iter().map(|message| share(message.borrow())).sum()
}

/// Returns the quota share of a message apart from its size, which does not include ids and content types.
fn fixed_share(message: &ChatMessage) -> u64 {
    let run = message.run.as_ref().map_or(0, |run| run.as_str().len());
    let author = message.author.as_ref().map_or(0, |author| author.agent.as_str().len());
    let blobs = message
        .blobs
        .iter()
        .map(|blob| BLOB_SHARE_BYTES + size(blob.content_type.as_ref().map_or(0, String::len)));
    MESSAGE_SHARE_BYTES + size(run + author) + blobs.sum::<u64>()
}

impl Entry {
    fn share(&self) -> u64 {
        self.bytes + fixed_share(&self.message)
    }

    fn event(&self) -> HistoryEvent {
        let kind = HistoryEventKind::Appended {
            message: Arc::clone(&self.message),
            thread_bytes: self.thread_bytes,
        };
        HistoryEvent::new(Seq::new(self.seq), kind)
    }
}
