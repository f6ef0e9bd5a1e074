//! Reading an archive: once to its end, and then on request.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use larder_kernel::{BlobBytes, Contract, Error, ErrorKind, Result, Timestamp};
use serde::de::DeserializeOwned;
use sha2::{Digest as _, Sha256};

use super::Archive;
use super::format::{
    AnyHeader, CHECKSUM_CHARS, End, Header, LINE_BYTES_MAX, Line, Mark, READ, VERSION, VERSION_WITH_MISSING,
    altered, failed,
};
use crate::internal::hex;
use crate::transfer::digest::{Digest, Digester};
use crate::transfer::position::{Chain, Position};
use crate::transfer::record::{BlobRecord, Record, SortKey};

const CHANGED: &str = "the line does not match its checksum; the archive is damaged";

/// The lines of a file from a position on.
struct Lines {
    reader: BufReader<File>,
    at: Position,
}

/// A line with a valid checksum.
struct Text {
    json: String,
    start: Position,
}

impl Text {
    fn altered(&self, message: &'static str) -> Error {
        altered(message, self.start.line, self.start.offset)
    }

    fn parse<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(&self.json)
            .map_err(|_| self.altered("the line is not an archive record; restore the file from a copy"))
    }
}

impl Lines {
    fn open(path: &Path, at: Position) -> Result<Self> {
        let mut file = File::open(path).map_err(|error| failed(READ, error))?;
        file.seek(SeekFrom::Start(at.offset)).map_err(|error| failed(READ, error))?;
        Ok(Self { reader: BufReader::new(file), at })
    }

    fn start() -> Position {
        Position { offset: 0, line: 1, chain: Chain::start() }
    }

    /// Returns the next line, or `None` at the end of the file.
    fn next(&mut self) -> Result<Option<Text>> {
        let Position { offset, line, .. } = self.at;
        let mut bytes = Vec::new();
        let mut limited = (&mut self.reader).take(LINE_BYTES_MAX);
        let read = limited.read_until(b'\n', &mut bytes).map_err(|error| failed(READ, error))?;
        if read == 0 {
            return Ok(None);
        }
        if bytes.pop() != Some(b'\n') {
            let ended = self.reader.fill_buf().map_err(|error| failed(READ, error))?.is_empty();
            let message = if ended {
                "the file ends within a line; it is truncated"
            } else {
                "the line is too long; restore the file from a copy"
            };
            return Err(altered(message, line, offset));
        }
        let parts = bytes.split_at_checked(CHECKSUM_CHARS);
        let parts = parts.and_then(|(checksum, rest)| Some((checksum, rest.strip_prefix(b" ")?)));
        let (checksum, json) = parts.ok_or_else(|| altered(CHANGED, line, offset))?;
        let chain = self.at.chain.then(json);
        if chain.text().as_bytes() != checksum {
            return Err(altered(CHANGED, line, offset));
        }
        let json = std::str::from_utf8(json).map_err(|_| altered(CHANGED, line, offset))?.to_owned();
        let next = Position { offset: offset + larder_kernel::check::size(read), line: line + 1, chain };
        let start = std::mem::replace(&mut self.at, next);
        Ok(Some(Text { json, start }))
    }

    /// Returns the error for a file that ends too early.
    fn too_short(&self) -> Error {
        altered(
            "the file is truncated: it has no end record; write the archive again",
            self.at.line,
            self.at.offset,
        )
    }
}

pub(super) fn open(path: &Path) -> Result<Archive> {
    let mut lines = Lines::open(path, Lines::start())?;
    let header = header(&mut lines)?;
    let mut survey = Survey::new(&header);
    let end = loop {
        let text = lines.next()?.ok_or_else(|| lines.too_short())?;
        match text.parse()? {
            Line::Record(record) => survey.record(&text, &record)?,
            Line::Mark(Mark::Part(part)) => survey.part(&text, &part),
            Line::Mark(Mark::End(end)) => {
                survey.end(&text, &end)?;
                break end;
            }
        }
    };
    if let Some(text) = lines.next()? {
        return Err(text.altered("the file continues after its end record; it is damaged"));
    }
    let starts = survey.starts;
    let End { digests, missing, .. } = end;
    Ok(Archive { path: path.to_owned(), header, starts, digests, missing })
}

fn header(lines: &mut Lines) -> Result<Header> {
    let text = lines.next()?.ok_or_else(|| lines.too_short())?;
    let AnyHeader { larder_archive: version } = text.parse()?;
    if version != VERSION && version != VERSION_WITH_MISSING {
        let message = "the archive has another format number than this program reads; upgrade the program";
        return Err(Error::new(ErrorKind::Unsupported, READ, message)
            .with_context("version", u64::from(version))
            .with_context("reads", u64::from(VERSION_WITH_MISSING)));
    }
    text.parse()
}

/// The state of the first read of a file.
struct Survey<'a> {
    header: &'a Header,
    starts: Vec<(Contract, Position)>,
    digests: Vec<(Contract, Digester)>,
    last: Option<(Contract, SortKey)>,
    /// The parts since the last record: the position of the first, their total size, and their hash.
    parts: Option<(Position, u64, Sha256)>,
}

impl<'a> Survey<'a> {
    fn new(header: &'a Header) -> Self {
        Self { header, starts: Vec::new(), digests: Vec::new(), last: None, parts: None }
    }

