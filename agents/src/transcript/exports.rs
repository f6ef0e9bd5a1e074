//! Exports of chat programs: ChatGPT, Claude and ShareGPT.
//!
//! Experimental: no program publishes a definition of its export. The messages of a conversation become lines
//! in the format of a provider, and are read like these. Fields without a meaning there become metadata.

mod chatgpt;
mod claude;
mod sharegpt;

use larder_kernel::{Error, Result, Timestamp, check};
use serde_json::value::RawValue;

use super::fields::{Fields, unreadable};
use super::format::TranscriptFormat;
use super::{PARSE, ROLE};

/// The messages of a conversation.
#[derive(Default)]
pub(super) struct Conversation {
    pub(super) turns: Vec<Turn>,
    /// The number of messages that are in another branch, or empty.
    pub(super) skipped: u64,
}

/// A message as the fields of a line.
pub(super) struct Turn {
    pub(super) fields: Fields,
    pub(super) at: Option<Timestamp>,
    /// The number of parts that are kept as metadata only.
    pub(super) kept: u64,
}

/// Returns the format of a conversation; `None` for a value that is not one.
///
/// # Errors
/// `InvalidInput` if `chosen` is such a format and the value has another one.
pub(super) fn recognize(
    fields: &Fields,
    chosen: Option<TranscriptFormat>,
) -> Result<Option<TranscriptFormat>> {
    if let Some(format) = chosen {
        return if format.is_export() { format.check(fields).map(|()| Some(format)) } else { Ok(None) };
    }
    // A message or a request may have a field of the same name.
    if fields.has(ROLE) || fields.has("messages") {
        return Ok(None);
    }
    let begins =
        |name: &str, start: char| fields.get(name).is_some_and(|value| value.get().starts_with(start));
    Ok(if begins("mapping", '{') {
        Some(TranscriptFormat::ChatGpt)
    } else if begins("chat_messages", '[') {
        Some(TranscriptFormat::Claude)
    } else if begins("conversations", '[') {
        Some(TranscriptFormat::ShareGpt)
    } else {
        None
    })
}

/// Takes the messages of a conversation from its fields.
///
/// # Errors
/// `InvalidInput` with the field, and the context `message`, for a message that is not one of the format.
pub(super) fn read(format: TranscriptFormat, fields: &mut Fields) -> Result<Conversation> {
    match format {
        TranscriptFormat::ChatGpt => chatgpt::read(fields),
        TranscriptFormat::Claude => claude::read(fields),
        _ => sharegpt::read(fields),
    }
}

/// Adds the number of the message to an error.
pub(super) fn located(error: Error, index: usize) -> Error {
    error.with_context("message", check::size(index + 1))
}

/// Takes a field that must be a list.
fn take_list(fields: &mut Fields, name: &'static str) -> Result<Vec<Box<RawValue>>> {
    let written = fields.take(name).ok_or_else(|| Error::invalid(PARSE, name, "missing"))?;
    serde_json::from_str(written.get()).map_err(|error| unreadable(name, &error))
}

/// Returns the number of items of a list.
fn len(fields: &Fields, name: &str) -> u64 {
    let items = fields.get(name).and_then(|list| serde_json::from_str::<Vec<&RawValue>>(list.get()).ok());
    check::size(items.map_or(0, |items| items.len()))
}

#[cfg(test)]
mod tests;
