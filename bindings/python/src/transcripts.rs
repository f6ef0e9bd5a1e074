//! Transcripts of other programs: reading, writing and importing them. Messages cross the border as JSON.

use std::sync::{Mutex, PoisonError};

use larder::transcript::{TranscriptFormat, TranscriptReader, TranscriptReport, to_lines};
use larder::{AppendOptions, ChatMessage, Error, History, IdempotencyKey, Result, Seq, Thread};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::errors::OrRaise as _;
use crate::input::json;
use crate::output;

const OPERATION: &str = "transcript.read";
/// The messages and bytes of a batch, as in the command `larder import`, whose keys depend on both.
const BATCH_MESSAGES: usize = 500;
const BATCH_BYTES: usize = 8 * 1024 * 1024;

fn reader(format: Option<&str>, conversation: Option<String>, lossy: bool) -> Result<TranscriptReader> {
    let mut reader = TranscriptReader::new();
    if let Some(format) = format {
        reader = reader.format(match format {
            "openai_chat" => TranscriptFormat::OpenAiChat,
            "openai_responses" => TranscriptFormat::OpenAiResponses,
            "anthropic" => TranscriptFormat::Anthropic,
            "gemini" => TranscriptFormat::Gemini,
            "agent_log" => TranscriptFormat::AgentLog,
            "chatgpt" => TranscriptFormat::ChatGpt,
            "claude" => TranscriptFormat::Claude,
            "sharegpt" => TranscriptFormat::ShareGpt,
            _ => {
                let message = "is unknown; use `openai_chat`, `openai_responses`, `anthropic`, `gemini`, \
                               `agent_log`, `chatgpt`, `claude` or `sharegpt`";
                return Err(Error::invalid(OPERATION, "format", message));
            }
        });
    }
    if let Some(conversation) = conversation {
        reader = reader.conversation(conversation);
    }
    Ok(if lossy { reader.lossy() } else { reader })
}

/// Reads JSON values, one after the other, or the items of one list.
fn read_all(reader: &mut TranscriptReader, text: &str) -> Result<Vec<ChatMessage>> {
    let mut messages = Vec::new();
    let mut number = 0_u64;
    let text = text.trim_start_matches('\u{feff}');
    for value in serde_json::Deserializer::from_str(text).into_iter::<Box<RawValue>>() {
        let value = value.map_err(|error| {
            let message = format!("is not JSON at line {}, column {}", error.line(), error.column());
            Error::invalid(OPERATION, "text", message)
        })?;
        let items =
            if value.get().starts_with('[') { serde_json::from_str(value.get()) } else { Ok(vec![value]) };
        let items: Vec<Box<RawValue>> =
            items.map_err(|_| Error::invalid(OPERATION, "text", "has a list that is not JSON"))?;
        for item in items {
            number += 1;
            let read = reader.read(item.get());
            messages.extend(read.map_err(|error| error.with_context("value", number))?);
        }
    }
    Ok(messages)
}

fn counts(report: TranscriptReport) -> [(&'static str, u64); 9] {
    [
        ("paired_results", report.paired_results),
        ("replaced_surrogates", report.replaced_surrogates),
        ("log_entries", report.log_entries),
        ("document_fields", report.document_fields),
        ("kept_parts", report.kept_parts),
        ("skipped_messages", report.skipped_messages),
        ("conversations", report.conversations),
        ("skipped_conversations", report.skipped_conversations),
        ("chosen_conversation", report.chosen_conversation),
    ]
}

/// A reader of a transcript. It remembers the calls of the text that it has read.
#[pyclass(frozen, module = "larder._native", name = "Transcript")]
pub(crate) struct NativeTranscript(Mutex<TranscriptReader>);

#[pymethods]
impl NativeTranscript {
    #[new]
    fn new(
        py: Python<'_>,
        format: Option<&str>,
        conversation: Option<String>,
        lossy: bool,
    ) -> PyResult<Self> {
        Ok(Self(Mutex::new(reader(format, conversation, lossy).or_raise(py)?)))
    }

    /// Returns the messages of a text. A text that is refused leaves the reader as it was.
    fn read(&self, py: Python<'_>, text: &str) -> PyResult<String> {
        let read = py.detach(|| {
            let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let mut reader = current.clone();
            let messages = output::encode(&read_all(&mut reader, text)?)?;
            *current = reader;
            Ok(messages)
        });
        read.or_raise(py)
    }

    /// Returns the counts of changes and omissions.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let found = PyDict::new(py);
        for (name, count) in counts(self.0.lock().unwrap_or_else(PoisonError::into_inner).report()) {
            found.set_item(name, count)?;
        }
        Ok(found)
    }
}

