//! Faults of JSON text that parsers report without a place, or not at all.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::ops::Range;

use larder_kernel::{Error, Result};

use super::PARSE;

/// The maximum nesting of a line. The parser refuses more.
const LEVELS_MAX: usize = 127;
/// The maximum length of a field's name in an error, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// A fault, at a byte of the text.
struct Fault {
    kind: Kind,
    at: usize,
    path: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Surrogate,
    Range,
    NotANumber,
    Levels,
    Comma,
}

/// Checks the text for faults that have a better description than "not JSON".
///
/// # Errors
/// `InvalidInput` with the field and the column.
pub(super) fn check(json: &str) -> Result<()> {
    match Scan::new(json).fault() {
        None => Ok(()),
        Some(fault) => Err(fault.into_error(json)),
    }
}

/// Replaces each half of a surrogate pair with U+FFFD and returns the number of replacements.
pub(super) fn replace_surrogates(json: &str) -> (Cow<'_, str>, u64) {
    let mut scan = Scan::new(json);
    let (mut fixed, mut copied, mut replaced) = (String::new(), 0, 0);
    while let Some(fault) = scan.fault() {
        if fault.kind != Kind::Surrogate {
            break;
        }
        fixed.push_str(&json[copied..fault.at]);
        fixed.push_str("\\ufffd");
        copied = fault.at + 6;
        replaced += 1;
    }
    if replaced == 0 {
        return (Cow::Borrowed(json), 0);
    }
    fixed.push_str(&json[copied..]);
    (Cow::Owned(fixed), replaced)
}

/// Returns the line and the column of a byte, both from 1.
fn position(text: &str, at: usize) -> (u64, u64) {
    let before = text.get(..at).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
    let column = before[start..].chars().count() + 1;
    (larder_kernel::check::size(line), larder_kernel::check::size(column))
}

impl Fault {
    fn into_error(self, json: &str) -> Error {
        let (line, column) = position(json, self.at);
        let place = match &*self.path {
            "" => format!("column {column}"),
            path => format!("`{path}`, column {column}"),
        };
        let message = match self.kind {
            Kind::Surrogate => format!(
                "half of a surrogate pair, which is not a character, at {place} (`lossy` replaces it with \
                 U+FFFD)"
            ),
            Kind::Range => {
                format!("number out of range at {place}; the limit is ±1.8e308 (write it as a string)")
            }
            Kind::NotANumber => {
                format!("NaN or Infinity at {place}, which JSON does not have (write null or a string)")
            }
            Kind::Levels => {
                format!(
                    "nested deeper than {LEVELS_MAX} levels at column {column} (write the value as a string)"
                )
            }
            Kind::Comma => format!(
                "comma at column {column} without a value after it (remove it; one JSON array is accepted \
                 too)"
            ),
        };
        let field = ["content", "tool_calls", "role", "tool_call_id", "parts"]
            .into_iter()
            .find(|name| self.path.split(['.', '[']).next() == Some(name));
        let error = Error::invalid(PARSE, field.unwrap_or("line"), message);
        if line > 1 { error.with_context("line", line) } else { error }
    }
}

enum Frame {
    /// An object, with the last name, and `true` if a name comes next.
    Object(Option<Range<usize>>, bool),
    /// A list, with the index of the item.
    List(usize),
}

/// A walk over the text. It stops at the end of the first value and at text that is not JSON; the parser
/// reports that.
struct Scan<'a> {
    text: &'a str,
    at: usize,
    frames: Vec<Frame>,
    /// The last comma, while nothing follows it.
    comma: Option<usize>,
    ended: bool,
    /// The start of a string whose rest is not yet read, and the start of the rest.
    within: Option<(usize, usize)>,
}

