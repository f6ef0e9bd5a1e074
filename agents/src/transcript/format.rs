//! The formats of transcripts: the fields of each, and the formats that a value is closest to.

use std::fmt;

use larder_kernel::{Error, Result};
use serde_json::value::RawValue;

use super::fields::{Fields, text};
use super::{CALLS, PARSE, ROLE};

/// A format that a [`TranscriptReader`](super::TranscriptReader) recognizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TranscriptFormat {
    /// Messages of OpenAI's chat interface, and the lines of an export.
    OpenAiChat,
    /// Items of OpenAI's Responses interface.
    OpenAiResponses,
    /// Messages of Anthropic.
    Anthropic,
    /// Contents of Gemini.
    Gemini,
    /// Lines of a coding agent's log.
    AgentLog,
    /// A conversation of ChatGPT's `conversations.json`. Experimental: OpenAI publishes no definition.
    ChatGpt,
    /// A conversation of Claude's `conversations.json`. Experimental: Anthropic publishes no definition.
    Claude,
    /// A conversation of ShareGPT. Experimental: no definition is published.
    ShareGpt,
}

use TranscriptFormat::{AgentLog, Anthropic, ChatGpt, Claude, Gemini, OpenAiChat, OpenAiResponses, ShareGpt};

/// The formats, with the name of each and the fields by which the closest one is found.
const FORMATS: [(TranscriptFormat, &str, &[&str]); 8] = [
    (
        OpenAiChat,
        "OpenAI chat",
        &[ROLE, "content", CALLS, "tool_call_id", "function_call", "name", "refusal"],
    ),
    (
        OpenAiResponses,
        "OpenAI Responses",
        &["type", ROLE, "content", "call_id", "arguments", "output", "status"],
    ),
    (Anthropic, "Anthropic", &[ROLE, "content", "stop_reason", "usage"]),
    (Gemini, "Gemini", &[ROLE, "parts", "candidates", "finishReason"]),
    (AgentLog, "agent log", &["type", "message", "payload", "timestamp", "sessionId", "uuid", "parentUuid"]),
    (
        ChatGpt,
        "ChatGPT",
        &["mapping", "current_node", "title", "create_time", "update_time", "conversation_id"],
    ),
    (
        Claude,
        "Claude",
        &["chat_messages", "uuid", "name", "created_at", "updated_at", "account", "sender", "text"],
    ),
    (ShareGpt, "ShareGPT", &["conversations", "from", "value", "id", "system", "tools"]),
];

/// The number of formats that an error names.
const CLOSEST: usize = 3;

const MISSING: &str = "is missing";
const UNKNOWN: &str = "has an unknown value";
const NOT_TEXT: &str = "is not a string";
const NOT_A_LIST: &str = "is not a list";
const NOT_AN_OBJECT: &str = "is not an object";

/// The first field of a value that a format does not allow, and the reason.
type Misfit = (&'static str, &'static str);

impl fmt::Display for TranscriptFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(FORMATS.iter().find(|(format, ..)| format == self).map_or("", |(_, name, _)| name))
    }
}

impl TranscriptFormat {
    /// Returns `true` for a format whose values are whole conversations.
    pub(super) fn is_export(self) -> bool {
        matches!(self, ChatGpt | Claude | ShareGpt)
    }

    /// Checks that a value has this format.
    ///
    /// # Errors
    /// `InvalidInput` with the first field that the format does not allow.
    pub(super) fn check(self, fields: &Fields) -> Result<()> {
        match self.misfit(fields) {
            None => Ok(()),
            Some((field, reason)) => {
                let message =
                    format!("{reason}, so the value is not of the format {self} (choose another one)");
                Err(Error::invalid(PARSE, field, message))
            }
        }
    }

    fn misfit(self, fields: &Fields) -> Option<Misfit> {
        match self {
            OpenAiChat => {
                chat(fields, &["system", "developer", "user", "assistant", "tool", "function"], |kind| {
                    matches!(kind, "text" | "image_url" | "input_audio" | "audio" | "file" | "refusal")
                })
            }
            OpenAiResponses if !fields.has(ROLE) => item(fields),
            OpenAiResponses => chat(fields, &["system", "developer", "user", "assistant"], |kind| {
                kind.starts_with("input_") || matches!(kind, "output_text" | "refusal" | "summary_text")
            }),
            Anthropic => chat(fields, &["user", "assistant", "system"], |kind| {
                !kind.starts_with("input_") && !matches!(kind, "image_url" | "output_text" | "file")
            }),
            Gemini => {
                list(fields, "parts").or_else(|| role(fields, &["user", "model", "function", "system"]))
            }
            AgentLog if is_log_entry(fields) => None,
            AgentLog => {
                object(fields, "message").and_then(|misfit| object(fields, "payload").map(|_| misfit))
            }
            ChatGpt => object(fields, "mapping"),
            Claude => list(fields, "chat_messages"),
            ShareGpt => list(fields, "conversations"),
        }
    }
}

