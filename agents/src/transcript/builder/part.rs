//! The parts of a content: text, calls, results, and descriptions of other data.

use larder_kernel::{Error, Result, Role};
use serde_json::value::RawValue;

use super::{Builder, Draft, Naming};
use crate::transcript::PARSE;
use crate::transcript::fields::{text, unreadable};
use crate::transcript::shape::{Owner, Shape};

/// The longest JSON that a message shows of a part it has no field for, in bytes. Of longer JSON it shows the
/// size.
const SHOWN_BYTES_MAX: usize = 256;
/// The longest type that a message shows, in bytes.
const KIND_BYTES_MAX: usize = 64;

/// The objects in which Gemini and Bedrock write calls: the fields of the part, the id, the name and the
/// arguments.
const CALLS: [(&str, &str, &str, &str); 3] = [
    ("functionCall", "id", "name", "args"),
    ("function_call", "id", "name", "args"),
    ("toolUse", "toolUseId", "name", "input"),
];
/// The same for results: the fields of the part, the id and the content.
const RESULTS: [(&str, &str, &str); 3] = [
    ("functionResponse", "id", "response"),
    ("function_response", "id", "response"),
    ("toolResult", "toolUseId", "content"),
];
/// The objects with a text: the fields of the part and the text.
const TEXTS: [(&str, &str); 4] = [
    ("executableCode", "code"),
    ("executable_code", "code"),
    ("codeExecutionResult", "output"),
    ("code_execution_result", "output"),
];

/// Returns `true` if a content has parts that are results.
pub(super) fn holds_results(content: &str) -> bool {
    let parts: Vec<Box<RawValue>> = serde_json::from_str(content).unwrap_or_default();
    parts.iter().any(|part| {
        let kind = Draft::parse(part, "content").ok().and_then(|part| part.text("type"));
        kind.is_some_and(|kind| is_result(&kind))
    })
}

fn is_call(kind: &str) -> bool {
    matches!(kind, "tool_use" | "server_tool_use" | "mcp_tool_use" | "tool-call")
}

fn is_result(kind: &str) -> bool {
    kind == "tool-result" || kind == "tool_result" || kind.ends_with("_tool_result")
}

