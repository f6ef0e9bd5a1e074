//! The representation of messages in tool results.

use larder_kernel::{ChatMessage, StoredMessage};
use rmcp::schemars::JsonSchema;
use serde::Serialize;

use crate::adapters::mcp::answer::cut;

/// The maximum text of one message in a listing, including tool calls and results, in bytes.
const MESSAGE_BYTES_SHOWN: usize = 32 * 1024;
/// The maximum number of tool calls, and of tool results, that a listing shows of one message.
const PARTS_SHOWN: usize = 32;

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
pub(crate) struct MessageView {
    /// The position in the conversation.
    pub(crate) seq: i64,
    /// `system`, `user`, `assistant` or `tool`.
    role: &'static str,
    /// The agent that wrote the message, if several agents share the conversation.
    #[serde(skip_serializing_if = "Option::is_none")]
    author: Option<String>,
    /// The role of the author.
    #[serde(skip_serializing_if = "Option::is_none")]
    author_role: Option<String>,
    /// The run that wrote the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<String>,
    /// The time of writing, in RFC 3339.
    created_at: String,
    text: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<CallView>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_results: Vec<ResultView>,
    /// `true` if the listing cut or omitted a part; conversation_message reads the whole message.
    truncated: bool,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct CallView {
    id: String,
    name: String,
    /// The arguments as the model wrote them.
    arguments: String,
}

#[derive(Serialize, JsonSchema)]
#[schemars(crate = "rmcp::schemars")]
struct ResultView {
    /// The id of the tool call that this result belongs to.
    call_id: String,
    content: String,
    is_error: bool,
}

/// Cuts texts to a shared budget.
struct Cutter {
    left: usize,
    truncated: bool,
}

impl Cutter {
    fn shown(&mut self, text: &str) -> String {
        let shown = cut(text, self.left);
        self.truncated |= shown.len() < text.len();
        self.left -= shown.len();
        shown.to_owned()
    }
}

impl From<&StoredMessage> for MessageView {
    fn from(stored: &StoredMessage) -> Self {
        let message: &ChatMessage = &stored.message;
        let mut cutter = Cutter { left: MESSAGE_BYTES_SHOWN, truncated: false };
        cutter.truncated = message.tool_calls.len() > PARTS_SHOWN
            || message.tool_results.len() > PARTS_SHOWN
            || !message.blobs.is_empty()
            || !message.metadata.is_empty();
        let text = cutter.shown(&message.text);
        let calls = message.tool_calls.iter().take(PARTS_SHOWN).map(|call| CallView {
            id: call.id.clone(),
            name: call.name.clone(),
            arguments: cutter.shown(&call.arguments),
        });
        let tool_calls = calls.collect();
        let results = message.tool_results.iter().take(PARTS_SHOWN).map(|result| ResultView {
            call_id: result.call_id.clone(),
            content: cutter.shown(&result.content),
            is_error: result.is_error,
        });
        let tool_results = results.collect();
        let author = message.author.as_ref();
        Self {
            seq: stored.seq.get(),
            role: message.role.as_str(),
            author: author.map(|author| author.agent.to_string()),
            author_role: author.and_then(|author| author.role.as_ref()).map(ToString::to_string),
            run: message.run.as_ref().map(ToString::to_string),
            created_at: message.created_at.to_string(),
            text,
            tool_calls,
            tool_results,
            truncated: cutter.truncated,
        }
    }
}
