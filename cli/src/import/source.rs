//! Reading the file of a transcript in batches.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::path::Path;

use larder::transcript::{TranscriptReader, TranscriptReport};
use larder_kernel::{ChatMessage, Error, Timestamp, check};

use super::format::Format;
use super::values::{Unreadable, Values};
use super::{database, encoding};
use crate::thread::printable;

/// The messages and bytes per batch. The keys of the batches depend on both: with another number, the same
/// file is another import.
const BATCH_MESSAGES: usize = 500;
const BATCH_BYTES: usize = 8 * 1024 * 1024;

type Sha = [u8; 32];

/// The file of the transcript.
pub(super) struct Source {
    file: File,
    name: String,
    choice: Choice,
    /// The time of each line, if the file was a database.
    times: Vec<Option<Timestamp>>,
    /// The messages of the database that the file does not have.
    skipped: u64,
    /// The values of the database next to the messages.
    fields: u64,
}

/// The options of the command for the file.
#[derive(Debug, Clone, Default)]
pub(super) struct Choice {
    pub(super) format: Format,
    /// The number or the id of a conversation.
    pub(super) conversation: Option<String>,
    pub(super) lossy: bool,
}

/// The summary of the file.
pub(super) struct Survey {
    pub(super) messages: u64,
    /// The digests of the file up to the end of each batch; the last one covers the whole file.
    pub(super) digests: Vec<Sha>,
    pub(super) report: TranscriptReport,
    /// The halves of surrogate pairs outside escapes that were replaced.
    pub(super) replaced: u64,
    whole: Sha,
}

