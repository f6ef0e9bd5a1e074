//! Conversations: the contract of [`HistoryProvider`].
//!
//! A [`Thread`] is one session of one agent. Its messages are ordered by their [`Seq`], which the store
//! assigns. The events of the thread share this sequence. A reader that pages by `Seq`, or subscribes from a
//! `Seq`, therefore receives everything once and in order.

mod check;
mod ext;
mod filter;
mod types;

use async_trait::async_trait;
use futures_core::stream::BoxStream;

pub use check::{append_digest, check_append, check_limit, check_replace, check_tail_matching, check_ttl};
pub use ext::HistoryProviderExt;
pub use filter::{AuthorSet, AuthorTerms, MessageFilter, MessageSelector};
pub use types::{
    AppendOptions, Appended, Forked, HistoryEvent, HistoryEventKind, Replaced, Replacement, StoredMessage,
    ThreadInfo, Ttl,
};

use super::Store;
use crate::error::{Error, Result};
use crate::id::{AgentId, RunId, Seq, Thread};
use crate::message::ChatMessage;
use crate::page::{Page, PageRequest};

/// A stream of a thread's events.
pub type HistoryEvents = BoxStream<'static, Result<HistoryEvent>>;

/// A store of conversations, message by message.
///
/// [`HistoryProviderExt`] has the convenience methods: `append` for one message, and reading a whole thread.
// The default bodies do not use their arguments.
#[allow(unused_variables)]
#[async_trait]
pub trait HistoryProvider: Store {
    /// Appends messages to a thread. The first message creates the thread.
    ///
    /// - **HIST-001** The messages read back in the order given, equal in every field, byte for byte in text, arguments
    ///   and results.
    /// - **HIST-002** A batch gets contiguous `Seq` numbers in its order, and the answer names the first and the last.
    /// - **HIST-003** A batch is stored whole or not at all.
    /// - **HIST-004** Batches of concurrent writers do not interleave, and none is lost.
    /// - **HIST-005** Every `Seq` is greater than any that the thread has given before, not counting erasure.
    /// - **HIST-006** The first message of a new thread has `Seq` 1.
    /// - **HIST-007** Repeating an append with its idempotency key and the same messages returns the first answer and
    ///   writes nothing.
    /// - **HIST-008** Repeating an idempotency key with other messages is `Conflict` and writes nothing.
    /// - **HIST-009** Idempotency keys belong to their thread: the same key on another thread is another append.
    /// - **HIST-010** An idempotency key is remembered when the thread has been cleared.
    /// - **HIST-011** Of concurrent appends with one idempotency key, one writes and all return its answer.
    /// - **HIST-012** The order of messages does not depend on `created_at`.
    /// - **HIST-013** An append with a time to live sets it for the whole thread, as `set_ttl` does.
    /// - **HIST-014** A thread takes messages up to the size limit and text of any UTF-8, NUL included.
    ///
    /// "The same messages" means equal in every field except `created_at`, because a caller may set a new
    /// timestamp for a retry.
    ///
    /// # Errors
    /// `InvalidInput` for 0 or more than 1,000 messages, a message over 4 MiB, a batch over 16 MiB, a
    /// message that [`ChatMessage::check`] refuses, or a time to live of less than 1 ms or more than 100
    /// years; `Conflict` for a used idempotency key; `ResourceExhausted` if a quota is reached.
    ///
    /// # Cancellation
    /// The batch is written completely or not at all. An idempotency key makes the retry safe.
    ///
    /// # Complexity
    /// O(batch), independent of the thread's length.
    async fn append_many(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Appended> {
        Err(Error::not_implemented("history.append_many"))
    }

    /// Reads messages by their offset from the oldest message.
    ///
    /// - **HIST-020** Reading a thread that holds nothing returns nothing and is no error.
    /// - **HIST-021** Messages come oldest first.
    /// - **HIST-022** `offset` counts from the oldest message, and one past the end returns nothing.
    /// - **HIST-023** `limit` 0 returns nothing.
    /// - **HIST-024** A window returns as many messages as the limit and the thread allow.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000.
    ///
    /// # Cancellation
    /// No message is skipped or read twice.
    ///
    /// # Complexity
    /// O(limit) plus the cost of finding the offset, which may be logarithmic or O(offset). Prefer paging by
    /// `Seq`.
    async fn get_messages(&self, thread: &Thread, offset: u64, limit: usize) -> Result<Vec<StoredMessage>> {
        Err(Error::not_implemented("history.get_messages"))
    }

    /// Reads the newest messages, optionally only those before a `Seq`, oldest first.
    ///
    /// - **HIST-025** The newest `limit` messages are returned, oldest first.
    /// - **HIST-026** With `before`, only messages whose `Seq` is smaller are considered, so that a reader can walk back
    ///   in steps.
    /// - **HIST-027** A limit of 0 returns nothing, and one beyond the thread's length returns all of it.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(limit), independent of the thread's length.
    async fn tail(&self, thread: &Thread, before: Option<Seq>, limit: usize) -> Result<Vec<StoredMessage>> {
        Err(Error::not_implemented("history.tail"))
    }

    /// Reads the newest messages that pass a filter of authors and roles, optionally only those before a
    /// `Seq`.
    ///
    /// - **HIST-090** The newest `limit` messages that the filter keeps are returned, oldest first and with their own
    ///   `Seq`: the filter comes first, and the limit counts what it keeps, however far back that stands.
    /// - **HIST-091** A message is kept that matches any of the included, where anything is included, and none of the
    ///   excluded.
    /// - **HIST-092** A role matches the messages whose author plays it, whichever agent that is, and no message whose
    ///   author plays another or none.
    /// - **HIST-093** A message that names no author counts as written by the thread's agent, in no role.
    /// - **HIST-094** Agents and roles match where they are equal byte by byte.
    /// - **HIST-095** With `before`, only messages whose `Seq` is smaller are considered, so that a reader can walk back
    ///   in steps.
    /// - **HIST-096** A filter that names nothing keeps everything; a limit of 0 returns nothing, and one beyond what
    ///   the filter keeps returns all of that.
    /// - **HIST-097** Messages that came by a fork or a replacement are kept by their authors as appended ones are.
    ///
    /// The store does not return the messages that the filter drops. Once the limit is reached, it reads no
    /// message older than the last one returned.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000, or a filter that names more than 64 agents and roles.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// The store reads O(messages back to the oldest returned). If fewer than `limit` messages pass the
    /// filter, it reads back to the beginning of the thread. It returns O(limit) messages. A store may
    /// maintain an index by author and read fewer messages.
    async fn tail_matching(
        &self,
        thread: &Thread,
        filter: &MessageFilter,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Vec<StoredMessage>> {
        Err(Error::not_implemented("history.tail_matching"))
    }

    /// Reads the messages that follow a `Seq`, in order.
    ///
    /// - **HIST-028** Only messages with a greater `Seq` are returned, in the order of `Seq`; the number itself need not
    ///   be one of a message.
    /// - **HIST-029** A reader that pages by the last `Seq` it saw meets each message once while writers append, and
    ///   skips none, however late its commit.
    /// - **HIST-030** A limit of 0 returns nothing.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(limit), independent of the thread's length.
    async fn page_after(&self, thread: &Thread, after: Seq, limit: usize) -> Result<Vec<StoredMessage>> {
        Err(Error::not_implemented("history.page_after"))
    }

    /// Returns the number of messages in a thread, their size, and the last `Seq`.
    ///
    /// - **HIST-031** The counts are those of the messages that can be read, and 0 for a thread that holds nothing.
    /// - **HIST-032** `bytes` is the sum of [`ChatMessage::size_bytes`] over these messages.
    /// - **HIST-033** `last` is the greatest `Seq` that the thread has given to a message or an event, and stays after
    ///   the thread is cleared.
    ///
    /// # Errors
    /// Only errors of the backend itself.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(1).
    async fn thread_info(&self, thread: &Thread) -> Result<ThreadInfo> {
        Err(Error::not_implemented("history.thread_info"))
    }

    /// Removes all messages of a thread.
    ///
    /// - **HIST-034** The answer says how many messages went, and the thread reads as empty.
    /// - **HIST-035** Clearing a thread that holds nothing answers 0 and makes no event.
    /// - **HIST-036** Other threads stay as they are, those of the same agent or with the same session included.
    /// - **HIST-037** `Seq` goes on after a clear and does not restart.
    ///
    /// # Errors
    /// Only errors of the backend itself.
    ///
    /// # Cancellation
    /// All messages are removed, or none.
    ///
    /// # Complexity
    /// O(messages removed).
    async fn clear(&self, thread: &Thread) -> Result<u64> {
        Err(Error::not_implemented("history.clear"))
    }

    /// Removes the messages of one run.
    ///
    /// - **HIST-038** Exactly the messages tagged with the run go; the answer says how many, and the rest keep their
    ///   order and `Seq`.
    /// - **HIST-039** A run that has no messages answers 0 and makes no event.
    ///
    /// # Errors
    /// Only errors of the backend itself.
    ///
    /// # Cancellation
    /// All messages of the run are removed, or none.
    ///
    /// # Complexity
    /// O(messages of the run) with an index, otherwise O(messages of the thread).
    async fn clear_run(&self, thread: &Thread, run: &RunId) -> Result<u64> {
        Err(Error::not_implemented("history.clear_run"))
    }

    /// Copies a thread's messages into a thread that has no messages.
    ///
    /// - **HIST-040** The fork holds the source's messages in order, equal in every field, up to and including `up_to`
    ///   where that is given.
    /// - **HIST-041** A target that holds messages is `AlreadyExists` and stays as it is.
    /// - **HIST-042** A source that holds no messages (up to `up_to`) is `NotFound` and nothing is made.
    /// - **HIST-043** After a fork, writing or clearing either thread does not change the other.
    /// - **HIST-044** A fork's `Seq` numbers are the target's own: contiguous, beginning after its last one.
    /// - **HIST-045** Of concurrent forks into one target, one succeeds and the others are `AlreadyExists`.
    ///
    /// A fork copies neither the source's time to live nor its idempotency keys. Forking a thread into itself
    /// is `AlreadyExists`.
    ///
    /// # Errors
    /// `NotFound`; `AlreadyExists`; `ResourceExhausted` if a quota is reached.
    ///
    /// # Cancellation
    /// The fork is created completely or not at all.
    ///
    /// # Complexity
    /// O(messages copied).
    async fn fork(&self, source: &Thread, target: &Thread, up_to: Option<Seq>) -> Result<Forked> {
        Err(Error::not_implemented("history.fork"))
    }

    /// Replaces every message up to a `Seq` with new messages, in one step.
    ///
    /// - **HIST-050** Every message up to and including `up_to` goes, the replacement stands in its place, and messages
    ///   that arrived later stay behind it with their `Seq`.
    /// - **HIST-051** If the thread was cleared, replaced or lost a run after `seen`, the call is `Conflict` and changes
    ///   nothing.
    /// - **HIST-052** Messages appended after `seen` do not make a conflict.
    /// - **HIST-053** Of concurrent replacements that saw the same state, one succeeds and the others are `Conflict`.
    /// - **HIST-054** The replacement's messages get contiguous `Seq` numbers that end at `up_to`, so that one longer than
    ///   what it replaces is possible and the order by `Seq` stays the order of the thread.
    /// - **HIST-055** An empty replacement removes the messages and puts nothing in their place.
    /// - **HIST-056** `up_to` or `seen` beyond the thread's last `Seq` is `Conflict`: the caller saw another thread.
    /// - **HIST-057** A thread that holds nothing takes a replacement at `Seq` 0, and its messages can be read.
    ///
    /// # Errors
    /// `InvalidInput` if `seen` is before `up_to`, if `up_to` is negative, or for messages that an append
    /// would refuse; `Conflict`; `ResourceExhausted` if a quota is reached.
    ///
    /// # Cancellation
    /// The replacement happens completely or not at all.
    ///
    /// # Complexity
    /// O(messages removed and written).
    async fn replace(&self, thread: &Thread, replacement: Replacement) -> Result<Replaced> {
        Err(Error::not_implemented("history.replace"))
    }

    /// Lists the threads that have messages, of one agent or of all agents.
    ///
    /// - **HIST-060** Threads are listed once each, in the byte order of agent and then session.
    /// - **HIST-061** Paging with any limit visits each thread that exists throughout exactly once.
    /// - **HIST-062** With an agent given, only its threads are listed; an agent whose id begins alike is another.
    /// - **HIST-063** A thread that holds no messages, cleared or expired, is not listed.
    /// - **HIST-064** Each item carries the same counts as `thread_info`.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(limit) plus the cost of finding the start.
    async fn list_threads(
        &self,
        agent: Option<&AgentId>,
        page: PageRequest<Thread>,
    ) -> Result<Page<ThreadInfo, Thread>> {
        Err(Error::not_implemented("history.list_threads"))
    }

    /// Sets or removes the time to live of a thread.
    ///
    /// - **HIST-065** From the instant the time to live passes on the store's clock, the thread reads as empty.
    /// - **HIST-066** With `refresh_on_use`, each append and each read of messages starts the time to live anew.
    /// - **HIST-067** Without it, use does not prolong the thread's life.
    /// - **HIST-068** Removing the time to live keeps the thread for good.
    /// - **HIST-069** A thread that holds no messages is `NotFound`.
    /// - **HIST-070** `Seq` goes on after an expiry, and a message appended later does not bring the expired ones back.
    /// - **HIST-071** A thread that comes to hold no messages loses its time to live, by whatever removed the last one.
    ///
    /// # Errors
    /// `InvalidInput` for a time to live of less than 1 ms or more than 100 years; `NotFound`.
    ///
    /// # Cancellation
    /// The time to live is set or unchanged.
    ///
    /// # Complexity
    /// O(1).
    async fn set_ttl(&self, thread: &Thread, ttl: Option<Ttl>) -> Result<()> {
        Err(Error::not_implemented("history.set_ttl"))
    }

    /// Streams the past events of a thread after a `Seq`, and then its live events.
    ///
    /// - **HIST-080** The backlog comes first, then the live events, in the order of `Seq`, each once.
    /// - **HIST-081** Each appended message is an event that carries the message and the thread's size in bytes right
    ///   after it was written.
    /// - **HIST-082** A clear is an event that says how many messages went.
    /// - **HIST-083** A run's clear is an event that names the run and says how many messages went.
    /// - **HIST-084** A replacement is an event that names `up_to` and carries the messages put in place.
    /// - **HIST-085** The backlog is what survives: the messages still there, and the events since the last clear, less
    ///   the replacements that a later one covers and the events at or below its `up_to`.
    /// - **HIST-086** Events written through another handle arrive too, none lost and none twice, under concurrent
    ///   writers.
    /// - **HIST-087** Subscribing to a thread that holds nothing waits for its first event, over an erasure too.
    /// - **HIST-088** A subscriber that starts from the last `Seq` it saw misses nothing and repeats nothing.
    /// - **HIST-089** An expiry shows as a clear before the next event of the thread.
    /// - **HIST-098** A subscription that has told of an event ends with `Conflict` when its namespace is erased, unless
    ///   the thread is written past that event's `Seq` before the subscription looks.
    ///
    /// The `Seq` of an `Appended` event is that of its message. Every other event takes a number that no
    /// message has. A live replacement event carries the messages of the replacement. A later subscriber
    /// receives these messages in the backlog under their own numbers, followed by the replacement event.
    ///
    /// # Errors
    /// The stream ends after an error that it cannot recover from. Subscribe again from the last `Seq` to
    /// continue. After a `Conflict` this is not possible, because the namespace was erased: the delivered
    /// events are gone, and the numbers restart.
    ///
    /// # Cancellation
    /// Dropping the stream ends the subscription.
    ///
    /// # Complexity
    /// O(events), read in pages. The store buffers at most one page.
    async fn subscribe(&self, thread: &Thread, after: Seq) -> Result<HistoryEvents> {
        Err(Error::not_implemented("history.subscribe"))
    }
}
