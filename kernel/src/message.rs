//! The messages of a conversation.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::check;
use crate::error::{Error, Result};
use crate::id::{AgentId, AgentRole, RunId};
use crate::limits::{CONTENT_TYPE_BYTES_MAX, ID_BYTES_MAX, MESSAGE_BYTES_MAX, MESSAGE_PARTS_MAX};
use crate::metadata::Metadata;
use crate::storage::blob::BlobKey;
use crate::timestamp::Timestamp;

/// The speaker of a message, in the terms of chat models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// Instructions to the model.
    System,
    /// The user, or a program that acts as the user.
    User,
    /// The model.
    Assistant,
    /// The results of tools.
    Tool,
}

impl Role {
    /// Returns the name used in JSON.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// A model's request to run a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolCall {
    /// The id that the result refers to. The model assigns it, and it is unique within its message.
    pub id: String,
    /// The name of the tool.
    pub name: String,
    /// The arguments as the model wrote them, normally JSON. They are stored as text, so arguments that are
    /// not valid JSON are kept unchanged.
    pub arguments: String,
}

impl ToolCall {
    /// Creates a call of the tool `name` with `arguments` as JSON text.
    #[must_use]
    pub fn new(id: impl Into<String>, name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self { id: id.into(), name: name.into(), arguments: arguments.into() }
    }

    /// Parses the arguments as JSON.
    ///
    /// # Errors
    /// `InvalidInput` naming `arguments` if the model did not write valid JSON.
    pub fn arguments_json(&self) -> Result<Value> {
        serde_json::from_str(&self.arguments)
            .map_err(|_| Error::invalid("message.arguments_json", "arguments", "not JSON"))
    }
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolResult {
    /// The [`ToolCall::id`] of the call that produced this result.
    pub call_id: String,
    /// The result as text.
    pub content: String,
    /// `true` if the tool failed.
    #[serde(default)]
    pub is_error: bool,
}

impl ToolResult {
    /// Creates a successful result of the call `call_id`.
    #[must_use]
    pub fn new(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self { call_id: call_id.into(), content: content.into(), is_error: false }
    }

    /// Creates a failed result of the call `call_id`.
    #[must_use]
    pub fn error(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self { call_id: call_id.into(), content: content.into(), is_error: true }
    }

    /// Sets whether the tool failed.
    #[must_use]
    pub fn with_is_error(mut self, is_error: bool) -> Self {
        self.is_error = is_error;
        self
    }
}

/// A reference to a file that belongs to a message and is stored in a [`BlobStore`](crate::BlobStore).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BlobRef {
    /// The key of the blob.
    pub key: BlobKey,
    /// The media type, for example `image/png`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The size in bytes, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
}

impl BlobRef {
    /// Creates a reference to the blob under `key`.
    #[must_use]
    pub fn new(key: BlobKey) -> Self {
        Self { key, content_type: None, size_bytes: None }
    }

    /// Sets the media type.
    #[must_use]
    pub fn with_content_type(mut self, content_type: impl Into<Option<String>>) -> Self {
        self.content_type = content_type.into();
        self
    }

    /// Sets the size in bytes.
    #[must_use]
    pub fn with_size_bytes(mut self, size_bytes: u64) -> Self {
        self.size_bytes = Some(size_bytes);
        self
    }
}

/// The agent that wrote a message, in a session that several agents share.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Author {
    /// The agent's id.
    pub agent: AgentId,
    /// The agent's role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<AgentRole>,
}

impl Author {
    /// Creates an author without a role.
    #[must_use]
    pub fn new(agent: AgentId) -> Self {
        Self { agent, role: None }
    }

    /// Sets the role of the agent.
    #[must_use]
    pub fn with_role(mut self, role: impl Into<Option<AgentRole>>) -> Self {
        self.role = role.into();
        self
    }
}