/// Returns an error that names the formats closest to a value, with the first field that does not fit.
pub(super) fn unrecognized(fields: &Fields) -> Error {
    let misfits = FORMATS.iter().filter_map(|(format, _, known)| {
        let misfit = format.misfit(fields)?;
        Some((known.iter().filter(|name| fields.has(name)).count(), format, misfit))
    });
    let mut closest: Vec<_> = misfits.collect();
    // The sort is stable, so formats with the same number of fields keep the order of the table.
    closest.sort_by_key(|(known, ..)| std::cmp::Reverse(*known));
    closest.truncate(CLOSEST);
    let field = closest.first().map_or("line", |(_, _, (field, _))| field);
    let named: Vec<_> = closest
        .into_iter()
        .map(|(_, format, (field, reason))| format!("{format} (`{field}` {reason})"))
        .collect();
    Error::invalid(PARSE, field, format!("no known format; the closest are {}", named.join(", ")))
}

fn string(fields: &Fields, name: &'static str) -> Option<Misfit> {
    match fields.get(name) {
        None => Some((name, MISSING)),
        Some(written) => text(written).is_none().then_some((name, NOT_TEXT)),
    }
}

fn list(fields: &Fields, name: &'static str) -> Option<Misfit> {
    begins(fields, name, '[', NOT_A_LIST)
}

fn object(fields: &Fields, name: &'static str) -> Option<Misfit> {
    begins(fields, name, '{', NOT_AN_OBJECT)
}

fn begins(fields: &Fields, name: &'static str, start: char, reason: &'static str) -> Option<Misfit> {
    match fields.get(name) {
        None => Some((name, MISSING)),
        Some(written) => (!written.get().starts_with(start)).then_some((name, reason)),
    }
}

/// Checks a role that may be missing.
fn role(fields: &Fields, roles: &[&str]) -> Option<Misfit> {
    let role = text(fields.get(ROLE)?);
    let is_known = role.is_some_and(|role| roles.contains(&&*role));
    (!is_known).then_some((ROLE, UNKNOWN))
}

/// Checks `role` and `content`, with the types of the parts.
fn chat(fields: &Fields, roles: &[&str], is_part: impl Fn(&str) -> bool) -> Option<Misfit> {
    if let Some(misfit) = string(fields, ROLE).or_else(|| role(fields, roles)) {
        return Some(misfit);
    }
    let Some(content) = fields.get("content") else {
        let otherwise = [CALLS, "function_call", "refusal", "audio"];
        return (!otherwise.iter().any(|name| fields.has(name))).then_some(("content", MISSING));
    };
    match content.get().as_bytes().first() {
        Some(b'"' | b'n') => None,
        Some(b'[') => {
            let parts: Vec<Box<RawValue>> = serde_json::from_str(content.get()).unwrap_or_default();
            let fits = |part: &RawValue| {
                let fields = Fields::parse(part.get(), "content").unwrap_or_default();
                fields.get_text("type").is_some_and(|kind| is_part(&kind))
            };
            (!parts.iter().all(|part| fits(part))).then_some(("content[].type", UNKNOWN))
        }
        _ => Some(("content", "is not text, null or a list")),
    }
}

/// Checks an item of the Responses format that has no role.
fn item(fields: &Fields) -> Option<Misfit> {
    string(fields, "type").or_else(|| (!is_item(fields)).then_some(("type", UNKNOWN)))
}

/// Returns `true` for the line of a log, which may hold no message.
pub(super) fn is_log_entry(fields: &Fields) -> bool {
    let known = ["uuid", "leafUuid", "sessionId", "messageId", "timestamp", "snapshot"];
    fields.has("type") && known.iter().any(|name| fields.has(name))
}

/// Returns `true` for an item of the Responses format other than a message.
pub(super) fn is_item(fields: &Fields) -> bool {
    let kind = fields.get_text("type").unwrap_or_default();
    let others = ["reasoning", "compaction", "item_reference", "mcp_list_tools"];
    others.contains(&&*kind)
        || kind.starts_with("mcp_approval_re")
        || kind.ends_with("_call")
        || kind.ends_with("_call_output")
}

#[cfg(test)]
mod tests;
