//! The server's JSON format of requests and replies.

use larder_kernel::{
    BlobRef, ChatMessage, ErrorKind, LanguageModelRequest, Metadata, Result, Role, ToolCall, ToolResult,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::config::{OpenAiConfig, OutputLimitField};
use super::transport::failure;
use super::{Completion, FinishReason, GENERATE, Usage};
use crate::model::FINISH_REASON;

/// Returns the body of a chat request.
pub(super) fn chat_request(config: &OpenAiConfig, request: &LanguageModelRequest) -> Value {
    let messages: Vec<Value> = request.messages.iter().flat_map(wire_messages).collect();
    let mut body = Map::new();
    body.insert("model".into(), json!(config.model));
    body.insert("messages".into(), Value::Array(messages));
    if let Some(tokens_max) = request.output_tokens_max {
        let field = match config.output_limit_field {
            OutputLimitField::MaxCompletionTokens => "max_completion_tokens",
            OutputLimitField::MaxTokens => "max_tokens",
        };
        body.insert(field.into(), json!(tokens_max));
    }
    if config.json_mode {
        body.insert("response_format".into(), json!({"type": "json_object"}));
    }
    if !config.tools.is_empty() {
        body.insert("tools".into(), json!(config.tools));
    }
    Value::Object(body)
}

/// Returns a message in the server's format: one message per tool result, then one for the text.
fn wire_messages(message: &ChatMessage) -> Vec<Value> {
    let mut wire: Vec<Value> = message.tool_results.iter().map(wire_result).collect();
    let text = text_with_files(&message.text, &message.blobs);
    let said = !text.is_empty() || !message.tool_calls.is_empty();
    if !said && (message.role == Role::Tool || !wire.is_empty()) {
        return wire;
    }
    // The server accepts a tool message only as the result of a call, so text next to results gets the role
    // of the user.
    let role = if message.role == Role::Tool { Role::User } else { message.role };
    let mut said = json!({"role": role.as_str(), "content": text});
    if !message.tool_calls.is_empty() {
        if text.is_empty() {
            said["content"] = Value::Null;
        }
        said["tool_calls"] = message.tool_calls.iter().map(wire_call).collect();
    }
    wire.push(said);
    wire
}

fn wire_call(call: &ToolCall) -> Value {
    json!({
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    })
}

/// Returns a tool result. The server's format has no failed results, so the text marks them.
fn wire_result(result: &ToolResult) -> Value {
    let content = if result.is_error { format!("Error: {}", result.content) } else { result.content.clone() };
    json!({"role": "tool", "tool_call_id": result.call_id, "content": content})
}

/// Adds the names of files to a text. Their contents are not sent, because the server cannot read the blob
/// store.
fn text_with_files(text: &str, blobs: &[BlobRef]) -> String {
    let mut whole = text.to_owned();
    for blob in blobs {
        if !whole.is_empty() {
            whole.push('\n');
        }
        let kind = blob.content_type.as_deref().unwrap_or("unknown type");
        whole.push_str(&format!("[file {} ({kind})]", blob.key.as_str()));
    }
    whole
}

#[derive(Deserialize)]
pub(super) struct ChatResponse {
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Option<WireUsage>,
}

#[derive(Deserialize)]
struct Choice {
    message: WireAnswer,
    #[serde(default)]
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct WireAnswer {
    #[serde(default)]
    content: Option<String>,
    #[serde(default)]
    refusal: Option<String>,
    #[serde(default)]
    tool_calls: Option<Vec<WireCall>>,
}

#[derive(Deserialize)]
struct WireCall {
    #[serde(default)]
    id: Option<String>,
    function: WireFunction,
}

#[derive(Deserialize)]
struct WireFunction {
    name: String,
    #[serde(default)]
    arguments: Value,
}

#[derive(Deserialize)]
struct WireUsage {
    #[serde(default)]
    prompt_tokens: u64,
    #[serde(default)]
    completion_tokens: u64,
}

impl ChatResponse {
    /// Returns the first answer as a message, checked against the limits of a stored one.
    pub(super) fn into_completion(self) -> Result<Completion> {
        let unexpected = |message| failure(ErrorKind::Unexpected, GENERATE, message);
        let choice = self.choices.into_iter().next().ok_or_else(|| {
            unexpected("the server's response contains no message; check the URL and the model's name")
        })?;
        let finish = FinishReason::parse(choice.finish_reason.as_deref());
        let refused = choice.message.refusal.is_some_and(|refusal| !refusal.is_empty());
        if refused || finish == FinishReason::Refused {
            return Err(failure(
                ErrorKind::PermissionDenied,
                GENERATE,
                "the model refused to answer; change the messages",
            ));
        }
        let mut message = ChatMessage::assistant(choice.message.content.unwrap_or_default());
        for (index, call) in choice.message.tool_calls.into_iter().flatten().enumerate() {
            let arguments = match call.function.arguments {
                Value::String(text) => text,
                Value::Null => "{}".to_owned(),
                object => object.to_string(),
            };
            let id = call.id.filter(|id| !id.is_empty()).unwrap_or_else(|| format!("call_{index}"));
            message = message.with_tool_call(ToolCall::new(id, call.function.name, arguments));
        }
        if finish == FinishReason::Length {
            message.metadata = Metadata::new().with(FINISH_REASON, "length");
        }
        message.check(GENERATE).map_err(|_| {
            unexpected("the response exceeds the limits of a message; request a shorter response")
        })?;
        let usage = self.usage.map_or_else(Usage::default, |usage| Usage {
            input_tokens: usage.prompt_tokens,
            output_tokens: usage.completion_tokens,
        });
        Ok(Completion { message, finish, usage })
    }
}

#[derive(Serialize)]
pub(super) struct EmbeddingRequest<'a> {
    pub(super) model: &'a str,
    pub(super) input: &'a [&'a str],
    pub(super) encoding_format: &'static str,
}

#[derive(Deserialize)]
pub(super) struct EmbeddingResponse {
    pub(super) data: Vec<WireEmbedding>,
}

#[derive(Deserialize)]
pub(super) struct WireEmbedding {
    pub(super) index: usize,
    pub(super) embedding: Vec<f32>,
}
