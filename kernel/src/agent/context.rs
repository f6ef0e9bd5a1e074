//! Windows: the messages of a conversation that a model reads.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::{Error, Result};
use crate::id::{SessionId, Thread};
use crate::message::ChatMessage;
use crate::position::Seq;
use crate::storage::history::StoredMessage;

/// The part of a thread that a strategy reads. A window over a long thread reads no more than that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reach {
    /// The part that the next strategy reads. The strategy decides about each message independently of the
    /// others.
    Each,
    /// The newest messages, up to this number.
    Messages(usize),
    /// The newest messages until their [`size_bytes`](ChatMessage::size_bytes) add up to more than this
    /// limit.
    Bytes(u64),
    /// The newest messages until their tokens add up to more than this limit.
    Tokens(u64),
    /// The whole thread.
    Everything,
}

/// The source of a message in a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Origin {
    /// The message with this `Seq` in the thread. A strategy may have shortened it.
    Stored(Seq),
    /// A summary of the thread up to and including this `Seq`.
    Summary(Seq),
    /// A message made for this window: instructions, hints, or a message that is not stored yet.
    Injected,
}

/// A message of a window. Cloning shares the message.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct WindowMessage {
    /// The source of the message.
    pub origin: Origin,
    /// The message that the model reads.
    pub message: Arc<ChatMessage>,
}

impl WindowMessage {
    /// Creates a window message.
    #[must_use]
    pub fn new(origin: Origin, message: impl Into<Arc<ChatMessage>>) -> Self {
        Self { origin, message: message.into() }
    }

    /// Creates a window message that is not stored in a thread.
    #[must_use]
    pub fn injected(message: ChatMessage) -> Self {
        Self { origin: Origin::Injected, message: Arc::new(message) }
    }

    /// Creates a summary of the thread up to and including `up_to`.
    #[must_use]
    pub fn summary(up_to: Seq, message: ChatMessage) -> Self {
        Self { origin: Origin::Summary(up_to), message: Arc::new(message) }
    }

    /// Returns a window message with the same origin and another content.
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

/// The part of a thread that the model reads, oldest message first.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Window {
    /// The thread that the window shows; `None` if the window has no thread.
    pub thread: Option<Thread>,
    /// The messages, oldest first.
    pub messages: Vec<WindowMessage>,
}

impl Window {
    /// Creates a window without a thread.
    #[must_use]
    pub fn new(messages: Vec<WindowMessage>) -> Self {
        Self { messages, thread: None }
    }

    /// Creates a window of messages that are not stored in a thread.
    #[must_use]
    pub fn injected(messages: impl IntoIterator<Item = ChatMessage>) -> Self {
        Self { thread: None, messages: messages.into_iter().map(WindowMessage::injected).collect() }
    }

    /// Returns the messages without their origins.
    #[must_use]
    pub fn into_messages(self) -> Vec<Arc<ChatMessage>> {
        self.messages.into_iter().map(|message| message.message).collect()
    }

    /// Sets the thread that the window shows.
    #[must_use]
    pub fn with_thread(mut self, thread: impl Into<Option<Thread>>) -> Self {
        self.thread = thread.into();
        self
    }
}

/// The effect of a strategy on stored data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum StrategyEffect {
    /// No effect: the strategy only makes a view.
    #[default]
    None,
    /// The strategy stores a summary of the thread, made by a model.
    Summarizes,
    /// The strategy removes stored messages.
    Erases,
}

/// The inputs for preparing a window.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Preparation {
    /// The number of tokens that the model receives in addition to the window: the system prompt, hints and
    /// new messages.
    pub tokens_beside: u64,
    /// `true` if a strategy may call a model. If `false`, a strategy that needs a model leaves the window as
    /// it is.
    pub asks_model: bool,
    /// The last summary, if any, and every stored message after it, oldest first. Earlier strategies may have
    /// removed some of these messages from the window, but a new summary covers them, so the strategy reads
    /// them here. Empty if the window contains all of them.
    pub since_summary: Arc<[WindowMessage]>,
    /// The query for a knowledge search. With `None`, the search uses the newest question of the window.
    pub query: Option<Arc<str>>,
}

impl Preparation {
    /// Allows strategies to call their models.
    #[must_use]
    pub fn with_model(mut self) -> Self {
        self.asks_model = true;
        self
    }

    /// Sets the query for a knowledge search.
    #[must_use]
    pub fn with_query(mut self, query: impl Into<Arc<str>>) -> Self {
        self.query = Some(query.into());
        self
    }

    /// Sets the last summary, if any, and the stored messages after it.
    #[must_use]
    pub fn with_since_summary(mut self, messages: impl Into<Arc<[WindowMessage]>>) -> Self {
        self.since_summary = messages.into();
        self
    }

    /// Sets the number of tokens that the model receives in addition to the window.
    #[must_use]
    pub fn with_tokens_beside(mut self, tokens: u64) -> Self {
        self.tokens_beside = tokens;
        self
    }
}

/// A write that is delayed until its window has been used.
#[async_trait]
pub trait PendingWrite: fmt::Debug + Send + Sync + 'static {
    /// Performs the write. Repeating the call is harmless.
    ///
    /// # Errors
    /// The errors of the store.
    ///
    /// # Cancellation
    /// The write happens completely or not at all.
    async fn commit(&self) -> Result<()>;
}