/// Returns the lines of messages in the common format of chat models.
#[pyfunction]
pub(crate) fn transcript_lines(py: Python<'_>, messages: &str) -> PyResult<Vec<String>> {
    let lines = py.detach(|| {
        let messages: Vec<ChatMessage> = json("transcript.write", "messages", messages)?;
        let lines = messages.iter().map(to_lines).collect::<Result<Vec<_>>>()?;
        Ok(lines.into_iter().flatten().collect())
    });
    lines.or_raise(py)
}

/// The text of a transcript, and how to read it.
pub(crate) struct Transcript {
    pub(crate) text: String,
    /// The SHA-256 of the text, in hexadecimal.
    pub(crate) digest: String,
    pub(crate) format: Option<String>,
    pub(crate) conversation: Option<String>,
    pub(crate) lossy: bool,
}

#[derive(Serialize)]
pub(crate) struct Imported {
    /// The messages of the transcript.
    messages: usize,
    /// The messages that this import added.
    added: usize,
    last: Seq,
    report: Vec<(&'static str, u64)>,
}

/// Appends a transcript in batches. The key of a batch depends on the text and on the position of the batch,
/// so that a repeated import writes nothing twice.
pub(crate) async fn import(history: &History, thread: &Thread, given: Transcript) -> Result<Imported> {
    let wants = given.conversation.is_some();
    let mut reader = reader(given.format.as_deref(), given.conversation, given.lossy)?;
    // The whole text is checked before the first write.
    let messages = read_all(&mut reader, &given.text)?;
    let report = reader.report();
    if wants && report.chosen_conversation == 0 {
        let message = "the text has no such conversation; nothing was imported";
        return Err(Error::invalid("transcript.import", "conversation", message));
    }
    // The conversations of one text are different imports.
    let suffix = match report.chosen_conversation {
        0 => String::new(),
        number => format!(":{number}"),
    };
    let provider = history.provider();
    let before = provider.thread_info(thread).await?.last;
    let (total, mut done, mut added, mut last) = (messages.len(), 0, 0, before);
    for batch in batches(messages) {
        let count = batch.len();
        let key = IdempotencyKey::new(format!("larder-import-1:{}:{done}{suffix}", given.digest))?;
        let options = AppendOptions::default().with_idempotency_key(key);
        let appended = provider.append_many(thread, batch, options).await?;
        done += count;
        if appended.first > before {
            (added, last) = (added + count, appended.last);
        }
    }
    Ok(Imported { messages: total, added, last, report: counts(report).to_vec() })
}

fn batches(messages: Vec<ChatMessage>) -> Vec<Vec<ChatMessage>> {
    let mut batches: Vec<Vec<ChatMessage>> = Vec::new();
    let mut bytes = 0;
    for message in messages {
        bytes += message.size_bytes();
        match batches.last_mut() {
            Some(batch) if batch.len() < BATCH_MESSAGES && bytes <= BATCH_BYTES => batch.push(message),
            _ => {
                bytes = message.size_bytes();
                batches.push(vec![message]);
            }
        }
    }
    batches
}
