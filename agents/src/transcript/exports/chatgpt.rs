//! ChatGPT: a tree of messages in `mapping`. The branch that ends at `current_node` is the conversation.

use std::collections::{HashMap, HashSet};

use larder_kernel::{Error, Result, Timestamp, check};
use serde_json::value::RawValue;

use super::{Conversation, Turn, located};
use crate::transcript::fields::{Fields, raw, text, unreadable};
use crate::transcript::{CALL_ID, CALLS, PARSE, ROLE};

const KIND: &str = "content_type";

pub(super) fn read(fields: &mut Fields) -> Result<Conversation> {
    let mapping = fields.take("mapping").ok_or_else(|| Error::invalid(PARSE, "mapping", "missing"))?;
    let nodes: Vec<_> = Fields::parse(mapping.get(), "mapping")?.into_iter().collect();
    let mut next = match fields.get("current_node").map(RawValue::get) {
        None | Some("null") => last(&nodes),
        Some(_) => Some(fields.take_text("current_node", "current_node")?),
    };
    let mut nodes: HashMap<_, _> = nodes.into_iter().collect();
    let mut branch = Vec::new();
    while let Some(id) = next {
        // Each node is taken once, so a circle ends.
        let node = nodes.remove(&id).ok_or_else(|| {
            Error::invalid(PARSE, "mapping", "has no node for a parent of `current_node`, or has a circle")
        })?;
        let node = Fields::parse(node.get(), "mapping")?;
        next = node.get_text("parent");
        branch.extend(message_of(node));
    }
    branch.reverse();
    let others = nodes.values().filter_map(|node| Fields::parse(node.get(), "mapping").ok());
    let skipped = check::size(others.filter_map(message_of).count());
    let mut conversation = Conversation { skipped, ..Conversation::default() };
    let mut call = None;
    for (index, message) in branch.iter().enumerate() {
        let read = Fields::parse(message.get(), "message").and_then(|message| turn(message, &mut call));
        match read.map_err(|error| located(error, index))? {
            Some(turn) => conversation.turns.push(turn),
            None => conversation.skipped += 1,
        }
    }
    Ok(conversation)
}

/// Returns the last node that is the parent of no other.
fn last(nodes: &[(String, Box<RawValue>)]) -> Option<String> {
    let parent = |node: &RawValue| Fields::parse(node.get(), "mapping").ok()?.get_text("parent");
    let parents: HashSet<_> = nodes.iter().filter_map(|(_, node)| parent(node)).collect();
    nodes.iter().rev().map(|(id, _)| id).find(|id| !parents.contains(*id)).cloned()
}

fn message_of(mut node: Fields) -> Option<Box<RawValue>> {
    node.take("message").filter(|message| message.get().starts_with('{'))
}

/// Converts a message; `None` for an empty one. `call` is the id of the call that waits for its result.
fn turn(mut message: Fields, call: &mut Option<String>) -> Result<Option<Turn>> {
    let author = message.get("author").map_or("{}", |author| author.get());
    let author = Fields::parse(author, "author")?;
    let role = author.get_text(ROLE);
    let role = role
        .filter(|role| matches!(&**role, "system" | "user" | "assistant" | "tool"))
        .ok_or_else(|| Error::invalid(PARSE, "author.role", "not one of system, user, assistant and tool"))?;
    // A call that waits for its result at the next question has none.
    if role == "user" {
        *call = None;
    }
    let content = content_of(&mut message)?;
    let recipient = message.get_text("recipient").filter(|name| !name.is_empty() && name != "all");
    let id = message.get_text("id").filter(|id| !id.is_empty());
    let mut kept = 0;
    if let ("assistant", Some(name), Some(id)) = (&*role, recipient, id)
        && let Some(calls) = call_of(&name, &id, &content)?
    {
        message.push_value(CALLS, &[calls])?;
        message.push_value("content", &())?;
        *call = Some(id);
    } else {
        let failed = content.get_text(KIND).as_deref() == Some("system_error");
        let (parts, rest) = parts(content)?;
        if !rest.is_empty() {
            kept = 1;
            message.push_value("content_fields", &rest)?;
        }
        if failed && role == "tool" {
            message.push_value("is_error", &true)?;
        }
        match &*parts {
            [] if role != "tool" => return Ok(None),
            [] => message.push_value("content", &"")?,
            [Part::Said(said)] => message.push_value("content", said)?,
            _ => message
                .push_value("content", &parts.iter().map(Part::to_json).collect::<Result<Vec<_>>>()?)?,
        }
    }
    match call.take_if(|_| role == "tool") {
        Some(id) => message.push_value(CALL_ID, &id)?,
        // A tool may write several messages for a call. The others are results with a new id.
        None if role == "tool" => {
            message.push_value(ROLE, &"function")?;
            message.push_value("name", &author.get_text("name").unwrap_or_default())?;
        }
        None => {}
    }
    message.push_value(ROLE, &role)?;
    let at = message.get("create_time").and_then(|at| serde_json::from_str::<f64>(at.get()).ok());
    let at = at.and_then(|seconds| format!("{:.0}", seconds * 1e6).parse().ok());
    let at = at.and_then(|micros| Timestamp::from_micros(micros).ok());
    Ok(Some(Turn { fields: message, at, kept }))
}

