//! Exports of chat programs: ChatGPT, Claude and ShareGPT.
//!
//! Experimental: no program publishes a definition of its export. The messages of a conversation become lines
//! in the format of a provider, and are read like these. Fields without a meaning there become metadata.

mod chatgpt;
mod claude;
mod sharegpt;

use larder_kernel::{ChatMessage, Error, Result, Timestamp, check};
use serde_json::value::RawValue;

use super::fields::{Fields, unreadable};
use super::format::TranscriptFormat;
use super::{PARSE, ROLE, TranscriptReader};

/// The fields that may have the id of a conversation.
const IDS: [&str; 3] = ["conversation_id", "uuid", "id"];

/// The messages of a conversation.
#[derive(Default)]
struct Conversation {
    turns: Vec<Turn>,
    /// The number of messages that are in another branch, or empty.
    skipped: u64,
}

/// A message as the fields of a line.
struct Turn {
    fields: Fields,
    at: Option<Timestamp>,
    /// The number of parts that are kept as metadata only.
    kept: u64,
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

impl TranscriptReader {
    /// Converts a conversation, if it is the chosen one.
    pub(super) fn conversation_of(
        &mut self,
        format: TranscriptFormat,
        mut fields: Fields,
    ) -> Result<Vec<ChatMessage>> {
        if !self.chooses(&fields)? {
            return Ok(Vec::new());
        }
        let conversation = match format {
            TranscriptFormat::ChatGpt => chatgpt::read(&mut fields)?,
            TranscriptFormat::Claude => claude::read(&mut fields)?,
            _ => sharegpt::read(&mut fields)?,
        };
        let mut messages = self.instructions(&mut fields)?;
        self.report.document_fields += check::size(fields.into_iter().count());
        self.report.skipped_messages += conversation.skipped;
        for (index, turn) in conversation.turns.into_iter().enumerate() {
            let read = self.message(turn.fields).map_err(|error| located(error, index))?;
            self.report.kept_parts += turn.kept;
            messages.extend(read.map(|mut message| {
                message.created_at = turn.at.unwrap_or(message.created_at);
                message
            }));
        }
        Ok(messages)
    }

    /// Counts a conversation. Returns `true` if it is the chosen one.
    ///
    /// # Errors
    /// `InvalidInput` for a second one.
    pub(super) fn chooses(&mut self, fields: &Fields) -> Result<bool> {
        self.report.conversations += 1;
        let number = self.report.conversations;
        let is_wanted = self.wanted.as_ref().is_none_or(|wanted| match wanted.parse::<u64>() {
            // A number is a place in the file, even if ids are numbers too.
            Ok(wanted) => wanted == number,
            Err(_) => IDS.iter().any(|id| fields.get_text(id).as_ref() == Some(wanted)),
        });
        if !is_wanted {
            self.report.skipped_conversations += 1;
            return Ok(false);
        }
        if self.report.chosen_conversation > 0 {
            let message = "a second conversation, and a thread has one (choose it by number or id: \
                 `conversation`)";
            return Err(Error::invalid(PARSE, "line", message));
        }
        self.report.chosen_conversation = number;
        Ok(true)
    }
}

/// Adds the number of the message to an error.
fn located(error: Error, index: usize) -> Error {
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
