//! Model traits that an agent runtime implements.

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::message::ChatMessage;
use crate::storage::vector::Embedding;

/// A model that turns texts into embeddings.
#[async_trait]
pub trait Embedder: fmt::Debug + Send + Sync + 'static {
    /// Returns the number of dimensions of the embeddings.
    fn dimensions(&self) -> usize;

    /// Embeds texts. Returns one embedding for each text, in the same order, each with
    /// [`dimensions`](Self::dimensions) dimensions.
    ///
    /// # Errors
    /// The errors of the model: `Unavailable`, `Timeout`, `ResourceExhausted`, `PermissionDenied`.
    ///
    /// # Cancellation
    /// Dropping the future stores nothing. The model's work may be lost.
    async fn embed(&self, texts: &[&str]) -> Result<Vec<Embedding>>;
}

/// A request to a language model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LanguageModelRequest {
    /// The conversation, oldest message first.
    pub messages: Vec<ChatMessage>,
    /// The maximum number of tokens in the reply; `None` uses the model's default.
    pub output_tokens_max: Option<u32>,
}

impl LanguageModelRequest {
    /// Creates a request with these messages.
    #[must_use]
    pub fn new(messages: Vec<ChatMessage>) -> Self {
        Self { messages, output_tokens_max: None }
    }

    /// Limits the number of tokens in the reply.
    #[must_use]
    pub fn with_output_tokens_max(mut self, output_tokens_max: u32) -> Self {
        self.output_tokens_max = Some(output_tokens_max);
        self
    }
}

/// A model that continues a conversation.
#[async_trait]
pub trait LanguageModel: fmt::Debug + Send + Sync + 'static {
    /// Returns the model's name, for budgets and logs.
    fn name(&self) -> &str;

    /// Returns the assistant's next message of the conversation.
    ///
    /// # Errors
    /// The errors of the model: `Unavailable`, `Timeout`, `ResourceExhausted`, `PermissionDenied`,
    /// `InvalidInput`.
    ///
    /// # Cancellation
    /// Dropping the future stores nothing. The model's work may be lost.
    async fn generate(&self, request: LanguageModelRequest) -> Result<ChatMessage>;
}
