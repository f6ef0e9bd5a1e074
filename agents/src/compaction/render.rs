//! Conversion of a conversation to text, for a model that shortens it.

use larder_kernel::{ChatMessage, Role};

/// Writes a conversation as text: each message under the name of its author, tool calls after the model's
/// text, and tool results as separate entries.
///
/// ```
/// use larder_agents::compaction::render_transcript;
/// use larder_kernel::ChatMessage;
///
/// let messages = [ChatMessage::user("Where to?"), ChatMessage::assistant("Oslo.")];
/// assert_eq!(render_transcript(&messages), "\n\nUSER:\nWhere to?\n\nAI:\nOslo.");
/// ```
pub fn render_transcript<'a>(messages: impl IntoIterator<Item = &'a ChatMessage>) -> String {
    let mut text = String::new();
    for message in messages {
        let said = !message.text.is_empty() || !message.tool_calls.is_empty() || !message.blobs.is_empty();
        if said {
            let speaker = match message.role {
                Role::Assistant => "AI".to_owned(),
                role => role.as_str().to_uppercase(),
            };
            text.push_str(&format!("\n\n{speaker}:\n{}", message.text));
        }
        for call in &message.tool_calls {
            text.push_str(&format!(
                "\n\tTOOL_CALL_REQUEST: id={}, name={}, args={}\n",
                call.id, call.name, call.arguments
            ));
        }
        for blob in &message.blobs {
            text.push_str(&format!("\n\tFILE: {}\n", blob.key.as_str()));
        }
        for result in &message.tool_results {
            let kind = if result.is_error { "TOOL_CALL_ERROR" } else { "TOOL_CALL_RESPONSE" };
            text.push_str(&format!("\n\n{kind}: id={}\n{}", result.call_id, result.content));
        }
    }
    text
}