/// Takes the content. A text or a list becomes its parts.
fn content_of(message: &mut Fields) -> Result<Fields> {
    let mut content = Fields::default();
    let Some(written) = message.take("content") else { return Ok(content) };
    match written.get().as_bytes().first() {
        Some(b'{') => return Fields::parse(written.get(), "content"),
        Some(b'[') => content.push("parts", written),
        Some(b'n') => {}
        _ => content.push_value("parts", &[written])?,
    }
    Ok(content)
}

/// Returns the call of a message to a tool: its text is the arguments. Other fields stay in the call.
fn call_of(name: &str, id: &str, content: &Fields) -> Result<Option<Fields>> {
    let mut content = content.clone();
    let said = match content.take("parts") {
        Some(parts) => {
            let texts = serde_json::from_str::<Vec<String>>(parts.get());
            texts.ok().map(|texts| texts.join("\n"))
        }
        None => content.take("text").and_then(|said| text(&said)),
    };
    let Some(said) = said else { return Ok(None) };
    let mut function = Fields::default();
    function.push_value("name", &name)?;
    function.push_value("arguments", &said)?;
    let mut call = Fields::default();
    call.push_value("id", &id)?;
    call.push_value("type", &"function")?;
    call.push_value("function", &function)?;
    call.append_sorted(content);
    Ok(Some(call))
}

/// A part of a content.
enum Part {
    Said(String),
    Other(Fields),
}

impl Part {
    fn to_json(&self) -> Result<Box<RawValue>> {
        let said = match self {
            Self::Other(fields) => return raw(fields),
            Self::Said(said) => said,
        };
        let mut part = Fields::default();
        part.push_value("type", &"text")?;
        part.push_value("text", said)?;
        raw(&part)
    }
}

/// Returns the parts of a content, and its other fields. Each part that is not text has its `content_type` as
/// `type`.
fn parts(mut content: Fields) -> Result<(Vec<Part>, Fields)> {
    let kind = content.get_text(KIND).unwrap_or_default();
    let mut all = Vec::new();
    for name in ["parts", "thoughts"] {
        let Some(written) = content.get(name).filter(|written| written.get().starts_with('[')) else {
            continue;
        };
        let items: Vec<Box<RawValue>> =
            serde_json::from_str(written.get()).map_err(|error| unreadable("content", &error))?;
        content.take(name);
        for item in items {
            match text(&item) {
                Some(said) if said.is_empty() => {}
                Some(said) => all.push(Part::Said(said)),
                None if item.get() == "null" => {}
                None if !item.get().starts_with('{') => {
                    let mut part = Fields::default();
                    part.push("value", item);
                    all.push(typed("part", part)?);
                }
                None if name == "thoughts" => all.push(thought(Fields::parse(item.get(), "content")?)?),
                None => {
                    let item = Fields::parse(item.get(), "content")?;
                    let kind = item.get_text(KIND).unwrap_or_else(|| "part".to_owned());
                    all.push(typed(&kind, item)?);
                }
            }
        }
    }
    let nothing = |content: &Fields| content.clone().into_iter().all(|(_, written)| written.get() == "null");
    if matches!(&*kind, "text" | "multimodal_text") || !all.is_empty() {
        content.take(KIND);
        return Ok((all, if nothing(&content) { Fields::default() } else { content }));
    }
    let mut others = content.clone();
    others.take(KIND);
    if !nothing(&others) {
        all.push(typed(if kind.is_empty() { "part" } else { &kind }, content)?);
    }
    Ok((all, Fields::default()))
}

fn thought(mut thought: Fields) -> Result<Part> {
    if let Some(said) = thought.take("content") {
        thought.push("thinking", said);
    }
    typed("thinking", thought)
}

/// Returns a part with a type before its fields.
fn typed(kind: &str, fields: Fields) -> Result<Part> {
    let mut part = Fields::default();
    part.push_value("type", &kind)?;
    for (name, written) in fields {
        part.push(name, written);
    }
    Ok(Part::Other(part))
}
