//! Conversations: the contract of [`HistoryProvider`].
//!
//! A [`Thread`] is one session of one agent. Its messages are ordered by their [`Seq`], which the store
//! assigns. The events of the thread share this sequence. A reader that pages by `Seq`, or subscribes from a
//! `Seq`, therefore receives everything once and in order.
//!
//! A `Seq` also names the generation of its thread. If a server lost its data or a namespace was erased, a
//! reader that continues from its last `Seq` therefore gets `Conflict`, even if new messages have reached the
//! same numbers. A loss of the newest messages alone, as in a failover to a server that lags, is found only
//! while the reader's `Seq` is beyond the thread's last one: the contract promises nothing afterwards.

mod check;
mod ext;
mod fence;
mod filter;
mod removal;
mod types;
mod update;

use async_trait::async_trait;
use futures_core::stream::BoxStream;

pub use check::{
    append_digest, check_after, check_append, check_before, check_fork, check_if_last, check_limit,
    check_replace, check_replace_at, check_tail_matching, check_ttl,
};
pub use ext::HistoryProviderExt;
pub use fence::{check_fence, check_token, fence_of, fenced_off};
pub use filter::{AuthorSet, AuthorTerms, MessageFilter, MessageSelector};
pub use removal::{Removal, RemovalTarget, Removed, check_remove, check_remove_at, check_removed_bytes};
pub use types::{
    AppendOptions, Appended, Forked, HistoryEvent, HistoryEventKind, Replaced, Replacement, StoredMessage,
    ThreadInfo, Ttl,
};
pub use update::{
    MessageUpdate, Updated, check_revision, check_update, check_update_at, no_such_message, used_for_another,
};

