//! Conversion between `rig`'s messages and Larder's.

use std::collections::HashMap;

use larder_kernel::{ChatMessage, Error, ErrorKind, Metadata, Result, Role, ToolCall, ToolResult};
use rig_core::completion::Message;
use rig_core::message::{
    AssistantContent, AssistantMessage, ToolCall as RigCall, ToolFunction, ToolName, ToolResult as RigResult,
    ToolResultContent, UserContent,
};
use serde_json::Value;

/// The metadata key of the message as JSON, or of [`IN_TEXT`].
const KEY: &str = "rig";
/// Marks a message whose text is the message as JSON.
const IN_TEXT: &str = "text";
/// The maximum JSON in metadata, which is limited to 64 KiB.
const METADATA_JSON_BYTES_MAX: usize = 60 * 1024;
/// The tool name of a result whose call is unknown.
const UNKNOWN_TOOL: &str = "unknown";

/// Returns the message to store. `reader` has read the earlier messages of the same append.
pub(super) fn written(message: &Message, reader: &mut Reader) -> Result<ChatMessage> {
    let plain = plain(message);
    // Tool names come only from calls in the same append, because no others are known here.
    if reader.read(&plain).is_ok_and(|read| read == *message) {
        return Ok(plain);
    }
    let json = serde_json::to_string(message)
        .map_err(|_| Error::invalid("rig.append", "message", "the value cannot be written as JSON"))?;
    if json.len() <= METADATA_JSON_BYTES_MAX {
        return Ok(plain.with_metadata(Metadata::new().with(KEY, json)));
    }
    Ok(ChatMessage::new(plain.role, json).with_metadata(Metadata::new().with(KEY, IN_TEXT)))
}

/// Returns the part of a message that every program can read.
fn plain(message: &Message) -> ChatMessage {
    match message {
        Message::System { content } => ChatMessage::system(content.clone()),
        Message::User { content } => {
            let texts = content.iter().filter_map(|part| match part {
                UserContent::Text(text) => Some(text.text.as_str()),
                _ => None,
            });
            let results = content.iter().filter_map(|part| match part {
                UserContent::ToolResult(result) => Some(plain_result(result)),
                _ => None,
            });
            let mut message = ChatMessage::tool(results);
            message.text = joined(texts);
            if message.tool_results.is_empty() {
                message.role = Role::User;
            }
            message
        }
        Message::Assistant(answer) => {
            let texts = answer.content.iter().filter_map(|part| match part {
                AssistantContent::Text(text) => Some(text.text.as_str()),
                _ => None,
            });
            let mut message = ChatMessage::assistant(joined(texts));
            message.tool_calls = answer.tool_calls().map(plain_call).collect();
            message
        }
    }
}

fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    texts.collect::<Vec<_>>().join("\n")
}

fn plain_call(call: &RigCall) -> ToolCall {
    let function = &call.function;
    let arguments = match &function.invalid_arguments {
        Some(text) => text.clone(),
        None => function.arguments_value().to_string(),
    };
    ToolCall::new(call.id.wire(), function.name.as_str(), arguments)
}

fn plain_result(result: &RigResult) -> ToolResult {
    let texts = result.content.iter().filter_map(|part| match part {
        ToolResultContent::Text(text) => Some(text.text.clone()),
        ToolResultContent::Json { value } => Some(value.to_string()),
        ToolResultContent::Image(_) => None,
    });
    let content = texts.collect::<Vec<_>>().join("\n");
    ToolResult::new(result.call.wire().into_owned(), content).with_is_error(result.is_error)
}

/// Reads the messages of a thread in order.
#[derive(Default)]
pub(super) struct Reader {
    /// The tools of the calls so far: `rig` requires that a result names its tool.
    tools: HashMap<String, ToolName>,
}

impl Reader {
    pub(super) fn read(&mut self, message: &ChatMessage) -> Result<Message> {
        for call in &message.tool_calls {
            if let Ok(name) = ToolName::new(call.name.as_str()) {
                self.tools.insert(call.id.clone(), name);
            }
        }
        match message.metadata.get(KEY).and_then(Value::as_str) {
            Some(IN_TEXT) => parsed(&message.text),
            Some(json) => parsed(json),
            None => self.converted(message),
        }
    }