/// A window, and the writes that follow once the window has been used.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Prepared {
    /// The window. A summary made by a strategy is the first message.
    pub window: Window,
    /// The last stored message to erase. All earlier messages of the thread are erased too.
    pub erases_up_to: Option<Seq>,
    /// `true` if a summary was due and is missing, because the strategy may not call a model, the model
    /// failed, or another process is making the summary.
    pub summary_missing: bool,
    /// The error of the model or the store, if one caused the missing summary.
    pub failure: Option<Error>,
    /// Further writes.
    pub writes: Vec<Arc<dyn PendingWrite>>,
}

impl From<Window> for Prepared {
    fn from(window: Window) -> Self {
        Self { window, ..Self::default() }
    }
}

impl Prepared {
    /// Runs another strategy on the window.
    ///
    /// # Errors
    /// The errors of the strategy.
    ///
    /// # Cancellation
    /// Dropping the future stores nothing.
    pub async fn then(
        mut self,
        strategy: &dyn CompactionStrategy,
        preparation: &Preparation,
    ) -> Result<Self> {
        // A new summary does not read messages that are about to be erased.
        let left = self.erases_up_to.map(|up_to| {
            let stays = |message: &&WindowMessage| match message.origin {
                Origin::Stored(seq) => seq > up_to,
                // The erased messages are the oldest, so the summary covers some of them.
                Origin::Summary(_) => false,
                Origin::Injected => true,
            };
            let left: Arc<[_]> = preparation.since_summary.iter().filter(stays).cloned().collect();
            preparation.clone().with_since_summary(left)
        });
        let next = strategy.prepare(self.window, left.as_ref().unwrap_or(preparation)).await?;
        self.window = next.window;
        self.erases_up_to = self.erases_up_to.max(next.erases_up_to);
        self.summary_missing |= next.summary_missing;
        self.failure = self.failure.or(next.failure);
        self.writes.extend(next.writes);
        Ok(self)
    }

    /// Sets the last stored message to erase.
    #[must_use]
    pub fn with_erases_up_to(mut self, erases_up_to: impl Into<Option<Seq>>) -> Self {
        self.erases_up_to = erases_up_to.into();
        self
    }

    /// Sets whether a summary was due and is missing.
    #[must_use]
    pub fn with_summary_missing(mut self, summary_missing: bool) -> Self {
        self.summary_missing = summary_missing;
        self
    }

    /// Sets the error that caused the missing summary.
    #[must_use]
    pub fn with_failure(mut self, failure: impl Into<Option<Error>>) -> Self {
        self.failure = failure.into();
        self
    }

    /// Sets the further writes.
    #[must_use]
    pub fn with_writes(mut self, writes: Vec<Arc<dyn PendingWrite>>) -> Self {
        self.writes = writes;
        self
    }
}

/// One step between the stored conversation and the model's window.
///
/// A strategy makes a view. The stored conversation does not change, unless the purpose of the strategy is to
/// erase; then its [`effect`](Self::effect) says so. Strategies compose: each one receives the window that
/// the previous one returned.
///
/// The returned messages keep their order. The returned window never contains a tool result without its call.
/// It never contains a call without its results if the thread has those results.
#[async_trait]
pub trait CompactionStrategy: fmt::Debug + Send + Sync + 'static {
    /// Returns the strategy's name for explanations and metrics, in lower case with underscores.
    fn name(&self) -> &'static str;

    /// Returns the part of the thread that the strategy must read to return the same result as for the whole
    /// thread.
    fn reach(&self) -> Reach;

    /// Returns `true` if messages may leave the window without being part of a summary.
    fn drops(&self) -> bool;

    /// Returns the strategy's effect on stored data.
    fn effect(&self) -> StrategyEffect {
        StrategyEffect::None
    }

    /// Returns the remaining window and performs the strategy's writes.
    ///
    /// # Errors
    /// The errors of the strategy's model or store. A strategy that fails loses no data.
    ///
    /// # Cancellation
    /// The conversation does not change. The strategy's own data, such as a summary, is written completely or
    /// not at all.
    async fn compact(&self, window: Window) -> Result<Window>;

    /// Returns the remaining window and the writes that [`compact`](Self::compact) would perform, without
    /// performing them. The caller performs them once the window has been used, or drops them. A strategy
    /// with an [`effect`](Self::effect) implements this method.
    ///
    /// # Errors
    /// The errors of `compact`.
    ///
    /// # Cancellation
    /// Dropping the future stores nothing.
    async fn prepare(&self, window: Window, _: &Preparation) -> Result<Prepared> {
        Ok(self.compact(window).await?.into())
    }
}

/// The interface between an agent's model loop and its context.
#[async_trait]
pub trait AgentContextProtocol: fmt::Debug + Send + Sync + 'static {
    /// Reads a session and returns the window for the model, oldest message first.
    ///
    /// # Errors
    /// The errors of the history and the strategies.
    ///
    /// # Cancellation
    /// Dropping the future stores nothing.
    async fn get_prompt_window(&self, session: &SessionId) -> Result<Window>;
}
