//! Transcripts: conversations as files with one JSON object per message and line, in the common format of
//! chat models.
//!
//! ```text
//! {"role": "user", "content": "What is the weather in Oslo?", "lang": "en"}
//! {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function",
//!     "function": {"name": "weather", "arguments": "{\"city\":\"Oslo\"}"}}]}
//! {"role": "tool", "tool_call_id": "c1", "content": "Snow, -3 °C"}
//! ```
//!
//! [`parse_line`] converts a line into a message, and [`to_lines`] converts a message into lines, without
//! losing a field. Data without a field in the message is kept in its metadata.
//!
//! If every backend returns a value unchanged, it is stored under its own name, where you can read it and
//! filter by it. Other values are stored as text under [`RECORD`]: values that a backend may write
//! differently (`1e16`, `-0.0`, NUL, integers of more than 64 bits), and the difference between `null` and a
//! missing `content`.
//!
//! | in the line | in the message |
//! |---|---|
//! | `role`: `system`, `developer`, `user`, `assistant`, `tool` | `role`; `developer` is `System` |
//! | `content`: text, `null`, or a list of parts | `text`: the texts of the parts, joined by line breaks |
//! | `content` of a `tool` | the content of its one tool result |
//! | `tool_call_id` of a `tool` | `call_id` of the result; required |
//! | `is_error: true` of a `tool` | `is_error` of the result, in addition to metadata |
//! | `tool_calls` of an `assistant` | `tool_calls` |
//! | [`ENVELOPE`] | author, run, blobs, time of writing and tokens of a message not read from a line |
//! | any other field | metadata |

mod calls;
mod content;
mod envelope;
mod fields;
#[cfg(test)]
mod properties;
mod record;

use larder_kernel::{ChatMessage, Error, Metadata, Result, Role, ToolResult, json_equal};
use serde_json::Value;

use content::Content;
use envelope::Envelope;
use fields::{Fields, canonical, is_plain};
use record::Record;

const PARSE: &str = "transcript.parse";

/// The metadata key for the data of a line that has no field in the message.
pub const RECORD: &str = "larder.line";
/// The field of a line for data that the common format has no field for.
pub const ENVELOPE: &str = "larder";

const ROLE: &str = "role";
const CALLS: &str = "tool_calls";
const CALL_ID: &str = "tool_call_id";
const DEVELOPER: &str = "developer";

/// Converts a line into a message.
///
/// ```
/// use larder_agents::transcript::{parse_line, to_lines};
///
/// let message = parse_line(r#"{"role": "user", "content": "Hello", "lang": "en", "score": 1e16}"#)?;
/// assert_eq!(message.text, "Hello");
/// assert_eq!(message.metadata.get("lang").and_then(|lang| lang.as_str()), Some("en"));
/// assert_eq!(to_lines(&message)?, [r#"{"role":"user","content":"Hello","lang":"en","score":1e16}"#]);
///
/// let error = parse_line(r#"{"role": "usher", "content": "This way"}"#).unwrap_err();
/// assert_eq!(error.field(), Some("role"));
/// # Ok::<(), larder_kernel::Error>(())
/// ```
///
/// # Errors
/// `InvalidInput` with the field, for a line that is not a message or that no store accepts: over 4 MiB, or
/// with more than 64 KiB of metadata. The error quotes nothing of the line.
pub fn parse_line(line: &str) -> Result<ChatMessage> {
    let mut fields = Fields::parse(line, "line")?;
    if let Some(envelope) = Envelope::take(&mut fields)
        && let Ok(message) = message(fields, Some(envelope))
        && is_returned(&message, line)
    {
        return Ok(message);
    }
    // A field of that name that is not a valid envelope belongs to another program.
    message(Fields::parse(line, "line")?, None)
}

fn is_returned(message: &ChatMessage, line: &str) -> bool {
    let Ok(written) = to_lines(message) else { return false };
    let [written] = &*written else { return false };
    let values = [written, line].map(|text| serde_json::from_str::<Value>(text).ok());
    matches!(values, [Some(written), Some(line)] if json_equal(&written, &line))
}

fn message(mut fields: Fields, envelope: Option<Envelope>) -> Result<ChatMessage> {
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
        Some(_) => {
            return Err(Error::invalid(PARSE, CALLS, "is allowed for the role assistant only; remove it"));
        }
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
        _ => Err(Error::invalid(PARSE, ROLE, "is not one of system, developer, user, assistant and tool")),
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
fn keep(fields: Fields, metadata: &mut Metadata, record: &mut Record, numbers: bool) -> Result<()> {
    for (name, written) in fields {
        let value: Value = serde_json::from_str(written.get())
            .map_err(|_| Error::invalid(PARSE, "line", "is not valid JSON"))?;
        let reserved = name == RECORD || name == ENVELOPE || name.contains('\0');
        if reserved || !is_plain(&value, numbers) {
            record.fields.push(name, written);
        } else {
            metadata.insert(name, value);
        }
    }
    Ok(())
}

/// Converts a message into a line. A message with several tool results becomes several lines, because the
/// common format has one result per message.
///
/// The same message gives the same text, regardless of the backend that returned it. The order of the fields
/// is fixed: `role`, `content`, `tool_calls`, `tool_call_id`, then the others by name.
///
/// # Errors
/// `InvalidInput` if metadata cannot be written as JSON, which cannot happen for a stored message.
pub fn to_lines(message: &ChatMessage) -> Result<Vec<String>> {
    let (record, metadata) = Record::split(&message.metadata);
    let native = record.as_ref().is_none_or(|record| record.envelope);
    let record = record.unwrap_or_default();
    let says = !message.text.is_empty() || !message.tool_calls.is_empty() || message.role != Role::Tool;
    let mut lines = Vec::with_capacity(message.tool_results.len().max(1));
    if says || message.tool_results.is_empty() {
        let mut line = begin(message.role, &record)?;
        record.content.write(&message.text, &mut line)?;
        calls::write(&message.tool_calls, record.tool_calls.as_deref(), &mut line)?;
        lines.push((line, None));
    }
    for result in &message.tool_results {
        let mut line = begin(Role::Tool, &record)?;
        record.content.write(&result.content, &mut line)?;
        line.push_value(CALL_ID, &result.call_id)?;
        lines.push((line, Some(result)));
    }
    let mut first = true;
    let finish = |(mut line, result): (Fields, Option<&ToolResult>)| {
        let mut others = record.fields.clone();
        let mut hidden = serde_json::Map::new();
        for (name, value) in &metadata {
            let value = canonical(value);
            if native && (line.has(name) || [RECORD, ENVELOPE].contains(&name.as_str())) {
                hidden.insert(name.clone(), value);
            } else {
                others.push_value(name.as_str(), &value)?;
            }
        }
        if native {
            let blobs = std::mem::take(&mut first);
            others.push_value(ENVELOPE, &Envelope::of(message, result, blobs, hidden))?;
        }
        line.append_sorted(others);
        line.to_json()
    };
    lines.into_iter().map(finish).collect()
}

fn begin(role: Role, record: &Record) -> Result<Fields> {
    let mut line = Fields::default();
    let developer = record.developer && role == Role::System;
    line.push_value(ROLE, &if developer { DEVELOPER } else { role.as_str() })?;
    Ok(line)
}