impl<'a> Scan<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, at: 0, frames: Vec::new(), comma: None, ended: false, within: None }
    }

    fn found(&self, kind: Kind, at: usize) -> Option<Fault> {
        Some(Fault { kind, at, path: self.path() })
    }

    /// Returns the next fault.
    fn fault(&mut self) -> Option<Fault> {
        let bytes = self.text.as_bytes();
        if let Some((open, from)) = self.within.take()
            && let Some(fault) = self.string(open, from)
        {
            return Some(fault);
        }
        while let Some(byte) = bytes.get(self.at).copied() {
            let at = self.at;
            self.at += 1;
            if byte.is_ascii_whitespace() {
                continue;
            }
            if self.ended {
                // A further value is reported by the parser.
                return (byte == b',').then(|| Fault { kind: Kind::Comma, at, path: String::new() });
            }
            let comma = self.comma.take();
            match byte {
                b'{' | b'[' => {
                    let list = byte == b'[';
                    self.frames.push(if list { Frame::List(0) } else { Frame::Object(None, true) });
                    if self.frames.len() > LEVELS_MAX {
                        return self.found(Kind::Levels, at);
                    }
                }
                b'}' | b']' => {
                    if let Some(comma) = comma {
                        return Some(Fault { kind: Kind::Comma, at: comma, path: String::new() });
                    }
                    self.frames.pop();
                    self.ended = self.frames.is_empty();
                }
                b',' => {
                    self.comma = Some(at);
                    match self.frames.last_mut() {
                        Some(Frame::Object(name, expected)) => (*name, *expected) = (None, true),
                        Some(Frame::List(index)) => *index += 1,
                        None => return None,
                    }
                }
                b'"' => {
                    if let Some(fault) = self.string(at, at + 1) {
                        return Some(fault);
                    }
                }
                b'-' | b'0'..=b'9' => {
                    let rest = &bytes[at..];
                    let is_part = |byte: &u8| byte.is_ascii_digit() || b"+-.eE".contains(byte);
                    let length = rest.iter().take_while(|byte| is_part(byte)).count();
                    self.at = at + length;
                    if byte == b'-' && bytes.get(self.at) == Some(&b'I') {
                        return self.found(Kind::NotANumber, at);
                    }
                    if self.text[at..self.at].parse::<f64>().is_ok_and(f64::is_infinite) {
                        return self.found(Kind::Range, at);
                    }
                }
                b'N' | b'I' => return self.found(Kind::NotANumber, at),
                _ => {}
            }
        }
        None
    }

    /// Reads the rest of the string that begins at `open`. Returns its next half of a surrogate pair.
    fn string(&mut self, open: usize, from: usize) -> Option<Fault> {
        let bytes = self.text.as_bytes();
        let mut at = from;
        while let Some(byte) = bytes.get(at) {
            match byte {
                b'"' => break,
                b'\\' => match self.half(at) {
                    Half::None => at += 2,
                    Half::Pair => at += 12,
                    Half::Alone => {
                        self.within = Some((open, at + 6));
                        return self.found(Kind::Surrogate, at);
                    }
                },
                _ => at += 1,
            }
        }
        self.at = at + 1;
        if let Some(Frame::Object(name, expected)) = self.frames.last_mut()
            && std::mem::take(expected)
        {
            *name = Some(open + 1..at);
        }
        None
    }

    fn half(&self, at: usize) -> Half {
        let unit = |at: usize| {
            let digits = self.text.get(at..at + 6)?.strip_prefix("\\u")?;
            u32::from_str_radix(digits, 16).ok()
        };
        match unit(at) {
            Some(0xD800..=0xDBFF) if matches!(unit(at + 6), Some(0xDC00..=0xDFFF)) => Half::Pair,
            Some(0xD800..=0xDFFF) => Half::Alone,
            _ => Half::None,
        }
    }

    /// Returns the place of the walk as names and indexes. A name that is not an identifier is `?`.
    fn path(&self) -> String {
        let mut path = String::new();
        for frame in &self.frames {
            match frame {
                Frame::List(index) => {
                    let _ = write!(path, "[{index}]");
                }
                Frame::Object(name, _) => {
                    let name = name.clone().and_then(|range| self.text.get(range)).filter(|name| {
                        let known = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
                        (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(known)
                    });
                    if !path.is_empty() {
                        path.push('.');
                    }
                    path.push_str(name.unwrap_or("?"));
                }
            }
        }
        path
    }
}

enum Half {
    None,
    Pair,
    Alone,
}