use super::Store;
use crate::error::{Error, Result};
use crate::id::{AgentId, RunId, Thread};
use crate::message::ChatMessage;
use crate::page::{Page, PageRequest};
use crate::position::{FencingToken, Seq};

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
    /// - **HIST-001** Messages read back in the order given and equal in every field, byte for byte in text,
    ///   arguments and results.
    /// - **HIST-002** A batch gets contiguous `Seq` numbers in the order of its messages, and `append_many`
    ///   returns the first and the last of these numbers.
    /// - **HIST-003** A batch is stored completely or not at all.
    /// - **HIST-004** Batches of concurrent writers do not interleave, and no batch is lost.
    /// - **HIST-005** Every `Seq` is greater than all numbers that the thread has assigned since the last
    ///   erasure.
    /// - **HIST-006** The first message of a new thread has `Seq` 1.
    /// - **HIST-007** Repeating an append with its idempotency key and the same messages returns the first
    ///   result and writes nothing.
    /// - **HIST-008** Repeating an idempotency key with different messages fails with `Conflict` and writes
    ///   nothing.
    /// - **HIST-009** Idempotency keys are scoped to their thread: an append with the same key to another
    ///   thread is a separate append.
    /// - **HIST-010** An idempotency key remains in effect after the thread is cleared.
    /// - **HIST-011** Of concurrent appends with one idempotency key, exactly one writes, and all return the
    ///   result of that write.
    /// - **HIST-012** The order of messages does not depend on `created_at`.
    /// - **HIST-013** An append with a time to live sets the time to live of the whole thread, as `set_ttl`
    ///   does.
    /// - **HIST-014** A thread accepts messages up to the size limit and any UTF-8 text, including NUL.
    /// - **HIST-099** Every `Seq` that the methods return for a thread names one generation, which remains
    ///   after a clear and an expiry and is another one after an erasure.
    /// - **HIST-106** With `if_last`, an append writes if that is the thread's last `Seq`, or 0 for a thread
    ///   that was never written, and otherwise fails with `Conflict` and writes nothing.
    /// - **HIST-107** The error of an append that was refused because of its `if_last` has the thread's last
    ///   number as the fact `last` of its context.
    /// - **HIST-108** After an append, a replacement, a removal, an update, a clear, a clear of a run or a
    ///   fork into the thread, an append with the earlier `if_last` fails with `Conflict`, and one with the
    ///   new `last` of `thread_info` succeeds.
    /// - **HIST-109** Of concurrent appends with the same `if_last`, exactly one succeeds, and the others
    ///   fail with `Conflict`.
    /// - **HIST-110** Repeating an append that has an `if_last` with its idempotency key and the same
    ///   messages returns the first result, even if the thread has changed.
    /// - **HIST-111** An `if_last` that names another generation than the thread's fails with `Conflict` and
    ///   writes nothing.
    /// - **HIST-112** An expiry counts as a change from the instant at which it passes: an append with an
    ///   earlier `if_last` then fails with `Conflict`, and one with the new `last` of `thread_info` succeeds.
    ///
    /// - **HIST-128** A write with a fencing token succeeds if the thread accepted no greater token, and
    ///   otherwise fails with `Conflict` and changes nothing.
    /// - **HIST-129** On a thread that accepted a fencing token, a write without one fails with `Conflict`
    ///   and changes nothing.
    /// - **HIST-130** The fence binds every append, replacement, removal, update, clear, clear of a run,
    ///   `set_ttl` and fork into the thread.
    /// - **HIST-131** The error of a write that was refused because of its fence has the greatest token of
    ///   the thread as the fact `fence` of its context.
    /// - **HIST-132** A write that fails does not raise the fence.
    /// - **HIST-133** A write that succeeds raises the fence of a thread that was written before, even if it
    ///   finds nothing to change or repeats an earlier write.
    /// - **HIST-134** A clear, an expiry and a removal keep the fence, and an erasure forgets it.
    /// - **HIST-135** A fork does not carry the fence of its source, and the fence of the source does not
    ///   bind the fork.
    /// - **HIST-136** Repeating an append, a removal or an update with its idempotency key returns the first
    ///   result, regardless of the fence.
    /// - **HIST-137** Of concurrent writes with different tokens, none takes effect after one with a greater
    ///   token.
    ///
    /// A fencing token protects a thread from a worker that lost its claim. A [`Claim`](crate::Claim) of a
    /// task has one, and so has any lock service whose numbers only grow. A write accepts the token that the
    /// thread has, so one claim makes many writes. Tokens are compared by their numbers alone, so all writers
    /// of a thread must take their tokens from the same source. Once fenced, a thread remains so. After an
    /// erasure of the tasks, the tokens of claims begin again, and the thread refuses them: continue in a
    /// fork, which is not fenced.
    ///
    /// A caller whose decision depends on what it read calls `thread_info` first, then reads the messages,
    /// and appends with the `last` of `thread_info`. A change during the read makes the append fail.
    ///
    /// "The same messages" means equal in every field except `created_at`, because a caller may set a new
    /// timestamp for a retry.
    ///
    /// # Errors
    /// `InvalidInput` for 0 or more than 1,000 messages, a message over 4 MiB, a batch over 16 MiB, a
    /// message that [`ChatMessage::check`] refuses, a time to live of less than 1 ms or more than 100 years,
    /// a negative `if_last`, or a fencing token over 2^63 - 1; `Conflict` for a used idempotency key, an
    /// `if_last` that is not the thread's last `Seq`, or a fencing token that is missing or lower than the
    /// thread's; `ResourceExhausted` if a quota is reached.
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
    /// - **HIST-020** Reading a thread without messages succeeds and returns no messages.
    /// - **HIST-021** Messages are returned oldest first.
    /// - **HIST-022** `offset` counts from the oldest message, and an offset past the end returns no
    ///   messages.
    /// - **HIST-023** A limit of 0 returns no messages.
    /// - **HIST-024** A call returns `limit` messages if the thread has that many from `offset` on, and
    ///   otherwise all that remain.
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
    /// - **HIST-025** `tail` returns the newest `limit` messages, oldest first.
    /// - **HIST-026** With `before`, only messages with a smaller `Seq` are considered, so a reader can page
    ///   backwards.
    /// - **HIST-027** A limit of 0 returns no messages, and a limit beyond the thread's length returns all
    ///   messages.
    /// - **HIST-101** With a `before` that names a generation, the call fails with `Conflict` if that is not
    ///   the thread's, or if the number is beyond the thread's last `Seq`.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000; `Conflict` as described above.
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
    /// - **HIST-090** The newest `limit` messages that pass the filter are returned, oldest first and with
    ///   their own `Seq`: the store applies the filter before the limit, however far back it must read.
    /// - **HIST-091** A message passes the filter if it matches some include selector, or the filter has
    ///   none, and if it matches no exclude selector.
    /// - **HIST-092** A role matches a message if and only if the author of the message plays that role,
    ///   regardless of the author's agent.
    /// - **HIST-093** A message without an author counts as written by the thread's agent, in no role.
    /// - **HIST-094** Agents and roles match if they are equal byte for byte.
    /// - **HIST-095** With `before`, only messages with a smaller `Seq` are considered, so a reader can page
    ///   backwards.
    /// - **HIST-096** An empty filter passes every message, a limit of 0 returns no messages, and a limit
    ///   beyond the number of messages that pass returns all of these messages.
    /// - **HIST-097** Messages written by a fork or a replacement are filtered by their authors in the same
    ///   way as appended messages.
    /// - **HIST-105** A `before` that names a generation is checked as in `tail`.
    ///
    /// The store does not return the messages that the filter drops. Once the limit is reached, it reads no
    /// message older than the last one returned.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000, or a filter that names more than 64 agents and roles;
    /// `Conflict` as described above.
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
    /// - **HIST-028** Only messages with a `Seq` greater than `after` are returned, in the order of `Seq`,
    ///   and `after` need not be the `Seq` of a message.
    /// - **HIST-029** A reader that pages by the last `Seq` it received gets every message exactly once while
    ///   writers append, however late a message commits.
    /// - **HIST-030** A limit of 0 returns no messages.
    /// - **HIST-100** With an `after` of another generation than the thread's, or beyond the thread's last
    ///   `Seq`, the call fails with `Conflict`, except that no message follows [`Seq::MAX`].
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000; `Conflict` as described above.
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
    /// - **HIST-031** The counts cover exactly the messages that can be read, and are 0 for a thread without
    ///   messages.
    /// - **HIST-032** `bytes` is the sum of [`ChatMessage::size_bytes`] over the messages that can be read.
    /// - **HIST-033** `last` is the greatest `Seq` that the thread has assigned to a message or an event, and
    ///   is not reset when the thread is cleared.
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
    /// - **HIST-034** `clear` returns the number of messages removed, and the thread then reads as empty.
    /// - **HIST-035** Clearing a thread without messages returns 0 and creates no event.
    /// - **HIST-036** Clearing a thread does not change other threads, including threads of the same agent or
    ///   with the same session.
    /// - **HIST-037** `Seq` continues after a clear and does not restart.
    ///
    /// `fence` is the fencing token of the writer; see [`append_many`](Self::append_many).
    ///
    /// # Errors
    /// `InvalidInput` for a fencing token over 2^63 - 1; `Conflict` for one that is missing or too low.
    ///
    /// # Cancellation
    /// All messages are removed, or none.
    ///
    /// # Complexity
    /// O(messages removed).
    async fn clear(&self, thread: &Thread, fence: Option<FencingToken>) -> Result<u64> {
        Err(Error::not_implemented("history.clear"))
    }

    /// Removes the messages of one run.
    ///
    /// - **HIST-038** `clear_run` removes exactly the messages tagged with the run and returns their number,
    ///   and the remaining messages keep their order and `Seq`.
    /// - **HIST-039** Clearing a run without messages returns 0 and creates no event.
    ///
    /// `fence` is as in [`clear`](Self::clear).
    ///
    /// # Errors
    /// `InvalidInput` for a fencing token over 2^63 - 1; `Conflict` for one that is missing or too low.
    ///
    /// # Cancellation
    /// All messages of the run are removed, or none.
    ///
    /// # Complexity
    /// O(messages of the run) with an index, otherwise O(messages of the thread).
    async fn clear_run(&self, thread: &Thread, run: &RunId, fence: Option<FencingToken>) -> Result<u64> {
        Err(Error::not_implemented("history.clear_run"))
    }

    /// Removes messages by their numbers, after a position (rewind), or from the end (pop).
    ///
    /// - **HIST-113** A removal by number removes exactly the messages with these numbers, returns them
    ///   oldest first with their numbers, and ignores a number that no message has.
    /// - **HIST-114** A rewind removes every message after its position, and returns their count and no
    ///   message.
    /// - **HIST-115** A pop removes the newest messages, as many as it names or all if the thread has fewer,
    ///   and returns them oldest first with their numbers.
    /// - **HIST-116** Of concurrent pops, no two return the same message, and every message that is gone was
    ///   returned.
    /// - **HIST-117** The remaining messages keep their order and `Seq`, the counts follow, and numbers are
    ///   not assigned again.
    /// - **HIST-118** A removal by number and a pop are an event with the numbers of the removed messages,
    ///   and a rewind is an event with its position and the number of removed messages.
    /// - **HIST-119** A removal that finds no message returns a count of 0 and creates no event.
    /// - **HIST-120** With `if_last`, a removal removes only if that is the thread's last `Seq`, and
    ///   otherwise fails with `Conflict` and changes nothing.
    /// - **HIST-121** Repeating a removal with its idempotency key returns the same count, numbers and
    ///   `last`, and removes nothing.
    /// - **HIST-122** Repeating an idempotency key with another removal fails with `Conflict` and removes
    ///   nothing.
    /// - **HIST-123** A repetition of a pop with its idempotency key immediately after it returns the removed
    ///   messages again, also after later appends and pops.
    /// - **HIST-124** After a clear, also of a thread without messages, a repetition of a pop returns the
    ///   numbers and no messages.
    /// - **HIST-125** A repetition of a removal by number returns no messages.
    /// - **HIST-126** A removal by number or a pop of messages over 16 MiB together fails with `InvalidInput`
    ///   and changes nothing.
    /// - **HIST-127** A rewind to a position of another generation than the thread's, or beyond its last
    ///   `Seq`, fails with `Conflict`, and so does a removal of numbers of another generation, or of numbers
    ///   that name the thread's generation and are beyond its last `Seq`.
    ///
    /// Only a pop with an idempotency key keeps the removed messages, so that a caller whose connection
    /// failed can still receive them. After 10 minutes, no call returns them, and the next sweep deletes
    /// them. A clear and an erasure end this immediately. No event contains removed text.
    ///
    /// The keys of removals are separate from those of appends, and are shared with updates. The store keeps
    /// each key, also of a pop that found nothing, until the thread is erased. A removal does not change
    /// summaries of the thread.
    ///
    /// # Errors
    /// `InvalidInput` for 0 or more than 1,000 numbers or newest messages, the same number twice, a negative
    /// `if_last`, a fencing token over 2^63 - 1, or messages over 16 MiB; `Conflict` as described above, or
    /// for a fencing token that is missing or too low; `ResourceExhausted` if a quota has no room for the
    /// event or for what the key keeps.
    ///
    /// # Cancellation
    /// All of the messages are removed, or none. An idempotency key makes the retry safe.
    ///
    /// # Complexity
    /// O(messages removed). A removal by number may cost O(messages of the thread).
    async fn remove(&self, thread: &Thread, removal: Removal) -> Result<Removed> {
        Err(Error::not_implemented("history.remove"))
    }

    /// Updates one message in place: replaces its content under its `Seq`. Uses are a redaction, an answer
    /// that grows while it streams, and an edited question.
    ///
    /// - **HIST-140** An update replaces every field of the message with its number, which keeps its `Seq`
    ///   and its place, and does not change any other message.
    /// - **HIST-141** An update succeeds only if the message has the revision that the update names, and
    ///   otherwise fails with `Conflict` and changes nothing.
    /// - **HIST-142** Every read returns the revision of each message: after an append or a fork the number
    ///   of its `Seq`, and after a replacement or an update the number of the event.
    /// - **HIST-143** An update takes the next number of the thread, which it returns and which is then the
    ///   thread's `last` and the revision of the message.
    /// - **HIST-144** Of concurrent updates that name the same revision, exactly one succeeds, and the others
    ///   fail with `Conflict`.
    /// - **HIST-145** The counts of the thread, filters by author and the clear of a run use the new message.
    /// - **HIST-146** An update is an event that carries the `Seq` of the message, the new message and the
    ///   thread's size in bytes immediately after the update.
    /// - **HIST-147** After an update, no later read, fork or subscription returns the earlier content.
    /// - **HIST-148** Updating a number that no message has fails with `NotFound` and changes nothing.
    /// - **HIST-149** With `if_last`, an update succeeds only if that is the thread's last `Seq`, and
    ///   otherwise fails with `Conflict` and changes nothing.
    /// - **HIST-150** Repeating an update with its idempotency key and the same message returns the first
    ///   result and changes nothing, even if the message was updated again or removed.
    /// - **HIST-151** Repeating the idempotency key of an update or a removal with another update fails with
    ///   `Conflict` and changes nothing.
    /// - **HIST-152** A `seq` or a `revision` that names another generation than the thread's fails with
    ///   `Conflict` and changes nothing.
    /// - **HIST-153** The error of an update that was refused because of its revision has the revision of the
    ///   message as the fact `revision` of its context.
    /// - **HIST-154** An update does not change the thread's time to live.
    ///
    /// A reader that pages by `Seq` and has passed the message does not receive it again: it learns of the
    /// update by the event alone. A subscriber that reads late receives the last update of each message, and
    /// not the updates before it. The store keeps no earlier content.
    ///
    /// After an update, a [`replace`](Self::replace) whose caller read the thread earlier fails with
    /// `Conflict`. An update does not change summaries of the thread: after a redaction, remove them. The
    /// keys of updates and removals are one set, which is separate from the keys of appends.
    ///
    /// # Errors
    /// `InvalidInput` for a message that an append would refuse, a negative `if_last`, or a fencing token
    /// over 2^63 - 1; `NotFound`; `Conflict` as described above, or for a fencing token that is missing or
    /// too low; `ResourceExhausted` if a quota has no room for the new message or the key.
    ///
    /// # Cancellation
    /// The message is updated or unchanged. An idempotency key makes the retry safe. A retry without one
    /// fails with `Conflict` if the first attempt succeeded.
    ///
    /// # Complexity
    /// O(message), independent of the thread's length.
    async fn update(&self, thread: &Thread, update: MessageUpdate) -> Result<Updated> {
        Err(Error::not_implemented("history.update"))
    }

    /// Copies a thread's messages into a thread that has no messages.
    ///
    /// - **HIST-040** The fork contains the source's messages in order and equal in every field, up to and
    ///   including `up_to` if it is given.
    /// - **HIST-041** Forking into a thread that has messages fails with `AlreadyExists` and does not change
    ///   that thread.
    /// - **HIST-042** Forking a source without messages (up to `up_to`) fails with `NotFound` and creates
    ///   nothing.
    /// - **HIST-043** After a fork, writing to or clearing either thread does not change the other.
    /// - **HIST-044** The `Seq` numbers of a fork are the target's own: contiguous, and beginning after the
    ///   target's last `Seq`.
    /// - **HIST-045** Of concurrent forks into one target, exactly one succeeds, and the others fail with
    ///   `AlreadyExists`.
    /// - **HIST-102** An `up_to` that names another generation than the source's fails with `Conflict` and
    ///   creates nothing.
    ///
    /// A fork copies neither the source's time to live nor its idempotency keys. Forking a thread into itself
    /// is `AlreadyExists`. `fence` is the fencing token of the writer of the target.
    ///
    /// # Errors
    /// `InvalidInput` for a fencing token over 2^63 - 1; `NotFound`; `AlreadyExists`; `Conflict` as described
    /// above, or for a fencing token of the target that is missing or too low; `ResourceExhausted` if a quota
    /// is reached.
    ///
    /// # Cancellation
    /// The fork is created completely or not at all.
    ///
    /// # Complexity
    /// O(messages copied).
    async fn fork(
        &self,
        source: &Thread,
        target: &Thread,
        up_to: Option<Seq>,
        fence: Option<FencingToken>,
    ) -> Result<Forked> {
        Err(Error::not_implemented("history.fork"))
    }

    /// Replaces every message up to a `Seq` with new messages, in one step.
    ///
    /// - **HIST-050** A replacement removes every message up to and including `up_to`, inserts its own
    ///   messages at the same position, and keeps all later messages after them with their `Seq`.
    /// - **HIST-051** If the thread was cleared, was replaced, lost messages by `clear_run` or `remove`, or
    ///   had a message updated after `seen`, the call fails with `Conflict` and changes nothing.
    /// - **HIST-052** Messages appended after `seen` do not cause a conflict.
    /// - **HIST-053** Of concurrent replacements that saw the same state, exactly one succeeds, and the
    ///   others fail with `Conflict`.
    /// - **HIST-054** The messages of a replacement get contiguous `Seq` numbers that end at `up_to`, so a
    ///   replacement may contain more messages than it removes, and the order of `Seq` remains the order of
    ///   the thread.
    /// - **HIST-055** An empty replacement removes the messages and inserts none.
    /// - **HIST-056** If `up_to` or `seen` is beyond the thread's last `Seq`, the call fails with `Conflict`,
    ///   because the caller saw a different thread.
    /// - **HIST-103** If `up_to` or `seen` names another generation than the thread's, the call fails with
    ///   `Conflict` and changes nothing.
    /// - **HIST-057** A thread without messages accepts a replacement at `Seq` 0, and the messages of that
    ///   replacement can be read.
    ///
    /// # Errors
    /// `InvalidInput` if `seen` is before `up_to`, if `up_to` is negative, or for messages or a fencing token
    /// that an append would refuse; `Conflict`; `ResourceExhausted` if a quota is reached.
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
    /// - **HIST-060** Each thread is listed once, in the byte order of agent and then session.
    /// - **HIST-061** Paging with any limit returns every thread that exists for the whole listing exactly
    ///   once.
    /// - **HIST-062** With `agent`, only the threads of that agent are listed, and not those of an agent
    ///   whose id shares a prefix.
    /// - **HIST-063** A thread without messages, including a cleared or expired thread, is not listed.
    /// - **HIST-064** Each item has the same counts as `thread_info`.
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
    /// - **HIST-065** From the instant at which the time to live expires on the store's clock, the thread
    ///   reads as empty.
    /// - **HIST-066** With `refresh_on_use`, each append and each read of messages restarts the time to live.
    /// - **HIST-067** Without `refresh_on_use`, appends and reads do not extend the time to live.
    /// - **HIST-068** A thread whose time to live is removed does not expire.
    /// - **HIST-069** Setting or removing the time to live of a thread without messages fails with
    ///   `NotFound`.
    /// - **HIST-070** `Seq` continues after an expiry, and a message appended later does not restore the
    ///   expired messages.
    /// - **HIST-071** A thread loses its time to live when its last message is removed, by whatever means.
    ///
    /// `fence` is as in [`clear`](Self::clear).
    ///
    /// # Errors
    /// `InvalidInput` for a time to live of less than 1 ms or more than 100 years, or a fencing token over
    /// 2^63 - 1; `Conflict` for a token that is missing or too low; `NotFound`.
    ///
    /// # Cancellation
    /// The time to live is set or unchanged.
    ///
    /// # Complexity
    /// O(1).
    async fn set_ttl(&self, thread: &Thread, ttl: Option<Ttl>, fence: Option<FencingToken>) -> Result<()> {
        Err(Error::not_implemented("history.set_ttl"))
    }

    /// Streams the past events of a thread after a `Seq`, and then its live events.
    ///
    /// - **HIST-080** A subscription delivers the backlog first and then the live events, in the order of
    ///   `Seq`, each event exactly once.
    /// - **HIST-081** Each appended message is an event that carries the message, with the content of its
    ///   last update, and the thread's size in bytes immediately after the append.
    /// - **HIST-082** A clear is an event that carries the number of messages removed.
    /// - **HIST-083** The clear of a run is an event that carries the run and the number of messages removed.
    /// - **HIST-084** A replacement is an event that carries `up_to` and the messages inserted.
    /// - **HIST-085** The backlog contains the messages that still exist and the events since the last clear,
    ///   except replacements that a later replacement covers, events at or below the later replacement's
    ///   `up_to`, and updates of a message that no longer exists or was updated again.
    /// - **HIST-086** Events written through another handle are also delivered, none lost and none twice,
    ///   under concurrent writers.
    /// - **HIST-087** A subscription to a thread without messages waits for the thread's first event, even
    ///   across an erasure.
    /// - **HIST-088** A subscriber that starts from the last `Seq` it received misses no event and receives
    ///   no event again.
    /// - **HIST-089** An expiry is delivered as a clear before the next event of the thread.
    /// - **HIST-098** A subscription that began after a `Seq` greater than 0 or has delivered an event ends
    ///   with `Conflict` when the thread comes back empty or with another generation, even if the thread has
    ///   been written past its position.
    /// - **HIST-104** Subscribing after a `Seq` of another generation than the thread's, or beyond the
    ///   thread's last `Seq`, fails with `Conflict`.
    ///
    /// The `Seq` of an `Appended` event is that of its message. Every other event takes a number that no
    /// message has. A live replacement event carries the messages of the replacement. A later subscriber
    /// receives these messages in the backlog under their own numbers, followed by the replacement event.
    ///
    /// # Errors
    /// `Conflict` as described above. The stream ends after an error that it cannot recover from. Subscribe
    /// again from the last `Seq` to continue. After a `Conflict` this is not possible: the delivered events
    /// no longer exist, and the numbers restart.
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