impl Survey {
    /// Returns the digest of the whole file, in hexadecimal.
    pub(super) fn digest(&self) -> String {
        self.whole.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Consecutive messages.
pub(super) struct Batch {
    pub(super) messages: Vec<ChatMessage>,
    /// The digest of the file up to the end of this batch.
    pub(super) digest: Sha,
}

impl Source {
    /// Opens a file, or standard input for `-`. A pipe is copied to a temporary file, because every line is
    /// checked before the first write.
    pub(super) fn open(path: &Path, choice: Choice) -> Result<Self, String> {
        let is_input = path.as_os_str() == "-";
        let name =
            if is_input { "standard input".to_owned() } else { printable(&path.display().to_string()) };
        let refused = |reason: &str| format!("{name}: {reason}; nothing was imported");
        let (file, is_pipe) = if is_input {
            (spool(&mut std::io::stdin().lock(), &name)?, true)
        } else {
            let mut file = File::open(path).map_err(|error| format!("cannot open {name}: {error}"))?;
            let is_pipe = file.metadata().is_ok_and(|metadata| !metadata.is_file());
            (if is_pipe { spool(&mut file, &name)? } else { file }, is_pipe)
        };
        let is_database = is_database(&file).map_err(|error| format!("cannot read {name}: {error}"))?;
        if choice.format.is_database().is_some_and(|expected| expected != is_database) {
            let what = if is_database { "a SQLite database" } else { "not a SQLite database" };
            return Err(refused(&format!("{what} (choose another `--format`)")));
        }
        if !is_database {
            return Ok(Self { file, name, choice, times: Vec::new(), skipped: 0, fields: 0 });
        }
        if is_pipe {
            return Err(refused("a SQLite database cannot be read from a pipe (give its path)"));
        }
        let read = database::read(path, choice.format, choice.conversation.as_deref());
        let conversation = read.map_err(|reason| refused(&reason))?;
        Ok(Self {
            file: conversation.lines,
            choice: Choice { conversation: None, ..choice },
            times: conversation.times,
            skipped: conversation.skipped,
            fields: conversation.fields,
            name,
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Reads the file to its end.
    ///
    /// # Errors
    /// A message with file, line and reason for the first line that is not a message.
    pub(super) fn survey(&self) -> Result<Survey, String> {
        let (mut messages, mut digests) = (0, Vec::new());
        let mut batches = self.batches()?;
        while let Some(batch) = batches.next()? {
            messages += check::size(batch.messages.len());
            digests.push(batch.digest);
        }
        let (mut report, replaced) = (batches.reader.report(), batches.replaced);
        report.skipped_messages += self.skipped;
        report.document_fields += self.fields;
        if self.choice.conversation.is_some() && report.chosen_conversation == 0 {
            let count = report.conversations;
            return Err(format!(
                "{}: no such conversation; the file has {count} (`--conversation`); nothing was imported",
                self.name
            ));
        }
        Ok(Survey { messages, digests, report, replaced, whole: batches.values.digest() })
    }

    /// Reads the file from the start.
    pub(super) fn batches(&self) -> Result<Batches<'_>, String> {
        let Choice { format, conversation, lossy } = &self.choice;
        let mut reader = TranscriptReader::new();
        if let Some(format) = format.transcript() {
            reader = reader.format(format);
        }
        if let Some(conversation) = conversation {
            reader = reader.conversation(conversation.as_str());
        }
        let text = encoding::open(&self.file)
            .map_err(|reason| format!("cannot read {}: {reason}; nothing was imported", self.name))?;
        Ok(Batches {
            values: Values::new(text),
            reader: if *lossy { reader.lossy() } else { reader },
            lossy: *lossy,
            times: &self.times,
            replaced: 0,
            name: &self.name,
            waiting: VecDeque::new(),
        })
    }
}

/// Returns `true` if the file begins as a SQLite database does.
fn is_database(mut file: &File) -> std::io::Result<bool> {
    let mut start = Vec::new();
    file.rewind()?;
    file.take(check::size(database::MAGIC.len())).read_to_end(&mut start)?;
    Ok(start == database::MAGIC)
}

/// Copies a pipe to a temporary file that no other process can open.
fn spool(from: &mut impl std::io::Read, name: &str) -> Result<File, String> {
    let mut file = database::temporary_file()?;
    std::io::copy(from, &mut file).map_err(|error| format!("cannot read {name}: {error}"))?;
    Ok(file)
}

/// The batches of a file, from the start.
pub(super) struct Batches<'a> {
    values: Values<'a>,
    reader: TranscriptReader,
    lossy: bool,
    times: &'a [Option<Timestamp>],
    replaced: u64,
    name: &'a str,
    /// The messages that did not fit into the last batch.
    waiting: VecDeque<ChatMessage>,
}

impl Batches<'_> {
    /// Returns the next batch; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Batch>, String> {
        let (mut messages, mut bytes) = (Vec::new(), 0);
        while messages.len() < BATCH_MESSAGES {
            let Some(message) = self.message()? else { break };
            bytes += message.size_bytes();
            if bytes > BATCH_BYTES && !messages.is_empty() {
                self.waiting.push_front(message);
                break;
            }
            messages.push(message);
        }
        Ok((!messages.is_empty()).then(|| Batch { messages, digest: self.values.digest() }))
    }

    /// Returns the next message.
    fn message(&mut self) -> Result<Option<ChatMessage>, String> {
        while self.waiting.is_empty() {
            let next = self.values.next();
            let Some(value) = next.map_err(|Unreadable { line, reason }| self.refused(line, reason))? else {
                return Ok(None);
            };
            let text = encoding::text(&value.json, self.lossy.then_some(&mut self.replaced));
            let text = text.map_err(|(line, reason)| refused(self.name, value.line + line, reason))?;
            let read = self.reader.read(&text);
            self.waiting = read.map_err(|error| self.refused_message(value.line, &error))?.into();
            let line = usize::try_from(value.line - 1).unwrap_or(usize::MAX);
            if let Some(at) = self.times.get(line).copied().flatten() {
                self.waiting.iter_mut().for_each(|message| message.created_at = at);
            }
        }
        Ok(self.waiting.pop_front())
    }

    fn refused_message(&self, line: u64, error: &Error) -> String {
        let fact = |name| {
            let fact = error.context().iter().find(|(known, _)| *known == name);
            fact.and_then(|(_, fact)| fact.to_string().parse::<u64>().ok())
        };
        let message = fact("message").map_or_else(String::new, |at| format!("message {at} of the list: "));
        self.refused(line + fact("line").unwrap_or(1) - 1, format!("{message}{}", reason(error)))
    }

    fn refused(&self, line: u64, reason: impl std::fmt::Display) -> String {
        refused(self.name, line, reason)
    }
}

fn refused(name: &str, line: u64, reason: impl std::fmt::Display) -> String {
    format!("{name}:{line}: {reason}; nothing was imported")
}

/// Formats the error without the name of the operation.
fn reason(error: &Error) -> String {
    let limit = error.limit().zip(error.actual());
    let limit = limit.map_or_else(String::new, |(limit, actual)| format!(" ({actual}, limit {limit})"));
    let message =
        error.message().replace("`lossy`", "`--lossy`").replace("`conversation`", "`--conversation`");
    match error.field() {
        None | Some("line") => format!("no message: {message}{limit}"),
        Some(field) => format!("no message: `{field}`: {message}{limit}"),
    }
}