/// One message of a conversation.
///
/// Text, arguments and results are any UTF-8, NUL included, and are read back byte for byte.
///
/// ```
/// use larder_kernel::{ChatMessage, ToolCall, ToolResult};
///
/// let question = ChatMessage::user("What is the weather in Oslo?");
/// let call = ToolCall::new("c1", "weather", r#"{"city":"Oslo"}"#);
/// let call = ChatMessage::assistant("").with_tool_call(call);
/// let answer = ChatMessage::tool([ToolResult::new("c1", "Snow, -3 °C")]);
/// assert_eq!(question.size_bytes(), 28);
/// assert_eq!(call.tool_calls[0].arguments_json()?["city"], "Oslo");
/// assert!(!answer.tool_results[0].is_error);
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ChatMessage {
    /// The speaker.
    pub role: Role,
    /// The text of the message. It is empty if the message only has tool calls or tool results.
    #[serde(default)]
    pub text: String,
    /// The tools that the model asks to run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The results of tools.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_results: Vec<ToolResult>,
    /// The files that belong to the message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blobs: Vec<BlobRef>,
    /// The agent that wrote the message, if several agents share the thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
    /// The run in which the message was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// The time of writing, by the writer's clock. It is informational and does not determine the order of
    /// messages.
    pub created_at: Timestamp,
    /// Additional data. Its size counts against the limit of the message, 4 MiB.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
    /// The length in tokens, if it was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_count: Option<u32>,
}