    fn part(&mut self, text: &Text, part: &Bytes) {
        let (_, size, digest) = self.parts.get_or_insert_with(|| (text.start.clone(), 0, Sha256::new()));
        *size += larder_kernel::check::size(part.len());
        digest.update(part);
    }

    fn record(&mut self, text: &Text, record: &Record) -> Result<()> {
        let (contract, key) = (record.contract(), record.sort_key());
        if !follows(self.last.as_ref(), contract, &key) {
            return Err(text.altered("the record is out of order; the archive is damaged"));
        }
        let parts = self.parts.take();
        let start = parts.as_ref().map_or(&text.start, |(start, ..)| start).clone();
        match record {
            Record::Blob(blob) => {
                let (size, digest) = parts.map_or((0, Sha256::new()), |(_, size, digest)| (size, digest));
                let sha256: [u8; 32] = digest.finalize().into();
                if size != blob.size || Some(hex(&sha256)) != blob.sha256 {
                    return Err(
                        text.altered("the blob does not match the parts before it; the archive is damaged")
                    );
                }
            }
            _ if parts.is_some() => {
                return Err(
                    text.altered("a part of a blob is followed by another record; the archive is damaged")
                );
            }
            _ => {}
        }
        if self.last.as_ref().is_none_or(|(last, _)| *last != contract) {
            self.begin(text, contract, start)?;
        }
        if let Some((_, digester)) = self.digests.last_mut() {
            digester.add(record)?;
        }
        self.last = Some((contract, key));
        Ok(())
    }

    /// Begins the records of a contract.
    fn begin(&mut self, text: &Text, contract: Contract, start: Position) -> Result<()> {
        let place = |wanted: Contract| self.header.contracts.iter().position(|named| *named == wanted);
        let before = self.last.as_ref().and_then(|(last, _)| place(*last));
        match place(contract) {
            Some(here) if before.is_none_or(|before| before < here) => {}
            _ => {
                return Err(text.altered(
                    "the record belongs to a contract that the header does not name; the archive is damaged",
                ));
            }
        }
        self.starts.push((contract, start));
        self.digests.push((contract, Digester::default()));
        Ok(())
    }

    fn end(&mut self, text: &Text, end: &End) -> Result<()> {
        let mut found = std::mem::take(&mut self.digests).into_iter().peekable();
        let digests: Vec<(Contract, Digest)> = self
            .header
            .contracts
            .iter()
            .map(|contract| {
                let digester = found.next_if(|(named, _)| named == contract).map(|(_, digester)| digester);
                (*contract, digester.unwrap_or_default().finish())
            })
            .collect();
        let records: u64 = digests.iter().map(|(_, digest)| digest.records).sum();
        if self.parts.is_some() || records != end.records || digests != end.digests {
            return Err(
                text.altered("the end record does not match the records before it; the archive is damaged")
            );
        }
        Ok(())
    }
}

/// Returns `true` if a record may follow the last one: it is later in the order of its contract, and no
/// message or task is missing before it.
fn follows(last: Option<&(Contract, SortKey)>, contract: Contract, key: &SortKey) -> bool {
    let last = last.filter(|(named, _)| *named == contract).map(|(_, last)| last);
    last.is_none_or(|last| last < key) && key.comes_after(last, contract)
}

/// The records of one contract.
pub(crate) struct ArchiveScan {
    lines: Option<Lines>,
    contract: Contract,
    body: Option<Position>,
}

impl ArchiveScan {
    pub(super) fn new(path: &Path, contract: Contract, start: Option<&Position>) -> Result<Self> {
        let lines = start.map(|start| Lines::open(path, start.clone())).transpose()?;
        Ok(Self { lines, contract, body: None })
    }

    /// Returns the next record. Skips a key that has expired, as a store would.
    pub(crate) fn next(&mut self) -> Result<Option<Record>> {
        loop {
            let Some(lines) = &mut self.lines else { return Ok(None) };
            let text = lines.next()?.ok_or_else(|| lines.too_short())?;
            let mut record = match text.parse()? {
                Line::Record(record) => *record,
                Line::Mark(Mark::Part(_)) => {
                    self.body.get_or_insert(text.start);
                    continue;
                }
                Line::Mark(Mark::End(_)) => break,
            };
            if record.contract() != self.contract {
                break;
            }
            if let Record::Blob(blob) = &mut record {
                blob.body = self.body.take();
            }
            if !record.expired_by(Timestamp::now()) {
                return Ok(Some(record));
            }
        }
        self.lines = None;
        Ok(None)
    }
}

/// Reads the parts of a blob, up to its record.
pub(super) fn body(path: &Path, blob: &BlobRecord) -> Result<BlobBytes> {
    let Some(start) = blob.body.clone() else { return Ok(stream::empty().boxed()) };
    let mut lines = Some(Lines::open(path, start)?);
    let parts = std::iter::from_fn(move || {
        let part = next_part(lines.as_mut()?);
        if !matches!(part, Ok(Some(_))) {
            lines = None;
        }
        part.transpose()
    });
    Ok(stream::iter(parts).boxed())
}

fn next_part(lines: &mut Lines) -> Result<Option<Bytes>> {
    let text = lines.next()?.ok_or_else(|| lines.too_short())?;
    match text.parse()? {
        Line::Mark(Mark::Part(part)) => Ok(Some(part)),
        _ => Ok(None),
    }
}
