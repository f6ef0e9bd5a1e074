//! Lines in the common format of chat models.

use larder_kernel::{ChatMessage, Error, Metadata, Result, Role, ToolResult, json_equal};
use serde_json::Value;
use serde_json::value::RawValue;

use super::content::{self, Content};
use super::envelope::Envelope;
use super::fields::{Fields, has_unique_names, is_plain, is_spelled_plainly};
use super::record::Record;
use super::{CALL_ID, CALLS, DEVELOPER, ENVELOPE, PARSE, RECORD, ROLE, calls, to_lines};

/// Returns the message of a line that Larder wrote, with its envelope.
pub(super) fn enveloped(line: &str, mut fields: Fields) -> Option<ChatMessage> {
    let envelope = Envelope::take(&mut fields)?;
    message(fields, Some(envelope)).ok().filter(|message| is_returned(message, line))
}

/// Returns `true` for a line whose fields a message stores without another form.
pub(super) fn is_common(fields: &Fields) -> bool {
    let role = fields.get_text(ROLE);
    let is_object = |name: &str| fields.get(name).is_some_and(|written| written.get().starts_with('{'));
    let is_tool = role.as_deref() == Some("tool");
    let has_id = fields.get_text(CALL_ID).is_some_and(|id| !id.is_empty());
    let content = fields.get("content").map(RawValue::get);
    let nothing = content.is_none_or(|content| content == "null");
    let otherwise = is_object("audio") || fields.get_text("refusal").is_some_and(|said| !said.is_empty());
    let is_other_output = nothing && otherwise;
    let is_other_result = is_tool && (!has_id || is_object("content"));
    !matches!(role.as_deref(), Some("function" | "model"))
        && !fields.has("parts")
        && !is_object("function_call")
        && !is_other_output
        && !is_other_result
        && content.is_none_or(content::is_text_only)
        && fields.get(CALLS).is_none_or(calls::are_common)
}

fn is_returned(message: &ChatMessage, line: &str) -> bool {
    let Ok(written) = to_lines(message) else { return false };
    let [written] = &*written else { return false };
    let values = [written, line].map(|text| serde_json::from_str::<Value>(text).ok());
    matches!(values, [Some(written), Some(line)] if json_equal(&written, &line))
}

pub(super) fn message(mut fields: Fields, envelope: Option<Envelope>) -> Result<ChatMessage> {
    let mut record = Record::default();
    let role = role(&mut fields, &mut record)?;
    let mut message = ChatMessage::new(role, "");
    let (text, content) = Content::take(&mut fields)?;
    check_content(role, &content, &fields)?;
    record.content = content;
    match fields.take(CALLS) {
        Some(written) if calls::asks_nothing(&written) => fields.push(CALLS, written),
        Some(written) if role == Role::Assistant || envelope.is_some() => {
            (message.tool_calls, record.tool_calls) = calls::parse(&written)?;
        }
        Some(_) => return Err(Error::invalid(PARSE, CALLS, "only an assistant calls tools")),
        None => {}
    }
    if role == Role::Tool && (envelope.is_none() || fields.has(CALL_ID)) {
        let mut result = ToolResult::new(fields.take_text(CALL_ID, CALL_ID)?, text);
        let is_error = fields.take("is_error");
        result.is_error = is_error.as_ref().is_some_and(|written| written.get() == "true");
        if let Some(written) = is_error {
            fields.push("is_error", written);
        }
        message.tool_results.push(result);
    } else {
        message.text = text;
    }
    keep(fields, &mut message.metadata, &mut record, envelope.is_some())?;
    record.envelope = envelope.is_some();
    if let Some(envelope) = envelope {
        envelope.open(&mut message);
    }
    if !record.is_superfluous() {
        message.metadata.insert(RECORD, record.to_text()?);
    }
    message.check(PARSE)?;
    Ok(message)
}

fn role(fields: &mut Fields, record: &mut Record) -> Result<Role> {
    let role = fields.take_text(ROLE, ROLE)?;
    match role.as_str() {
        "system" => Ok(Role::System),
        DEVELOPER => {
            record.developer = true;
            Ok(Role::System)
        }
        "user" => Ok(Role::User),
        "assistant" => Ok(Role::Assistant),
        "tool" => Ok(Role::Tool),
        _ => Err(Error::invalid(
            PARSE,
            ROLE,
            "not one of system, developer, user, assistant, model, tool and function",
        )),
    }
}

/// Only a message with tool calls, a refusal or other output may have no content.
fn check_content(role: Role, content: &Content, fields: &Fields) -> Result<()> {
    let otherwise = [CALLS, "function_call", "refusal", "audio"];
    let missing = matches!(content, Content::Absent);
    if missing && !(role == Role::Assistant && otherwise.iter().any(|name| fields.has(name))) {
        return Err(Error::invalid(PARSE, "content", "missing"));
    }
    Ok(())
}

/// Stores each field where every backend returns it unchanged.
pub(super) fn keep(
    fields: Fields,
    metadata: &mut Metadata,
    record: &mut Record,
    numbers: bool,
) -> Result<()> {
    for (name, written) in fields {
        let value: Value = serde_json::from_str(written.get())
            .map_err(|_| Error::invalid(PARSE, "line", "not JSON that can be read"))?;
        let reserved = name == RECORD || name == ENVELOPE || name.contains('\0');
        let spelled =
            has_unique_names(written.get(), &value) && (numbers || is_spelled_plainly(written.get()));
        if reserved || !spelled || !is_plain(&value, numbers) {
            record.fields.push(name, written);
        } else {
            metadata.insert(name, value);
        }
    }
    Ok(())
}
