//! How long a text is for a model.

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

/// Counts tokens.
///
/// A message is counted once, when it is appended, and carries its
/// [`token_count`](larder_kernel::ChatMessage::token_count) from then on.
pub trait TokenCounter: fmt::Debug + Send + Sync + 'static {
    /// The name of the encoding, for logs and explanations.
    fn name(&self) -> &str;

    /// The tokens of a text.
    fn count(&self, text: &str) -> u64;

    /// The tokens of a message as it stands: its text, its tool calls and its tool results. What it carries as its
    /// count is not looked at.
    fn count_message(&self, message: &ChatMessage) -> u64 {
        let calls =
            message.tool_calls.iter().map(|call| self.count(&call.name) + self.count(&call.arguments));
        let results = message.tool_results.iter().map(|result| self.count(&result.content));
        self.count(&message.text) + calls.sum::<u64>() + results.sum::<u64>()
    }
}

/// The tokens of a message: what it carries, or else counted now.
pub fn tokens_of(counter: &dyn TokenCounter, message: &ChatMessage) -> u64 {
    message.token_count.map_or_else(|| counter.count_message(message), u64::from)
}

/// The best counter there is for a model: exact where its encoding is published and the feature `tiktoken` is on, else an
/// [estimate](EstimatedTokenCounter).
#[must_use]
pub fn counter_for(model: &str) -> Arc<dyn TokenCounter> {
    #[cfg(feature = "tiktoken")]
    if let Some(counter) = TiktokenCounter::for_model(model) {
        return Arc::new(counter);
    }
    let _ = model;
    Arc::new(EstimatedTokenCounter)
}

/// The message with its count of tokens, where it has none (a count that is too large for the field is the largest).
#[must_use]
pub fn with_tokens(counter: &dyn TokenCounter, mut message: ChatMessage) -> ChatMessage {
    if message.token_count.is_none() {
        message.token_count = Some(u32::try_from(counter.count_message(&message)).unwrap_or(u32::MAX));
    }
    message
}