impl ChatMessage {
    /// Creates a message of `role` with `text`, with the current time.
    #[must_use]
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        Self::new_at(role, text, Timestamp::now())
    }

    /// Creates a message of `role` with `text`, written at `created_at`. It does not read the clock.
    #[must_use]
    pub fn new_at(role: Role, text: impl Into<String>, created_at: Timestamp) -> Self {
        Self {
            role,
            text: text.into(),
            tool_calls: Vec::new(),
            tool_results: Vec::new(),
            blobs: Vec::new(),
            author: None,
            run: None,
            created_at,
            metadata: Metadata::new(),
            token_count: None,
        }
    }

    /// Creates a message with instructions to the model.
    #[must_use]
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(Role::System, text)
    }

    /// Creates a message of the user.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, text)
    }

    /// Creates a message of the model.
    #[must_use]
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, text)
    }

    /// Creates a message with the results of tools.
    #[must_use]
    pub fn tool(results: impl IntoIterator<Item = ToolResult>) -> Self {
        let mut message = Self::new(Role::Tool, "");
        message.tool_results = results.into_iter().collect();
        message
    }

    /// Creates a message with the result of one tool call, identified by the call's id.
    ///
    /// ```
    /// # extern crate larder_kernel as larder;
    /// use larder::{ChatMessage, ToolCall};
    ///
    /// let call = ToolCall::new("call-1", "weather", r#"{"city":"Oslo"}"#);
    /// let question = ChatMessage::assistant("").with_tool_calls([call]);
    /// let answer = ChatMessage::tool_result("call-1", "rain, 4 °C");
    /// assert_eq!(question.to_string(), "[calls weather({\"city\":\"Oslo\"})]");
    /// assert_eq!(answer.to_string(), "[result of call-1: rain, 4 °C]");
    /// ```
    #[must_use]
    pub fn tool_result(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self::tool([ToolResult::new(call_id, content)])
    }

    /// Returns the text. It is empty in a message that only has tool calls or tool results; `Display` shows
    /// these as well.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Adds tool calls.
    #[must_use]
    pub fn with_tool_calls(mut self, calls: impl IntoIterator<Item = ToolCall>) -> Self {
        self.tool_calls.extend(calls);
        self
    }

    /// Adds a tool call.
    #[must_use]
    pub fn with_tool_call(mut self, call: ToolCall) -> Self {
        self.tool_calls.push(call);
        self
    }

    /// Adds a file.
    #[must_use]
    pub fn with_blob(mut self, blob: BlobRef) -> Self {
        self.blobs.push(blob);
        self
    }

    /// Sets the run.
    #[must_use]
    pub fn with_run(mut self, run: RunId) -> Self {
        self.run = Some(run);
        self
    }

    /// Sets the author: the agent that wrote the message, and its role.
    #[must_use]
    pub fn with_author(mut self, agent: AgentId, role: Option<AgentRole>) -> Self {
        self.author = Some(Author::new(agent).with_role(role));
        self
    }

    /// Sets the time of writing.
    #[must_use]
    pub fn with_created_at(mut self, created_at: Timestamp) -> Self {
        self.created_at = created_at;
        self
    }

    /// Sets the metadata.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }

    /// Sets the length in tokens.
    #[must_use]
    pub fn with_token_count(mut self, token_count: u32) -> Self {
        self.token_count = Some(token_count);
        self
    }

    /// Returns the size of the message in bytes. The size is the sum of its text, the ids, names, arguments
    /// and contents of its tool calls and results, its blob keys, and its metadata as
    /// [`Metadata::size_bytes`] measures it. The size is the same on every backend, independent of how the
    /// backend stores the message.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        let calls = self.tool_calls.iter().map(|call| call.id.len() + call.name.len() + call.arguments.len());
        let results = self.tool_results.iter().map(|result| result.call_id.len() + result.content.len());
        let blobs = self.blobs.iter().map(|blob| blob.key.as_str().len());
        self.text.len()
            + calls.sum::<usize>()
            + results.sum::<usize>()
            + blobs.sum::<usize>()
            + self.metadata.size_bytes()
    }

    /// Checks the sizes and the content of the message for `operation`.
    ///
    /// # Errors
    /// `InvalidInput` naming the field and the limit.
    pub fn check(&self, operation: &'static str) -> Result<()> {
        self.checked_bytes(operation).map(drop)
    }

    /// Performs [`Self::check`] and returns [`Self::size_bytes`].
    pub(crate) fn checked_bytes(&self, operation: &'static str) -> Result<usize> {
        let parts = |field, count| check::at_most(operation, field, count, MESSAGE_PARTS_MAX);
        parts("message.tool_calls", self.tool_calls.len())?;
        parts("message.tool_results", self.tool_results.len())?;
        parts("message.blobs", self.blobs.len())?;
        for call in &self.tool_calls {
            check_name(operation, "message.tool_calls.id", &call.id)?;
            check_name(operation, "message.tool_calls.name", &call.name)?;
        }
        for result in &self.tool_results {
            check_name(operation, "message.tool_results.call_id", &result.call_id)?;
        }
        for content_type in self.blobs.iter().filter_map(|blob| blob.content_type.as_deref()) {
            check::text(operation, "message.blobs.content_type", content_type, CONTENT_TYPE_BYTES_MAX)?;
        }
        // Metadata has no separate limit, because providers put images and other large data into it.
        self.metadata.check_content(operation, "message.metadata")?;
        let bytes = self.size_bytes();
        check::at_most(operation, "message", bytes, MESSAGE_BYTES_MAX)?;
        Ok(bytes)
    }

    /// Adds results of tools.
    #[must_use]
    pub fn with_tool_results(mut self, tool_results: impl IntoIterator<Item = ToolResult>) -> Self {
        self.tool_results.extend(tool_results);
        self
    }

    /// Adds files.
    #[must_use]
    pub fn with_blobs(mut self, blobs: impl IntoIterator<Item = BlobRef>) -> Self {
        self.blobs.extend(blobs);
        self
    }
}

impl fmt::Display for ChatMessage {
    /// Writes the text, then each tool call, tool result and file in brackets, separated by spaces.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if !self.text.is_empty() {
            parts.push(self.text.clone());
        }
        parts.extend(self.tool_calls.iter().map(|call| format!("[calls {}({})]", call.name, call.arguments)));
        parts.extend(self.tool_results.iter().map(|result| {
            let what = if result.is_error { "error" } else { "result" };
            format!("[{what} of {}: {}]", result.call_id, result.content)
        }));
        parts.extend(self.blobs.iter().map(|blob| format!("[file {}]", blob.key)));
        f.write_str(&parts.join(" "))
    }
}

fn check_name(operation: &'static str, field: &'static str, name: &str) -> Result<()> {
    check::at_least(operation, field, name.len(), 1)?;
    check::at_most(operation, field, name.len(), ID_BYTES_MAX)?;
    check::no_nul(operation, field, name)
}
