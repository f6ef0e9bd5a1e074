//! The models that an agent runtime brings along.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::message::ChatMessage;
use crate::storage::vector::Embedding;

/// Turns texts into embeddings.
#[async_trait]
pub trait Embedder: fmt::Debug + Send + Sync + 'static {
    /// How many dimensions its embeddings have.
    fn dimensions(&self) -> usize;

    /// Embeds texts: one embedding for each, in their order, all of [`dimensions`](Self::dimensions).
    ///
    /// # Errors
    /// The model's own: `Unavailable`, `Timeout`, `ResourceExhausted`, `PermissionDenied`.
    ///
    /// # Cancellation
    /// Nothing is stored; the model's work may be lost.
    async fn embed(&self, texts: &[&str]) -> Result<Vec<Embedding>>;
}

/// What to ask a language model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LanguageModelRequest {
    /// The conversation, oldest first.
    pub messages: Vec<ChatMessage>,
    /// Most tokens of the answer; `None` leaves it to the model.
    pub output_tokens_max: Option<u32>,
}

impl LanguageModelRequest {
    /// Asks with these messages.
    #[must_use]
    pub fn new(messages: Vec<ChatMessage>) -> Self {
        Self { messages, output_tokens_max: None }
    }

    /// Limits the answer.
    #[must_use]
    pub fn with_output_tokens_max(mut self, output_tokens_max: u32) -> Self {
        self.output_tokens_max = Some(output_tokens_max);
        self
    }
}

/// Continues a conversation.
#[async_trait]
pub trait LanguageModel: fmt::Debug + Send + Sync + 'static {
    /// The model's name, for budgets and logs.
    fn name(&self) -> &str;

    /// Answers the conversation with one message of the assistant.
    ///
    /// # Errors
    /// The model's own: `Unavailable`, `Timeout`, `ResourceExhausted`, `PermissionDenied`, `InvalidInput`.
    ///
    /// # Cancellation
    /// Nothing is stored; the model's work may be lost.
    async fn generate(&self, request: LanguageModelRequest) -> Result<ChatMessage>;
}