    fn converted(&self, message: &ChatMessage) -> Result<Message> {
        let text = (!message.text.is_empty()).then(|| message.text.clone());
        Ok(match message.role {
            Role::System => Message::System { content: message.text.clone() },
            Role::Assistant => {
                let text = text.map(AssistantContent::text);
                let calls = message.tool_calls.iter().map(|call| {
                    let function = ToolFunction::parse(tool_name(&call.name)?, &call.arguments);
                    Ok(AssistantContent::ToolCall(RigCall::from_wire(call.id.as_str(), function)))
                });
                let content = text.into_iter().map(Ok).chain(calls).collect::<Result<_>>()?;
                Message::Assistant(AssistantMessage::new(content))
            }
            Role::User | Role::Tool => {
                let text = text.map(UserContent::text);
                let results = message.tool_results.iter().map(|result| {
                    let name = match self.tools.get(&result.call_id) {
                        Some(name) => name.clone(),
                        None => tool_name(UNKNOWN_TOOL)?,
                    };
                    Ok(UserContent::ToolResult(RigResult {
                        call: rig_core::message::CallId::from_wire(result.call_id.as_str()),
                        name,
                        content: vec![ToolResultContent::text(result.content.clone())],
                        is_error: result.is_error,
                    }))
                });
                let content = results.chain(text.map(Ok)).collect::<Result<_>>()?;
                Message::User { content }
            }
            _ => return Err(Error::unknown_value("rig.load", "role")),
        })
    }
}

fn tool_name(name: &str) -> Result<ToolName> {
    ToolName::new(name).map_err(|_| corrupt())
}

fn parsed(json: &str) -> Result<Message> {
    // The cause could reveal the message.
    serde_json::from_str(json).map_err(|_| corrupt())
}

fn corrupt() -> Error {
    Error::new(
        ErrorKind::Corrupt,
        "rig.load",
        "rig 0.44 cannot represent a stored message; read it with `History`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rig_core::message::Reasoning;
    use serde_json::json;

    fn call() -> RigCall {
        let arguments = json!({"city": "Oslo", "days": 3});
        RigCall::from_wire("c1", ToolFunction::new(ToolName::new("weather").unwrap(), arguments))
    }

    /// Returns the stored messages of one append, and checks that a later reader returns them unchanged.
    fn kept(messages: &[Message]) -> Vec<ChatMessage> {
        let mut reader = Reader::default();
        let stored: Vec<_> = messages.iter().map(|message| written(message, &mut reader).unwrap()).collect();
        let mut later = Reader::default();
        for (stored, message) in stored.iter().zip(messages) {
            stored.check("test").unwrap();
            assert_eq!(later.read(stored).unwrap(), *message);
        }
        stored
    }

    #[test]
    fn fields_of_larder_are_stored_once() {
        let result = call().result(vec![ToolResultContent::text("Snow")]);
        let stored = kept(&[
            Message::system("Be brief"),
            Message::user("Weather?\0"),
            Message::Assistant(AssistantMessage::new(vec![
                AssistantContent::text("Let me see"),
                AssistantContent::ToolCall(call()),
            ])),
            Message::User { content: vec![UserContent::ToolResult(result)] },
            Message::assistant("Snow."),
        ]);
        assert!(stored.iter().all(|message| message.metadata.is_empty()));
        assert_eq!(stored[2].tool_calls[0].name, "weather");
        assert_eq!((stored[3].role, stored[3].tool_results[0].content.as_str()), (Role::Tool, "Snow"));
    }

    #[test]
    fn unknown_fields_are_stored_in_metadata() {
        let thoughts =
            vec![AssistantContent::Reasoning(Reasoning::new("hm")), AssistantContent::text("Snow")];
        let image = UserContent::image_base64("AA".repeat(50_000), None, None);
        let json = call().error_result(vec![ToolResultContent::Json { value: json!({"\0": 1}) }]);
        let stored = kept(&[
            Message::Assistant(AssistantMessage::new(thoughts)),
            Message::User { content: vec![UserContent::text("a"), UserContent::text("b")] },
            Message::User { content: vec![image, UserContent::text("What is this?")] },
            Message::User { content: vec![UserContent::ToolResult(json)] },
            Message::assistant(""),
            Message::User { content: vec![] },
        ]);
        assert_eq!(stored[0].text, "Snow");
        assert_eq!(stored[1].text, "a\nb");
        assert!(stored[2].text.len() > 100_000, "too large for metadata");
    }

    #[test]
    fn a_corrupt_message_is_refused_and_not_shown() {
        let stored = ChatMessage::user("x").with_metadata(Metadata::new().with(KEY, "{\"secret\""));
        let error = Reader::default().read(&stored).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(!format!("{error:?}").contains("secret"));
    }
}
