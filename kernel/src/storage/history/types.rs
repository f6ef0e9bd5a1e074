//! Argument and result types of [`HistoryProvider`](super::HistoryProvider).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{IdempotencyKey, RunId, Thread};
use crate::message::ChatMessage;
use crate::position::{FencingToken, Generation, Revision, Seq};
use crate::storage::options::{OptionSet, RequestOption};

/// A message with its `Seq` and its revision in the thread. Cloning shares the message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct StoredMessage {
    /// The `Seq` of the message.
    pub seq: Seq,
    /// The revision of the message: the number of the write that gave it its content. This is the `Seq` of an
    /// appended message, and the `Seq` of the event of a replacement or an update.
    pub revision: Revision,
    /// The message.
    pub message: Arc<ChatMessage>,
}

impl StoredMessage {
    /// Creates a stored message with the revision of a message that was appended at this `Seq`.
    #[must_use]
    pub fn new(seq: Seq, message: impl Into<Arc<ChatMessage>>) -> Self {
        Self { seq, revision: Revision::at(seq), message: message.into() }
    }

    /// Sets the revision.
    #[must_use]
    pub fn with_revision(mut self, revision: Revision) -> Self {
        self.revision = revision;
        self
    }

    /// Sets the generation of the thread, which the `Seq` and the revision name.
    #[must_use]
    pub fn in_generation(mut self, generation: impl Into<Option<Generation>>) -> Self {
        let generation = generation.into();
        self.seq = self.seq.in_generation(generation);
        self.revision = self.revision.in_generation(generation);
        self
    }

    /// Returns the message's text; see [`ChatMessage::text`].
    #[must_use]
    pub fn text(&self) -> &str {
        self.message.text()
    }
}

impl fmt::Display for StoredMessage {
    /// Formats the value like the message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message.fmt(f)
    }
}

/// The time to live of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ttl {
    /// The time after which the thread reads as empty, measured from the call that sets it or from the last
    /// use. It is truncated to milliseconds.
    pub after: Duration,
    /// `true` if each use of the thread restarts the time to live.
    pub refresh_on_use: bool,
}

impl Ttl {
    /// Creates a time to live that ends `after` this time from now.
    #[must_use]
    pub fn fixed(after: Duration) -> Self {
        Self { after, refresh_on_use: false }
    }

    /// Creates a time to live that ends `after` this time from the last use.
    #[must_use]
    pub fn sliding(after: Duration) -> Self {
        Self { after, refresh_on_use: true }
    }

    /// Sets whether each use of the thread restarts the time to live.
    #[must_use]
    pub fn with_refresh_on_use(mut self, refresh_on_use: bool) -> Self {
        self.refresh_on_use = refresh_on_use;
        self
    }
}

/// Options of an append.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AppendOptions {
    /// The idempotency key, which makes a repeated append harmless.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The new time to live of the thread; `None` leaves it unchanged.
    pub ttl: Option<Ttl>,
    /// The last `Seq` that the thread must have; `None` appends in any state.
    pub if_last: Option<Seq>,
    /// The fencing token of the writer; `None` for a thread that is not fenced.
    pub fence: Option<FencingToken>,
}

impl AppendOptions {
    /// Sets the idempotency key, which makes a repeated append harmless.
    #[must_use]
    pub fn with_idempotency_key(mut self, key: impl Into<Option<IdempotencyKey>>) -> Self {
        self.idempotency_key = key.into();
        self
    }

    /// Sets the thread's time to live.
    #[must_use]
    pub fn with_ttl(mut self, ttl: impl Into<Option<Ttl>>) -> Self {
        self.ttl = ttl.into();
        self
    }

    /// Sets the last `Seq` that the thread must have, as [`ThreadInfo::last`] returned it.
    #[must_use]
    pub fn with_if_last(mut self, last: impl Into<Option<Seq>>) -> Self {
        self.if_last = last.into();
        self
    }

    /// Sets the fencing token of the writer.
    #[must_use]
    pub fn with_fence(mut self, token: impl Into<Option<FencingToken>>) -> Self {
        self.fence = token.into();
        self
    }

    /// Returns the options that are set.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        // Names every field, so that a new field is a compile error here.
        let Self { idempotency_key, ttl, if_last, fence } = self;
        OptionSet::NONE
            .with_if(idempotency_key.is_some(), RequestOption::AppendIdempotencyKey)
            .with_if(ttl.is_some(), RequestOption::AppendTtl)
            .with_if(if_last.is_some(), RequestOption::AppendIfLast)
            .with_if(fence.is_some(), RequestOption::Fence)
    }
}

/// The numbers of appended messages: `first..=last`, without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Appended {
    /// The `Seq` of the first message.
    pub first: Seq,
    /// The `Seq` of the last message.
    pub last: Seq,
}

impl Appended {
    /// Creates the result of an append whose messages got the numbers `first..=last`.
    #[must_use]
    pub fn new(first: Seq, last: Seq) -> Self {
        Self { first, last }
    }

    /// Sets the generation of the thread, which both numbers name.
    #[must_use]
    pub fn in_generation(self, generation: impl Into<Option<Generation>>) -> Self {
        let generation = generation.into();
        Self { first: self.first.in_generation(generation), last: self.last.in_generation(generation) }
    }
}

/// The result of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Forked {
    /// The number of copied messages.
    pub messages: u64,
    /// The `Seq` of the last copied message in the target.
    pub last: Seq,
}