impl Builder<'_> {
    pub(super) fn parts(&mut self, written: &RawValue, owner: Owner, field: &'static str) -> Result<Shape> {
        let parts: Vec<Box<RawValue>> =
            serde_json::from_str(written.get()).map_err(|error| unreadable(field, &error))?;
        let parts = parts.iter().map(|part| self.part(part, owner, field));
        parts.collect::<Result<_>>().map(Shape::List)
    }

    fn part(&mut self, written: &RawValue, owner: Owner, field: &'static str) -> Result<Shape> {
        if let Some(said) = text(written) {
            return Ok(Shape::Text(owner, self.piece(owner, &said)));
        }
        if !written.get().starts_with('{') {
            return Err(Error::invalid(PARSE, field, "a part that is neither an object nor text"));
        }
        let mut part = Draft::parse(written, field)?;
        let kind = part.text("type").unwrap_or_default();
        let is_message = owner == Owner::Message;
        if is_message && is_call(&kind) && self.message.role == Role::Assistant {
            let (name, id) = if part.has("toolName") { ("toolName", "toolCallId") } else { ("name", "id") };
            self.call(&mut part, Some(id), name, &["input", "args"])?;
        } else if is_message && is_result(&kind) {
            self.result_part(&mut part)?;
        } else if is_message && self.nested(&mut part)? {
        } else if !self.words(&mut part, &kind, owner)? {
            let kind =
                if kind.is_empty() { part.names().into_iter().next().unwrap_or_default() } else { kind };
            return Ok(self.shown(&kind, written, owner));
        }
        Ok(part.into_shape())
    }

    /// Reads a part of Anthropic's format, or of AI SDK's.
    fn result_part(&mut self, part: &mut Draft) -> Result<()> {
        let name = part.text("toolName").or_else(|| part.text("name"));
        let at = self.result(part, &["tool_use_id", "toolCallId"], Naming::Id, name.as_deref())?;
        let failed = ["is_error", "isError"].iter().filter_map(|name| part.get(name));
        self.message.tool_results[at].is_error = failed.into_iter().any(|failed| failed.get() == "true");
        self.result_content(part, at, &["content", "result", "output"])
    }

    fn result_content(&mut self, part: &mut Draft, at: usize, names: &[&str]) -> Result<()> {
        if let Some((name, content)) = part.first(names) {
            let shape = self.content(&content, Owner::Result(at))?;
            part.set(name, shape);
        }
        Ok(())
    }

    /// Reads a call or a result in a separate object. Returns `false` if the part has none.
    fn nested(&mut self, part: &mut Draft) -> Result<bool> {
        for (field, id, name, arguments) in CALLS {
            let Some(written) = part.take(field).filter(|_| part.is_object(field)) else { continue };
            if self.message.role != Role::Assistant {
                return Ok(false);
            }
            let mut call = Draft::parse(&written, "parts")?;
            self.call(&mut call, Some(id), name, &[arguments])?;
            part.set(field, call.into_shape());
            return Ok(true);
        }
        for (field, id, content) in RESULTS {
            let Some(written) = part.take(field).filter(|_| part.is_object(field)) else { continue };
            let mut result = Draft::parse(&written, "parts")?;
            let name = result.text("name");
            let at = self.result(&mut result, &[id], Naming::Name, name.as_deref())?;
            self.message.tool_results[at].is_error = result.text("status").as_deref() == Some("error");
            self.result_content(&mut result, at, &[content])?;
            part.set(field, result.into_shape());
            return Ok(true);
        }
        Ok(false)
    }

    /// Reads the text of a part. Returns `false` if the part has none.
    fn words(&mut self, part: &mut Draft, kind: &str, owner: Owner) -> Result<bool> {
        let is_thought = part.get("thought").is_some_and(|thought| thought.get() == "true");
        let (name, label) = match kind {
            "thinking" => ("thinking", Some("thinking")),
            "refusal" => ("refusal", Some("refusal")),
            "reasoning" | "summary_text" | "reasoning_text" => ("text", Some("thinking")),
            _ if is_thought => ("text", Some("thinking")),
            _ => ("text", None),
        };
        if let Some(said) = part.text(name) {
            let shape = match label {
                None => Shape::Text(owner, self.piece(owner, &said)),
                Some(label) => self.marked_text(&said, label, owner),
            };
            part.set(name, shape);
            return Ok(true);
        }
        for (field, name) in TEXTS {
            let Some(written) = part.take(field).filter(|_| part.is_object(field)) else { continue };
            let mut inner = Draft::parse(&written, "parts")?;
            let Some(said) = inner.text(name) else { continue };
            let shape = self.marked_text(&said, field, owner);
            inner.set(name, shape);
            part.set(field, inner.into_shape());
            return Ok(true);
        }
        if kind == "document"
            && let Some(written) = part.take("source").filter(|_| part.is_object("source"))
        {
            let mut source = Draft::parse(&written, "content")?;
            if source.text("type").as_deref() == Some("text")
                && let Some(said) = source.text("data")
            {
                let shape = self.marked_text(&said, "document", owner);
                source.set("data", shape);
                part.set("source", source.into_shape());
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Adds the text of a string after a label: `[thinking: …]`.
    pub(super) fn marked(&mut self, written: &RawValue, label: &str, owner: Owner) -> Shape {
        match text(written) {
            Some(said) => self.marked_text(&said, label, owner),
            None => Shape::Raw(written.to_owned()),
        }
    }

    pub(super) fn marked_text(&mut self, said: &str, label: &str, owner: Owner) -> Shape {
        let start = format!("[{label}: ");
        let bytes = self.piece(owner, &format!("{start}{said}]"));
        Shape::Marked(owner, start.len(), bytes)
    }

    /// Adds a description of JSON that a message has no field for.
    pub(super) fn shown(&mut self, kind: &str, written: &RawValue, owner: Owner) -> Shape {
        let json = written.get();
        let shown =
            if json.len() <= SHOWN_BYTES_MAX { json.to_owned() } else { format!("{} bytes", json.len()) };
        let bytes = self.piece(owner, &format!("[{}: {shown}]", printable(kind)));
        self.kept += 1;
        Shape::Shown(owner, bytes, written.to_owned())
    }
}

/// Returns a type that is safe to show.
pub(super) fn printable(kind: &str) -> &str {
    let known = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    let is_name = (1..=KIND_BYTES_MAX).contains(&kind.len()) && kind.bytes().all(known);
    if is_name { kind } else { "part" }
}
