//! Token counts of texts.

mod estimate;
#[cfg(feature = "huggingface")]
mod huggingface;
mod models;
#[cfg(feature = "tiktoken")]
mod tiktoken;

use std::fmt;
use std::sync::Arc;

pub use estimate::EstimatedTokenCounter;
#[cfg(feature = "huggingface")]
pub use huggingface::HuggingFaceCounter;
pub use models::{Encoding, context_tokens_of, encoding_of};
#[cfg(feature = "tiktoken")]
pub use tiktoken::TiktokenCounter;

use larder_kernel::ChatMessage;

/// A counter of tokens.
///
/// A message is counted once, when it is appended. From then on it carries its
/// [`token_count`](larder_kernel::ChatMessage::token_count).
pub trait TokenCounter: fmt::Debug + Send + Sync + 'static {
    /// Returns the name of the encoding, for logs and explanations.
    fn name(&self) -> &str;

    /// Returns the number of tokens in a text.
    fn count(&self, text: &str) -> u64;

    /// Counts the tokens of a message's current content: its text, its tool calls and its tool results.
    /// Ignores the count that the message carries.
    fn count_message(&self, message: &ChatMessage) -> u64 {
        let calls =
            message.tool_calls.iter().map(|call| self.count(&call.name) + self.count(&call.arguments));
        let results = message.tool_results.iter().map(|result| self.count(&result.content));
        self.count(&message.text) + calls.sum::<u64>() + results.sum::<u64>()
    }
}

/// Returns the token count that a message carries, or counts its tokens.
pub fn tokens_of(counter: &dyn TokenCounter, message: &ChatMessage) -> u64 {
    message.token_count.map_or_else(|| counter.count_message(message), u64::from)
}

/// Returns the best available counter for a model. It is exact if the model's encoding is published and the
/// feature `tiktoken` is enabled, otherwise an [estimate](EstimatedTokenCounter).
#[must_use]
pub fn counter_for(model: &str) -> Arc<dyn TokenCounter> {
    #[cfg(feature = "tiktoken")]
    if let Some(counter) = TiktokenCounter::for_model(model) {
        return Arc::new(counter);
    }
    let _ = model;
    Arc::new(EstimatedTokenCounter)
}

/// Sets a message's token count if it has none. A count that exceeds the field is stored as the field's
/// largest value.
#[must_use]
pub fn with_tokens(counter: &dyn TokenCounter, mut message: ChatMessage) -> ChatMessage {
    if message.token_count.is_none() {
        message.token_count = Some(u32::try_from(counter.count_message(&message)).unwrap_or(u32::MAX));
    }
    message
}
