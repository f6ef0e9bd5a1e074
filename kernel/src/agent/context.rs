//! How a conversation becomes what the model reads.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::{Seq, SessionId, Thread};
use crate::message::ChatMessage;
use crate::storage::history::StoredMessage;

/// How far back a strategy needs to read, so that a window over a long thread reads no more (PK-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reach {
    /// As far as the next strategy: what becomes of a message depends on that message alone.
    Each,
    /// The newest messages, this many.
    Messages(usize),
    /// The newest messages until their [`size_bytes`](ChatMessage::size_bytes) add up to more than this.
    Bytes(u64),
    /// The newest messages until their tokens add up to more than this.
    Tokens(u64),
    /// All of the thread.
    Everything,
}

/// Where a message of a window comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// The thread, where it has this place. A strategy may have shortened it.
    Stored(Seq),
    /// A summary of what the thread holds up to and including this place.
    Summary(Seq),
    /// Made for this window: instructions, hints, or messages that are not stored yet.
    Injected,
}

/// A message of a window. Cloning shares the message.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowMessage {
    /// Where it comes from.
    pub origin: Origin,
    /// What the model reads.
    pub message: Arc<ChatMessage>,
}

impl WindowMessage {
    /// A message that no thread holds.
    #[must_use]
    pub fn injected(message: ChatMessage) -> Self {
        Self { origin: Origin::Injected, message: Arc::new(message) }
    }

    /// A summary of what the thread holds up to and including `up_to`.
    #[must_use]
    pub fn summary(up_to: Seq, message: ChatMessage) -> Self {
        Self { origin: Origin::Summary(up_to), message: Arc::new(message) }
    }

    /// The same place with another message.
    #[must_use]
    pub fn with_message(&self, message: ChatMessage) -> Self {
        Self { origin: self.origin, message: Arc::new(message) }
    }
}

impl From<StoredMessage> for WindowMessage {
    fn from(stored: StoredMessage) -> Self {
        Self { origin: Origin::Stored(stored.seq), message: stored.message }
    }
}

/// What the model is to see of a thread, oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Window {
    /// The thread that it is a view of, where there is one.
    pub thread: Option<Thread>,
    /// The messages, oldest first.
    pub messages: Vec<WindowMessage>,
}

impl Window {
    /// Messages that no thread holds.
    #[must_use]
    pub fn injected(messages: impl IntoIterator<Item = ChatMessage>) -> Self {
        Self { thread: None, messages: messages.into_iter().map(WindowMessage::injected).collect() }
    }

    /// The messages alone.
    #[must_use]
    pub fn into_messages(self) -> Vec<Arc<ChatMessage>> {
        self.messages.into_iter().map(|message| message.message).collect()
    }
}

/// One step from the stored conversation to the model's window (RAVI-5).
///
/// A strategy makes a view; the stored conversation stays as it is, unless the strategy exists to erase and says so.
/// Strategies compose: each is given what the one
/// before returned. What comes out keeps the order of what went in, and never has a tool's result without the call that
/// asked for it, nor a call without its results where the thread has them.
#[async_trait]
pub trait CompactionStrategy: fmt::Debug + Send + Sync + 'static {
    /// The strategy's name, for explanations and metrics: lower case with underscores.
    fn name(&self) -> &'static str;

    /// How far back the strategy needs to read to return what it would return for the whole thread.
    fn reach(&self) -> Reach;

    /// Whether messages may leave the window without being part of a summary.
    fn drops(&self) -> bool;

    /// Returns what remains.
    ///
    /// # Errors
    /// What the strategy's model or store returns; a strategy that fails has lost nothing.
    ///
    /// # Cancellation
    /// The conversation is as it was; what the strategy keeps for itself, such as a summary, is whole or absent.
    async fn compact(&self, window: Window) -> Result<Window>;
}

/// What an agent's model loop asks of its context (RAVI-4).
#[async_trait]
pub trait AgentContextProtocol: fmt::Debug + Send + Sync + 'static {
    /// Reads a session and returns what the model is to see of it, oldest first.
    ///
    /// # Errors
    /// What the history and the strategies return.
    ///
    /// # Cancellation
    /// Nothing is stored.
    async fn get_prompt_window(&self, session: &SessionId) -> Result<Window>;
}
