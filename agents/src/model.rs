//! Models over the wire.

#[cfg(feature = "http")]
mod openai;
#[cfg(feature = "test-server")]
mod test_server;

#[cfg(feature = "http")]
pub use openai::{
    Completion, FinishReason, OpenAiConfig, OpenAiEmbedder, OpenAiModel, OutputLimitField, Usage,
};
#[cfg(feature = "test-server")]
pub use test_server::{ScriptedModelServer, ScriptedReply, ScriptedRequest};

/// The key in a message's metadata that says why a model stopped early: `"length"` where its answer was cut off.
pub const FINISH_REASON: &str = "finish_reason";

/// Whether a model's answer was cut off at its limit.
#[must_use]
pub fn is_cut_off(message: &larder_kernel::ChatMessage) -> bool {
    message.metadata.get(FINISH_REASON).and_then(serde_json::Value::as_str) == Some("length")
}
