//! Reading the file of a transcript in batches.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::path::Path;

use larder::transcript::parse_line;
use larder_kernel::ChatMessage;
use sha2::{Digest, Sha256};

use crate::thread::printable;

/// The messages and bytes per batch. The keys of the batches depend on both: with another number, the same
/// file is another import.
const BATCH_MESSAGES: usize = 500;
const BATCH_BYTES: usize = 8 * 1024 * 1024;
/// The maximum length of a line, in bytes. A longer line cannot contain a message that a store accepts, even
/// if every character is escaped.
const LINE_BYTES_MAX: u64 = 32 * 1024 * 1024;
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

type Sha = [u8; 32];

/// The file of the transcript.
pub(super) struct Source {
    file: File,
    name: String,
}

/// The summary of the file.
pub(super) struct Survey {
    pub(super) messages: u64,
    /// The digests of the file up to the end of each batch; the last one covers the whole file.
    pub(super) digests: Vec<Sha>,
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
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let name = printable(&path.display().to_string());
        let file = File::open(path).map_err(|error| format!("cannot open {name}: {error}"))?;
        Ok(Self { file, name })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Reads the file to its end.
    ///
    /// # Errors
    /// A message with file, line and reason for the first line that is not a message.
    pub(super) fn survey(&self) -> Result<Survey, String> {
        let mut survey = Survey { messages: 0, digests: Vec::new(), whole: Sha::default() };
        let mut batches = self.batches()?;
        while let Some(batch) = batches.next()? {
            survey.messages += larder_kernel::check::size(batch.messages.len());
            survey.digests.push(batch.digest);
        }
        survey.whole = batches.digest();
        Ok(survey)
    }

    /// Reads the file from the start.
    pub(super) fn batches(&self) -> Result<Batches<'_>, String> {
        let rewound = (&self.file).rewind();
        rewound.map_err(|error| format!("cannot read {} twice: {error}", self.name))?;
        Ok(Batches {
            reader: BufReader::new(&self.file),
            name: &self.name,
            hasher: Sha256::new(),
            line: 0,
            waiting: None,
        })
    }
}

/// The batches of a file, from the start.
pub(super) struct Batches<'a> {
    reader: BufReader<&'a File>,
    name: &'a str,
    hasher: Sha256,
    line: u64,
    /// The message that did not fit into the last batch.
    waiting: Option<ChatMessage>,
}

impl Batches<'_> {
    /// Returns the next batch; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Batch>, String> {
        let (mut messages, mut bytes) = (Vec::new(), 0);
        while messages.len() < BATCH_MESSAGES {
            let message = match self.waiting.take() {
                Some(message) => message,
                None => match self.message()? {
                    Some(message) => message,
                    None => break,
                },
            };
            bytes += message.size_bytes();
            if bytes > BATCH_BYTES && !messages.is_empty() {
                self.waiting = Some(message);
                break;
            }
            messages.push(message);
        }
        Ok((!messages.is_empty()).then(|| Batch { messages, digest: self.digest() }))
    }

    /// Returns the digest of the file so far.
    fn digest(&self) -> Sha {
        self.hasher.clone().finalize().into()
    }

    /// Returns the message of the next line that is not blank.
    fn message(&mut self) -> Result<Option<ChatMessage>, String> {
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = self.reader.by_ref().take(LINE_BYTES_MAX + 1).read_until(b'\n', &mut line);
            let read = read.map_err(|error| format!("cannot read {}: {error}", self.name))?;
            if read == 0 {
                return Ok(None);
            }
            self.line += 1;
            self.hasher.update(&line);
            if larder_kernel::check::size(read) > LINE_BYTES_MAX {
                return Err(self.refused(format_args!("longer than {LINE_BYTES_MAX} bytes")));
            }
            let start =
                if self.line == 1 && line.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 };
            let text = std::str::from_utf8(&line[start..]).map_err(|_| self.refused("not UTF-8"))?;
            if !text.trim().is_empty() {
                return parse_line(text).map(Some).map_err(|error| self.refused(reason(&error)));
            }
        }
    }

    fn refused(&self, reason: impl std::fmt::Display) -> String {
        format!("{}:{}: {reason}; nothing was imported", self.name, self.line)
    }
}

/// Formats the error without the name of the operation.
fn reason(error: &larder_kernel::Error) -> String {
    let field = error.field().unwrap_or("line");
    let limit = error.limit().zip(error.actual());
    let limit = limit.map_or_else(String::new, |(limit, actual)| format!(" ({actual}, limit {limit})"));
    format!("no message: `{field}`: {}{limit}", error.message())
}
