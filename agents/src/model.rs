//! Language models and embedders over HTTP.

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

/// The metadata key for the reason that a model stopped early: `"length"` if its answer was cut off.
pub const FINISH_REASON: &str = "finish_reason";

/// Returns `true` if a model's answer was cut off at its limit.
#[must_use]
pub fn is_cut_off(message: &larder_kernel::ChatMessage) -> bool {
    message.metadata.get(FINISH_REASON).and_then(serde_json::Value::as_str) == Some("length")
}
