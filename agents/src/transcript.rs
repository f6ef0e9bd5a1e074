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
//! A [`TranscriptReader`] converts lines into messages, [`parse_line`] a single one, and [`to_lines`] a
//! message into lines, without losing a field. Data without a field in the message is kept in its metadata.
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
//!
//! Other formats are read too, and written as they were: OpenAI's older calls and Responses items, the parts
//! of Anthropic, Gemini, Bedrock and AI SDK, and the lines of agents' logs. Calls and results become those of
//! the message, so budgets, truncation and summaries see them. The text of thinking and refusals follows a
//! label, as `[thinking: …]`. A part that a message has no field for, such as an image, adds its JSON up to
//! 256 bytes, or its size: `[image: 48213 bytes]`.
//!
//! Conversations of ChatGPT, Claude and ShareGPT are read too, which is experimental. Their messages are
//! written in the common format.

mod builder;
mod calls;
mod common;
mod content;
mod envelope;
mod exports;
mod fields;
mod format;
#[cfg(test)]
mod forms;
mod open_calls;
#[cfg(test)]
mod properties;
mod reader;
mod record;
mod scan;
mod shape;

use larder_kernel::{ChatMessage, Error, Result, Role, ToolResult};

use envelope::Envelope;
use fields::{Fields, canonical};
use record::Record;

pub use format::TranscriptFormat;
pub use reader::{TranscriptReader, TranscriptReport};

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
/// A result that does not name its call needs the lines before it; use a [`TranscriptReader`].
///
/// # Errors
/// `InvalidInput` with the field, for a line that is not one message, or that no store accepts because it is
/// over 4 MiB. The error contains names of fields and no content.
pub fn parse_line(line: &str) -> Result<ChatMessage> {
    let mut messages = TranscriptReader::new().read(line)?.into_iter();
    match (messages.next(), messages.next()) {
        (Some(message), None) => Ok(message),
        (None, _) => {
            Err(Error::invalid(PARSE, "line", "no message (a reader of a transcript skips the line)"))
        }
        _ => Err(Error::invalid(PARSE, "line", "several messages (read the line with a TranscriptReader)")),
    }
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
    if let Some(record) = &record
        && let Some(mut line) = record.form.as_ref().and_then(|form| form.fields(message))
    {
        let mut others = record.fields.clone();
        for (name, value) in &metadata {
            others.push_value(name.as_str(), &canonical(value))?;
        }
        line.append_sorted(others);
        return Ok(vec![line.to_json()?]);
    }
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