impl Forked {
    /// Creates the result of a fork.
    #[must_use]
    pub fn new(messages: u64, last: Seq) -> Self {
        Self { messages, last }
    }
}

/// The counts of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ThreadInfo {
    /// The thread.
    pub thread: Thread,
    /// The number of messages.
    pub messages: u64,
    /// The total size of the messages, as measured by [`ChatMessage::size_bytes`].
    pub bytes: u64,
    /// The greatest `Seq` of a message or an event of the thread; 0 before the first.
    pub last: Seq,
}

impl ThreadInfo {
    /// Creates the counts of a thread.
    #[must_use]
    pub fn new(thread: Thread, messages: u64, bytes: u64, last: Seq) -> Self {
        Self { thread, messages, bytes, last }
    }
}

/// A replacement of the first part of a thread.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Replacement {
    /// The last message to replace. A value of 0 is before the first message.
    pub up_to: Seq,
    /// The thread's last `Seq` when the caller read it. The decision to replace depends on this state.
    pub seen: Seq,
    /// The new messages, at most 1,000.
    pub messages: Vec<ChatMessage>,
    /// The fencing token of the writer; `None` for a thread that is not fenced.
    pub fence: Option<FencingToken>,
}

impl Replacement {
    /// Creates a replacement of every message up to `up_to` by `messages`, for a caller that read the thread
    /// up to `up_to`.
    #[must_use]
    pub fn new(up_to: Seq, messages: Vec<ChatMessage>) -> Self {
        Self { up_to, seen: up_to, messages, fence: None }
    }

    /// Sets the last `Seq` that the caller read, if the replacement covers only a part of it.
    #[must_use]
    pub fn with_seen(mut self, seen: Seq) -> Self {
        self.seen = seen;
        self
    }

    /// Sets the fencing token of the writer.
    #[must_use]
    pub fn with_fence(mut self, token: impl Into<Option<FencingToken>>) -> Self {
        self.fence = token.into();
        self
    }

    /// Returns the options that are set.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        // Names every field, so that a new field is a compile error here.
        let Self { up_to: _, seen: _, messages: _, fence } = self;
        OptionSet::NONE.with_if(fence.is_some(), RequestOption::Fence)
    }
}

/// The result of a replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Replaced {
    /// The number of removed messages.
    pub removed: u64,
    /// The `Seq` of the replacement event, which is now the thread's last.
    pub seq: Seq,
}

impl Replaced {
    /// Creates the result of a replacement.
    #[must_use]
    pub fn new(removed: u64, seq: Seq) -> Self {
        Self { removed, seq }
    }
}

/// An event of a thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HistoryEvent {
    /// The `Seq` of the event.
    pub seq: Seq,
    /// The kind of the event.
    pub kind: HistoryEventKind,
}

impl HistoryEvent {
    /// Creates an event.
    #[must_use]
    pub fn new(seq: Seq, kind: HistoryEventKind) -> Self {
        Self { seq, kind }
    }

    /// Sets the generation of the thread, which all numbers of the event name.
    #[must_use]
    pub fn in_generation(mut self, generation: impl Into<Option<Generation>>) -> Self {
        let generation = generation.into();
        self.seq = self.seq.in_generation(generation);
        match &mut self.kind {
            HistoryEventKind::Replaced { up_to, messages, .. } => {
                *up_to = up_to.in_generation(generation);
                for stored in messages {
                    *stored = stored.clone().in_generation(generation);
                }
            }
            HistoryEventKind::Updated { of, .. } => *of = of.in_generation(generation),
            HistoryEventKind::Removed { seqs } => {
                seqs.iter_mut().for_each(|seq| *seq = seq.in_generation(generation));
            }
            HistoryEventKind::Rewound { after, .. } => *after = after.in_generation(generation),
            _ => {}
        }
        self
    }
}

/// The kind of an event, with its data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
#[non_exhaustive]
pub enum HistoryEventKind {
    /// A message was appended.
    Appended {
        /// The message.
        message: Arc<ChatMessage>,
        /// The thread's size in bytes right after the message was written.
        thread_bytes: u64,
    },
    /// The messages of a run were removed.
    RunCleared {
        /// The run.
        run: RunId,
        /// The number of removed messages.
        removed: u64,
    },
    /// Messages were removed by their numbers or from the end of the thread.
    Removed {
        /// The numbers of the removed messages, in order.
        seqs: Vec<Seq>,
    },
    /// A message was updated. The new revision of the message has the number of the event.
    Updated {
        /// The `Seq` of the message.
        of: Seq,
        /// The new message.
        message: Arc<ChatMessage>,
        /// The thread's size in bytes right after the update.
        thread_bytes: u64,
    },
    /// Every message after a position was removed.
    Rewound {
        /// The position. It may be before the first message.
        after: Seq,
        /// The number of removed messages.
        removed: u64,
    },
    /// All messages were removed.
    Cleared {
        /// The number of removed messages.
        removed: u64,
    },
    /// The first part of the thread was replaced.
    Replaced {
        /// The last `Seq` that was replaced.
        up_to: Seq,
        /// The number of removed messages.
        removed: u64,
        /// The new messages, or those of them that still exist.
        messages: Vec<StoredMessage>,
        /// The thread's size in bytes right after the replacement.
        thread_bytes: u64,
    },
}
