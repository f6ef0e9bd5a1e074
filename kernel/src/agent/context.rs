//! How a conversation becomes what the model reads.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;

use crate::error::Result;
use crate::id::SessionId;
use crate::message::ChatMessage;

/// How far back a strategy needs to read, so that a window over a long thread reads no more (PK-4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Reach {
    /// The newest messages, this many.
    Messages(usize),
    /// All of the thread.
    Everything,
}

/// One step from the stored conversation to the model's window (RAVI-5).
///
/// A strategy makes a view; the stored conversation stays as it is. Strategies compose: each is given what the one
/// before returned.
#[async_trait]
pub trait CompactionStrategy: fmt::Debug + Send + Sync + 'static {
    /// How far back the strategy needs to read to return what it would return for the whole thread.
    fn reach(&self) -> Reach;

    /// Returns the messages that remain, oldest first.
    ///
    /// # Errors
    /// What the strategy's model or store returns; a strategy that fails has lost nothing.
    ///
    /// # Cancellation
    /// Nothing is stored.
    async fn compact(&self, window: Vec<Arc<ChatMessage>>) -> Result<Vec<Arc<ChatMessage>>>;
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
    async fn get_prompt_window(&self, session: &SessionId) -> Result<Vec<Arc<ChatMessage>>>;
}
