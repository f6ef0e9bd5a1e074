//! Reading a transcript line by line: forms that need the lines before them.

use larder_kernel::{ChatMessage, Error, Result, Timestamp};
use serde_json::value::RawValue;

use super::builder::{Builder, Draft};
use super::fields::{Fields, unreadable};
use super::format::{TranscriptFormat, is_item, is_log_entry, unrecognized};
use super::open_calls::OpenCalls;
use super::record::Record;
use super::shape::Form;
use super::{ENVELOPE, PARSE, ROLE, common, exports, scan};

/// The lists of messages in a document: chat, Gemini, and Responses requests and responses.
const LISTS: [&str; 4] = ["messages", "contents", "input", "output"];
/// The instructions next to such a list.
const INSTRUCTIONS: [&str; 4] = ["system", "instructions", "systemInstruction", "system_instruction"];

/// The fields that may have the id of a conversation.
const IDS: [&str; 3] = ["conversation_id", "uuid", "id"];

/// Counts of the changes and omissions of a reader.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TranscriptReport {
    /// The results without a call's id, which were paired with an open call before them.
    pub paired_results: u64,
    /// The halves of surrogate pairs that were replaced with U+FFFD.
    pub replaced_surrogates: u64,
    /// The lines of a log that hold no message.
    pub log_entries: u64,
    /// The fields of a document other than its list of messages, such as the name of a model.
    pub document_fields: u64,
    /// The parts that a message has no field for, such as images. They are kept in the metadata.
    pub kept_parts: u64,
    /// The messages of an export that are in another branch of the conversation, or empty.
    pub skipped_messages: u64,
    /// The conversations of an export, and the documents with a list `messages` or `contents`.
    pub conversations: u64,
    /// The conversations that [`TranscriptReader::conversation`] does not choose.
    pub skipped_conversations: u64,
    /// The number of the conversation that was read, from 1; 0 if there was none.
    pub chosen_conversation: u64,
}

/// A reader of a transcript. It understands the forms that [the module](super) lists.
///
/// ```
/// use larder_agents::transcript::TranscriptReader;
///
/// let mut reader = TranscriptReader::new();
/// let call = concat!(
///     r#"{"role": "assistant", "content": "#,
///     r#"[{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]}"#,
/// );
/// let result = concat!(
///     r#"{"role": "user", "content": "#,
///     r#"[{"type": "tool_result", "tool_use_id": "t1", "content": "42"}]}"#,
/// );
/// assert_eq!(reader.read(call)?[0].tool_calls[0].name, "f");
/// assert_eq!(reader.read(result)?[0].tool_results[0].content, "42");
/// assert_eq!(reader.report().paired_results, 0);
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct TranscriptReader {
    lossy: bool,
    format: Option<TranscriptFormat>,
    pub(super) wanted: Option<String>,
    pub(super) calls: OpenCalls,
    pub(super) report: TranscriptReport,
}

impl TranscriptReader {
    /// Creates a reader.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces halves of surrogate pairs, which are not characters, with U+FFFD, and counts them.
    #[must_use]
    pub fn lossy(mut self) -> Self {
        self.lossy = true;
        self
    }

    /// Refuses values of any other format. Without this, the reader recognizes the format of each value.
    #[must_use]
    pub fn format(mut self, format: TranscriptFormat) -> Self {
        self.format = Some(format);
        self
    }

    /// Chooses one conversation of an export, or one document with a list `messages` or `contents`, by its
    /// number from 1, or by its id, unless that is a number. Without this, a second one is refused.
    #[must_use]
    pub fn conversation(mut self, wanted: impl Into<String>) -> Self {
        self.wanted = Some(wanted.into());
        self
    }

    /// Returns the counts so far.
    #[must_use]
    pub fn report(&self) -> TranscriptReport {
        self.report
    }

    /// Converts one JSON value into messages: one for a line with a message, all of a document such as
    /// `{"messages": […]}` or of a conversation, and none for the line of a log without a message.
    ///
    /// # Errors
    /// `InvalidInput` with the field, for a value that is not a message or that no store accepts. The error
    /// contains names of fields, and no content. The context `line` is the line in the value, if it has
    /// several.
    pub fn read(&mut self, json: &str) -> Result<Vec<ChatMessage>> {
        let (json, replaced) =
            if self.lossy { scan::replace_surrogates(json) } else { (std::borrow::Cow::Borrowed(json), 0) };
        scan::check(&json)?;
        self.report.replaced_surrogates += replaced;
        let mut fields = Fields::parse(&json, "line")?;
        if let Some(format) = exports::recognize(&fields, self.format)? {
            return self.conversation_of(format, fields);
        }
        if let Some((list, messages)) = document(&fields)? {
            return self.document(fields, list, &messages);
        }
        if fields.has(ENVELOPE) {
            if let Some(message) = common::enveloped(&json, fields) {
                self.saw(&message);
                return Ok(vec![message]);
            }
            // A field of that name that is not a valid envelope belongs to another program.
            fields = Fields::parse(&json, "line")?;
        }
        self.checked(fields).map(|message| message.into_iter().collect())
    }

