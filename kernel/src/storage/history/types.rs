//! Argument and result types of [`HistoryProvider`](super::HistoryProvider).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{IdempotencyKey, RunId, Seq, Thread};
use crate::message::ChatMessage;

/// A message and its `Seq` in the thread. Cloning shares the message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredMessage {
    /// The `Seq` of the message.
    pub seq: Seq,
    /// The message.
    pub message: Arc<ChatMessage>,
}

impl StoredMessage {
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
}

/// Options of an append.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppendOptions {
    /// The idempotency key, which makes a repeated append harmless.
    pub idempotency_key: Option<IdempotencyKey>,
    /// The new time to live of the thread; `None` leaves it unchanged.
    pub ttl: Option<Ttl>,
}

impl AppendOptions {
    /// Sets the idempotency key, which makes a repeated append harmless.
    #[must_use]
    pub fn with_idempotency_key(mut self, key: IdempotencyKey) -> Self {
        self.idempotency_key = Some(key);
        self
    }

    /// Sets the thread's time to live.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Ttl) -> Self {
        self.ttl = Some(ttl);
        self
    }
}

/// The numbers of appended messages: `first..=last`, without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Appended {
    /// The `Seq` of the first message.
    pub first: Seq,
    /// The `Seq` of the last message.
    pub last: Seq,
}

/// The result of a fork.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forked {
    /// The number of copied messages.
    pub messages: u64,
    /// The `Seq` of the last copied message in the target.
    pub last: Seq,
}

/// The counts of a thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// A replacement of the first part of a thread.
#[derive(Debug, Clone, PartialEq)]
pub struct Replacement {
    /// The last message to replace. A value of 0 is before the first message.
    pub up_to: Seq,
    /// The thread's last `Seq` when the caller read it. The decision to replace depends on this state.
    pub seen: Seq,
    /// The new messages, at most 1,000.
    pub messages: Vec<ChatMessage>,
}

impl Replacement {
    /// Creates a replacement of every message up to `up_to` by `messages`, for a caller that read the thread
    /// up to `up_to`.
    #[must_use]
    pub fn new(up_to: Seq, messages: Vec<ChatMessage>) -> Self {
        Self { up_to, seen: up_to, messages }
    }

    /// Sets the last `Seq` that the caller read, if the replacement covers only a part of it.
    #[must_use]
    pub fn with_seen(mut self, seen: Seq) -> Self {
        self.seen = seen;
        self
    }
}

/// The result of a replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// The number of removed messages.
    pub removed: u64,
    /// The `Seq` of the replacement event, which is now the thread's last.
    pub seq: Seq,
}

/// An event of a thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryEvent {
    /// The `Seq` of the event.
    pub seq: Seq,
    /// The kind of the event.
    pub kind: HistoryEventKind,
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
