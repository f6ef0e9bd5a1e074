//! The values that [`HistoryProvider`](super::HistoryProvider) takes and returns.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::{IdempotencyKey, RunId, Seq, Thread};
use crate::message::ChatMessage;

/// A message and its place in the thread. Cloning shares the message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StoredMessage {
    /// Its place.
    pub seq: Seq,
    /// The message.
    pub message: Arc<ChatMessage>,
}

impl StoredMessage {
    /// The message's text; see [`ChatMessage::text`].
    #[must_use]
    pub fn text(&self) -> &str {
        self.message.text()
    }
}

impl fmt::Display for StoredMessage {
    /// As the message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.message.fmt(f)
    }
}

/// How long a thread lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ttl {
    /// From when it is set, or last used, to when the thread reads as empty. Milliseconds count; less is cut off.
    pub after: Duration,
    /// Whether each use of the thread starts the time anew.
    pub refresh_on_use: bool,
}

impl Ttl {
    /// Lives for `after` from now.
    #[must_use]
    pub fn fixed(after: Duration) -> Self {
        Self { after, refresh_on_use: false }
    }

    /// Lives for `after` from its last use.
    #[must_use]
    pub fn sliding(after: Duration) -> Self {
        Self { after, refresh_on_use: true }
    }
}

/// Options of an append.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AppendOptions {
    /// Makes a repetition harmless.
    pub idempotency_key: Option<IdempotencyKey>,
    /// Sets the thread's time to live; `None` leaves it as it is.
    pub ttl: Option<Ttl>,
}

impl AppendOptions {
    /// Makes a repetition harmless.
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

/// Where an append put its messages: `first..=last`, without gaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Appended {
    /// The first message's place.
    pub first: Seq,
    /// The last message's place.
    pub last: Seq,
}

/// What a fork made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Forked {
    /// How many messages were copied.
    pub messages: u64,
    /// The last one's place in the target.
    pub last: Seq,
}

/// What a thread holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadInfo {
    /// The thread.
    pub thread: Thread,
    /// How many messages it holds.
    pub messages: u64,
    /// Their size, as [`ChatMessage::size_bytes`] counts it.
    pub bytes: u64,
    /// The greatest number given to a message or an event of the thread; 0 before the first.
    pub last: Seq,
}

/// What to put in the place of a thread's beginning.
#[derive(Debug, Clone, PartialEq)]
pub struct Replacement {
    /// The last message to go. 0 stands before the first.
    pub up_to: Seq,
    /// The state that the decision rests on: the thread's last `Seq` when the caller read it.
    pub seen: Seq,
    /// The messages to put in place, at most 1,000.
    pub messages: Vec<ChatMessage>,
}

impl Replacement {
    /// Puts `messages` in the place of everything up to `up_to`, having read the thread up to there.
    #[must_use]
    pub fn new(up_to: Seq, messages: Vec<ChatMessage>) -> Self {
        Self { up_to, seen: up_to, messages }
    }

    /// States that the thread was read up to `seen`, of which only the part up to `up_to` is replaced.
    #[must_use]
    pub fn with_seen(mut self, seen: Seq) -> Self {
        self.seen = seen;
        self
    }
}

/// What a replacement did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replaced {
    /// How many messages went.
    pub removed: u64,
    /// The number of the event, which is now the thread's last.
    pub seq: Seq,
}

/// Something that happened to a thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HistoryEvent {
    /// Its place in the thread.
    pub seq: Seq,
    /// What happened.
    pub kind: HistoryEventKind,
}

/// What happened to a thread.
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
        /// How many messages went.
        removed: u64,
    },
    /// All messages were removed.
    Cleared {
        /// How many messages went.
        removed: u64,
    },
    /// The thread's beginning was replaced.
    Replaced {
        /// The last `Seq` that was replaced.
        up_to: Seq,
        /// How many messages went.
        removed: u64,
        /// What stands in their place, or what is left of it since.
        messages: Vec<StoredMessage>,
        /// The thread's size in bytes right after the replacement.
        thread_bytes: u64,
    },
}
