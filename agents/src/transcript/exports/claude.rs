//! Claude: `{"chat_messages": [{"sender": "human", "text": …, "content": […]}, …]}`. The parts of
//! `content` are those of Anthropic.

use std::collections::{HashMap, HashSet};

use larder_kernel::{Error, Result, check};

use super::{Conversation, Turn, len, located, take_list};
use crate::transcript::fields::{Fields, text};
use crate::transcript::{PARSE, ROLE};

/// The lists of files of a message. Their contents are not in the conversation.
const FILES: [&str; 3] = ["attachments", "files", "files_v2"];

pub(super) fn read(fields: &mut Fields) -> Result<Conversation> {
    let list = take_list(fields, "chat_messages")?;
    let parsed = list.iter().enumerate().map(|(index, written)| {
        let parsed = Fields::parse(written.get(), "chat_messages[]");
        parsed.map_err(|error| located(error, index))
    });
    let all: Vec<_> = parsed.collect::<Result<_>>()?;
    let branch = branch(&all, fields.get_text("current_leaf_message_uuid"));
    let mut conversation = Conversation::default();
    for (index, fields) in all.into_iter().enumerate() {
        if branch.as_ref().is_some_and(|branch| !branch.contains(&index)) {
            conversation.skipped += 1;
            continue;
        }
        match turn(fields).map_err(|error| located(error, index))? {
            Some(turn) => conversation.turns.push(turn),
            None => conversation.skipped += 1,
        }
    }
    Ok(conversation)
}

/// Returns the messages of the branch that ends at `leaf`, or at the last message; `None` without branches.
fn branch(all: &[Fields], leaf: Option<String>) -> Option<HashSet<usize>> {
    let parents: Vec<_> = all.iter().map(|turn| turn.get_text("parent_message_uuid")).collect();
    let mut known = HashSet::new();
    if parents.iter().flatten().all(|parent| known.insert(parent)) {
        return None;
    }
    let places = all.iter().enumerate().filter_map(|(index, turn)| Some((turn.get_text("uuid")?, index)));
    let places: HashMap<_, _> = places.collect();
    let mut branch = HashSet::new();
    let mut next = leaf.and_then(|leaf| places.get(&leaf).copied()).or(all.len().checked_sub(1));
    // A circle ends at the first message that occurs again.
    while let Some(index) = next.filter(|index| branch.insert(*index)) {
        next = parents[index].as_ref().and_then(|parent| places.get(parent).copied());
    }
    Some(branch)
}

/// Converts a message; `None` for an empty one.
fn turn(mut fields: Fields) -> Result<Option<Turn>> {
    let sender = fields.get("sender").ok_or_else(|| Error::invalid(PARSE, "sender", "missing"))?;
    let role = match text(sender).as_deref() {
        Some("human") => "user",
        Some("assistant") => "assistant",
        _ => return Err(Error::invalid(PARSE, "sender", "neither human nor assistant")),
    };
    let kept: u64 = FILES.iter().map(|name| len(&fields, name)).sum();
    let parts = len(&fields, "content");
    if parts == 0 {
        fields.take("content");
        let said = match fields.get("text").map(|written| written.get()) {
            None | Some("null") => String::new(),
            Some(_) => fields.take_text("text", "text")?,
        };
        if said.is_empty() && kept == 0 {
            return Ok(None);
        }
        fields.push_value("content", &said)?;
    } else if said_once(&fields, parts) {
        fields.take("text");
    }
    fields.push_value(ROLE, &role)?;
    let at = fields.get_text("created_at").and_then(|at| at.parse().ok());
    Ok(Some(Turn { fields, at, kept }))
}

/// Returns `true` if `text` repeats the only part.
fn said_once(fields: &Fields, parts: u64) -> bool {
    let content = fields.get("content").map(|content| content.get());
    let parsed = content.and_then(|content| serde_json::from_str::<Vec<Fields>>(content).ok());
    let part = parsed.as_deref().and_then(|parts| parts.first()).and_then(|part| part.get_text("text"));
    parts == check::size(1) && part.is_some() && part == fields.get_text("text")
}
