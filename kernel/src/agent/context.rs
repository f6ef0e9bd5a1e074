//! How a conversation becomes what the model reads.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::{Error, Result};
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

/// What a strategy stores besides making a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum StrategyEffect {
    /// Nothing: the strategy makes a view.
    #[default]
    None,
    /// A summary of the thread, made by a model.
    Summarizes,
    /// The strategy removes stored messages.
    Erases,
}

/// What a window is prepared for.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Preparation {
    /// Tokens that the model receives besides the window: the system prompt, hints and new messages.
    pub tokens_beside: u64,
    /// Whether a strategy may ask a model. Otherwise a strategy that would do so leaves the window as it is.
    pub asks_model: bool,
    /// Every stored message since the last summary, oldest first, where strategies before may have left some out: a new
    /// summary covers these, so it reads them. Empty where the window holds them all.
    pub since_summary: Arc<[WindowMessage]>,
    /// What is asked, to search knowledge for; without it the newest question of the window.
    pub query: Option<Arc<str>>,
}

impl Preparation {
    /// Lets strategies ask their models.
    #[must_use]
    pub fn with_model(mut self) -> Self {
        self.asks_model = true;
        self
    }

    /// Sets what is asked.
    #[must_use]
    pub fn with_query(mut self, query: impl Into<Arc<str>>) -> Self {
        self.query = Some(query.into());
        self
    }

    /// Gives every stored message since the last summary.
    #[must_use]
    pub fn with_since_summary(mut self, messages: impl Into<Arc<[WindowMessage]>>) -> Self {
        self.since_summary = messages.into();
        self
    }

    /// Sets the tokens that the model receives besides the window.
    #[must_use]
    pub fn with_tokens_beside(mut self, tokens: u64) -> Self {
        self.tokens_beside = tokens;
        self
    }
}

/// A write that waits until its window has been used.
#[async_trait]
pub trait PendingWrite: fmt::Debug + Send + Sync + 'static {
    /// Writes. Repeating it is harmless.
    ///
    /// # Errors
    /// The store's own.
    ///
    /// # Cancellation
    /// Written or not written.
    async fn commit(&self) -> Result<()>;
}

/// A window, and what is to be stored once it has been used.
#[derive(Debug, Default)]
pub struct Prepared {
    /// The window. A summary that a strategy made stands at its front.
    pub window: Window,
    /// The last stored message to erase; everything before it goes as well.
    pub erases_up_to: Option<Seq>,
    /// Whether a summary was due and is missing: no model may be asked, it failed, or another process is at it.
    pub summary_missing: bool,
    /// Why the summary is missing, where a model or a store failed.
    pub failure: Option<Error>,
    /// What else to write.
    pub writes: Vec<Arc<dyn PendingWrite>>,
}

impl From<Window> for Prepared {
    fn from(window: Window) -> Self {
        Self { window, ..Self::default() }
    }
}

impl Prepared {
    /// Runs one more strategy on the window.
    ///
    /// # Errors
    /// The strategy's.
    ///
    /// # Cancellation
    /// Nothing is stored.
    pub async fn then(
        mut self,
        strategy: &dyn CompactionStrategy,
        preparation: &Preparation,
    ) -> Result<Self> {
        // No summary reads what is to be erased.
        let left = self.erases_up_to.map(|up_to| {
            let stays =
                |message: &&WindowMessage| !matches!(message.origin, Origin::Stored(seq) if seq <= up_to);
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
}

/// One step from the stored conversation to the model's window (RAVI-5).
///
/// A strategy makes a view; the stored conversation stays as it is, unless the strategy exists to erase and says so by
/// its [`effect`](Self::effect). Strategies compose: each is given what the one before returned. What comes out keeps the
/// order of what went in, and never has a tool's result without the call that asked for it, nor a call without its
/// results where the thread has them.
#[async_trait]
pub trait CompactionStrategy: fmt::Debug + Send + Sync + 'static {
    /// The strategy's name, for explanations and metrics: lower case with underscores.
    fn name(&self) -> &'static str;

    /// How far back the strategy needs to read to return what it would return for the whole thread.
    fn reach(&self) -> Reach;

    /// Whether messages may leave the window without being part of a summary.
    fn drops(&self) -> bool;

    /// What the strategy stores besides making a view.
    fn effect(&self) -> StrategyEffect {
        StrategyEffect::None
    }

    /// Returns what remains, and stores what the strategy has to store.
    ///
    /// # Errors
    /// What the strategy's model or store returns; a strategy that fails has lost nothing.
    ///
    /// # Cancellation
    /// The conversation is as it was; what the strategy keeps for itself, such as a summary, is whole or absent.
    async fn compact(&self, window: Window) -> Result<Window>;

    /// Returns what remains, and what [`compact`](Self::compact) would store, without storing it. The caller stores it
    /// once the window has been used, or drops it. A strategy with an [`effect`](Self::effect) implements this.
    ///
    /// # Errors
    /// As `compact`.
    ///
    /// # Cancellation
    /// Nothing is stored.
    async fn prepare(&self, window: Window, _: &Preparation) -> Result<Prepared> {
        Ok(self.compact(window).await?.into())
    }
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