    /// Converts a conversation, if it is the chosen one.
    fn conversation_of(&mut self, format: TranscriptFormat, mut fields: Fields) -> Result<Vec<ChatMessage>> {
        if !self.chooses(&fields)? {
            return Ok(Vec::new());
        }
        let conversation = exports::read(format, &mut fields)?;
        let mut messages = self.instructions(&mut fields)?;
        self.report.document_fields += larder_kernel::check::size(fields.into_iter().count());
        self.report.skipped_messages += conversation.skipped;
        for (index, turn) in conversation.turns.into_iter().enumerate() {
            let read = self.message(turn.fields).map_err(|error| exports::located(error, index))?;
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
    fn chooses(&mut self, fields: &Fields) -> Result<bool> {
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

    fn document(
        &mut self,
        mut fields: Fields,
        list: &'static str,
        messages: &[Box<RawValue>],
    ) -> Result<Vec<ChatMessage>> {
        fields.take(list);
        // The lists `input` and `output` of a request and its response are one conversation.
        if matches!(list, "messages" | "contents") && !self.chooses(&fields)? {
            return Ok(Vec::new());
        }
        let mut read = self.instructions(&mut fields)?;
        self.report.document_fields += larder_kernel::check::size(fields.into_iter().count());
        for (index, message) in messages.iter().enumerate() {
            let read_one = Fields::parse(message.get(), list).and_then(|fields| self.checked(fields));
            read.extend(
                read_one
                    .map_err(|error| error.with_context("message", larder_kernel::check::size(index + 1)))?,
            );
        }
        Ok(read)
    }

    /// Takes the instructions next to a list of messages.
    pub(super) fn instructions(&mut self, fields: &mut Fields) -> Result<Vec<ChatMessage>> {
        let mut read = Vec::new();
        for name in INSTRUCTIONS {
            let Some(written) = fields.take(name) else { continue };
            if written.get() == "null" {
                continue;
            }
            let content = if written.get().starts_with('{') {
                Fields::parse(written.get(), name)?
            } else {
                Fields::default()
            };
            let mut line = Fields::default();
            line.push_value(ROLE, &"system")?;
            match content.get("parts") {
                Some(parts) => line.push("parts", parts.to_owned()),
                None => line.push("content", written),
            }
            read.extend(self.message(line)?);
        }
        Ok(read)
    }

    /// Converts a message of the chosen format.
    fn checked(&mut self, fields: Fields) -> Result<Option<ChatMessage>> {
        self.format.map_or(Ok(()), |format| format.check(&fields))?;
        self.message(fields)
    }

    /// Converts the fields of a line, or of an item of a list.
    pub(super) fn message(&mut self, fields: Fields) -> Result<Option<ChatMessage>> {
        if fields.has(ROLE) || fields.has("parts") {
            if !common::is_common(&fields) {
                return self.built(fields, |builder, draft| builder.chat(draft), None).map(Some);
            }
            let message = common::message(fields, None)?;
            self.saw(&message);
            return Ok(Some(message));
        }
        for (name, kind) in [("message", None), ("payload", Some("response_item"))] {
            let inner = fields.get(name).filter(|inner| inner.get().starts_with('{'));
            let is_kind = kind.is_none_or(|kind| fields.get_text("type").as_deref() == Some(kind));
            let Some(inner) = inner.filter(|_| is_kind) else { continue };
            let inner_fields = Fields::parse(inner.get(), "message")?;
            if inner_fields.has(ROLE) || is_item(&inner_fields) {
                return self.logged(fields, name).map(Some);
            }
        }
        if is_item(&fields) {
            return self.built(fields, |builder, draft| builder.item(draft), None).map(Some);
        }
        if is_log_entry(&fields) {
            self.report.log_entries += 1;
            return Ok(None);
        }
        Err(unrecognized(&fields))
    }

    /// Converts the line of a log whose message is in the field `name`.
    fn logged(&mut self, fields: Fields, name: &'static str) -> Result<ChatMessage> {
        let at = fields.get_text("timestamp").and_then(|text| text.parse::<Timestamp>().ok());
        self.built(
            fields,
            |builder, draft| {
                let inner = draft.take(name).ok_or_else(|| Error::invalid(PARSE, "message", "missing"))?;
                let mut inner = Draft::from(Fields::parse(inner.get(), "message")?);
                if inner.has(ROLE) {
                    builder.chat(&mut inner)?;
                } else {
                    builder.item(&mut inner)?;
                }
                draft.set(name, inner.into_shape());
                Ok(())
            },
            at,
        )
    }

    /// Remembers the calls and results of a message in the common format.
    fn saw(&mut self, message: &ChatMessage) {
        self.calls.open(message);
        for result in &message.tool_results {
            self.calls.close(&result.call_id);
        }
    }

    fn built(
        &mut self,
        fields: Fields,
        read: impl FnOnce(&mut Builder<'_>, &mut Draft) -> Result<()>,
        at: Option<Timestamp>,
    ) -> Result<ChatMessage> {
        let mut builder = Builder::new(&mut self.calls);
        let mut draft = Draft::from(fields);
        read(&mut builder, &mut draft)?;
        let (mut message, paired, kept) = builder.finish();
        let (fields, rest) = draft.split();
        let form = Form { calls: message.tool_calls.len(), results: message.tool_results.len(), fields };
        let mut record = Record { form: Some(form), ..Record::default() };
        common::keep(rest, &mut message.metadata, &mut record, false)?;
        message.metadata.insert(super::RECORD, record.to_text()?);
        if let Some(at) = at {
            message.created_at = at;
        }
        message.check(PARSE)?;
        self.report.paired_results += paired;
        self.report.kept_parts += kept;
        self.calls.open(&message);
        Ok(message)
    }
}

/// The name of the list of a document, and its items.
type Document = (&'static str, Vec<Box<RawValue>>);

/// Returns the list of messages of a document that is not a message.
fn document(fields: &Fields) -> Result<Option<Document>> {
    if fields.has(ROLE) || fields.has("call_id") || is_item(fields) {
        return Ok(None);
    }
    for list in LISTS {
        let Some(written) = fields.get(list).filter(|written| written.get().starts_with('[')) else {
            continue;
        };
        let items = serde_json::from_str(written.get()).map_err(|error| unreadable(list, &error))?;
        return Ok(Some((list, items)));
    }
    Ok(None)
}
