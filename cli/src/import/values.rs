//! The JSON values of a file: one per line, the items of one list, or values over several lines.

use std::io::{BufRead, Read};

use sha2::{Digest, Sha256};

/// The maximum length of a line, and of a value over several lines, in bytes. A document may contain a whole
/// conversation.
pub(super) const VALUE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// The longest piece that is read of a line, in bytes. A list of conversations may be one line.
const PIECE_BYTES: u64 = 64 * 1024;
/// The longest start of a line that columns count, in bytes.
const INDENT_BYTES_MAX: usize = 4_096;
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// A JSON value and the line where it starts.
pub(super) struct Value {
    pub(super) line: u64,
    pub(super) json: Vec<u8>,
}

/// The reason why a value cannot be read, and its line.
pub(super) struct Unreadable {
    pub(super) line: u64,
    pub(super) reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Nothing was read yet.
    Start,
    /// One value per line.
    Lines,
    /// Values over several lines.
    Spread,
    /// The items of a list. `true` if a comma must come before the next one.
    List(bool),
    /// The list has ended.
    Ended,
}

/// The values of a file.
pub(super) struct Values<'a> {
    reader: Box<dyn BufRead + 'a>,
    hasher: Sha256,
    mode: Mode,
    /// The current line or a piece of it, without its number. The unread part starts at `at`.
    text: Vec<u8>,
    at: usize,
    line: u64,
    /// The bytes of the line before `text`.
    before: usize,
    /// `true` if the line goes on after `text`.
    goes_on: bool,
    /// The line and the column of a list's last comma, while no item follows it.
    comma: Option<(u64, usize)>,
}

impl<'a> Values<'a> {
    pub(super) fn new(reader: impl BufRead + 'a) -> Self {
        Self {
            reader: Box::new(reader),
            hasher: Sha256::new(),
            mode: Mode::Start,
            text: Vec::new(),
            at: 0,
            line: 0,
            before: 0,
            goes_on: false,
            comma: None,
        }
    }

    /// Returns the digest of the file so far.
    pub(super) fn digest(&self) -> [u8; 32] {
        self.hasher.clone().finalize().into()
    }

    /// Returns the next value; `None` at the end of the file.
    pub(super) fn next(&mut self) -> Result<Option<Value>, Unreadable> {
        loop {
            if let Mode::List(expects_comma) = self.mode {
                match self.item(expects_comma)? {
                    Some(item) => return Ok(Some(item)),
                    None => continue,
                }
            }
            if !self.skip_blank()? {
                return Ok(None);
            }
            if self.mode == Mode::Ended {
                return Err(self.refused("text after the end of the list (remove it)"));
            }
            if self.mode == Mode::Start && self.text[self.at] == b'[' {
                self.mode = Mode::List(false);
                self.at += 1;
                continue;
            }
            if self.mode == Mode::Spread {
                return self.spread().map(Some);
            }
            self.complete()?;
            if self.mode == Mode::Start {
                let line = self.text[self.at..].trim_ascii_end();
                let opens = matches!(line, [b'{'] | [b'{', .., b'{' | b'[' | b',' | b':']);
                let is_spread = opens && Nesting::default().end(line).is_none();
                self.mode = if is_spread { Mode::Spread } else { Mode::Lines };
                continue;
            }
            let json = [&*self.indent(), self.text[self.at..].trim_ascii_end()].concat();
            self.text.clear();
            return Ok(Some(Value { line: self.line, json }));
        }
    }

    fn refused(&self, reason: impl Into<String>) -> Unreadable {
        Unreadable { line: self.line, reason: reason.into() }
    }

    /// Reads the next line, or the next piece of a long one. Returns `false` at the end of the file.
    fn read_piece(&mut self) -> Result<bool, Unreadable> {
        let begins = !self.goes_on;
        self.before = if begins { 0 } else { self.before + self.text.len() };
        self.text.clear();
        self.at = 0;
        if !self.extend(PIECE_BYTES)? {
            return Ok(false);
        }
        self.line += u64::from(begins);
        if begins && self.line == 1 && self.text.starts_with(BYTE_ORDER_MARK) {
            self.at = BYTE_ORDER_MARK.len();
        }
        Ok(true)
    }

    /// Adds at most `limit` bytes of the line to the text. Returns `false` at the end of the file.
    fn extend(&mut self, limit: u64) -> Result<bool, Unreadable> {
        let from = self.text.len();
        let read = self.reader.by_ref().take(limit).read_until(b'\n', &mut self.text);
        let read = read.map_err(|error| self.refused(format!("cannot read the line: {error}")))?;
        self.hasher.update(&self.text[from..]);
        self.goes_on = self.text.last().is_some_and(|last| *last != b'\n');
        Ok(read > 0)
    }

    /// Reads the rest of the line.
    fn complete(&mut self) -> Result<(), Unreadable> {
        let length = |text: &[u8]| larder_kernel::check::size(text.len());
        if self.goes_on {
            self.extend((VALUE_BYTES_MAX + 1).saturating_sub(length(&self.text)))?;
        }
        if length(&self.text) > VALUE_BYTES_MAX { Err(self.too_long()) } else { Ok(()) }
    }

    fn too_long(&self) -> Unreadable {
        self.refused(format!("longer than {} MiB (split it)", VALUE_BYTES_MAX / (1024 * 1024)))
    }

    /// Moves to the next byte that is not white space. Returns `false` at the end of the file.
    fn skip_blank(&mut self) -> Result<bool, Unreadable> {
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            if let Some(blank) = rest.iter().position(|byte| !byte.is_ascii_whitespace()) {
                self.at += blank;
                return Ok(true);
            }
            if !self.read_piece()? {
                return Ok(false);
            }
        }
    }

    /// Returns white space as long as the line before the value, so that the parser counts its columns.
    fn indent(&self) -> Vec<u8> {
        let before = self.text.get(..self.at).filter(|before| self.before + before.len() <= INDENT_BYTES_MAX);
        before.map_or_else(Vec::new, |before| {
            vec![b' '; String::from_utf8_lossy(before).trim_start_matches('\u{feff}').chars().count()]
        })
    }

    /// Reads a value that ends on this or a later line.
    fn spread(&mut self) -> Result<Value, Unreadable> {
        let (line, mut json, mut nesting) = (self.line, self.indent(), Nesting::default());
        loop {
            let rest = &self.text[self.at..];
            let end = nesting.end(rest);
            json.extend_from_slice(&rest[..end.unwrap_or(rest.len())]);
            if larder_kernel::check::size(json.len()) > VALUE_BYTES_MAX {
                return Err(Unreadable { line, ..self.too_long() });
            }
            if let Some(end) = end {
                self.at += end;
                return Ok(Value { line, json });
            }
            // The parser reports a value that does not end.
            if !self.read_piece()? {
                return Ok(Value { line, json });
            }
        }
    }

    /// Reads the next item of a list; `None` at its end.
    fn item(&mut self, expects_comma: bool) -> Result<Option<Value>, Unreadable> {
        if !self.skip_blank()? {
            return Err(self.refused("the list ends too early (complete it)"));
        }
        let column = self.before + self.at + 1;
        if let (b']', Some((line, column))) = (self.text[self.at], self.comma) {
            let reason = format!("comma at column {column} without a value after it (remove it)");
            return Err(Unreadable { line, reason });
        }
        match (self.text[self.at], expects_comma) {
            (b']', _) => {
                self.mode = Mode::Ended;
                self.at += 1;
                return Ok(None);
            }
            (b',', true) => {
                self.mode = Mode::List(false);
                self.comma = Some((self.line, column));
                self.at += 1;
                return Ok(None);
            }
            (b',', false) => {
                return Err(self.refused(format!("comma at column {column} without a value before it")));
            }
            (_, true) => return Err(self.refused(format!("no comma before the value at column {column}"))),
            (b'{' | b'[', false) => {}
            _ => {
                return Err(
                    self.refused(format!("not a message at column {column}: neither an object nor a list"))
                );
            }
        }
        self.comma = None;
        self.mode = Mode::List(true);
        self.spread().map(Some)
    }
}

/// The nesting of JSON text that arrives in pieces.
#[derive(Default)]
struct Nesting {
    depth: usize,
    in_string: bool,
    escaped: bool,
}

impl Nesting {
    /// Returns the end of the value in this piece, if it ends there.
    fn end(&mut self, piece: &[u8]) -> Option<usize> {
        for (at, byte) in piece.iter().enumerate() {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(u64, String)>, (u64, String)> {
        let mut values = Values::new(text.as_bytes());
        let mut all = Vec::new();
        loop {
            match values.next() {
                Ok(Some(value)) => {
                    all.push((value.line, String::from_utf8(value.json).unwrap().trim_start().to_owned()));
                }
                Ok(None) => return Ok(all),
                Err(error) => return Err((error.line, error.reason)),
            }
        }
    }

    fn at(line: u64, json: &str) -> (u64, String) {
        (line, json.to_owned())
    }

    #[test]
    fn a_value_is_a_line_an_item_of_a_list_or_several_lines() {
        assert_eq!(read("\u{feff}{\"a\":1}\n\n  {}\r\n").unwrap(), [at(1, "{\"a\":1}"), at(3, "{}")]);
        assert_eq!(
            read("[{\"a\":\"]}\"},\n [1]\n,{}]").unwrap(),
            [at(1, "{\"a\":\"]}\"}"), at(2, "[1]"), at(3, "{}")]
        );
        assert_eq!(read("[\n]\n").unwrap(), []);
        assert_eq!(
            read("{\n\"a\": \"\\\"}\"\n}\n{\n}").unwrap(),
            [at(1, "{\n\"a\": \"\\\"}\"\n}"), at(4, "{\n}")]
        );
        assert_eq!(read("{\"a\": 1\n{\"b\": 2}\n").unwrap().len(), 2);
        assert_eq!(read("{\"a\": 1},\n{}\n").unwrap(), [at(1, "{\"a\": 1},"), at(2, "{}")]);
        assert_eq!(read("{\n\"a\": 1\n").unwrap(), [at(1, "{\n\"a\": 1\n")]);
    }

    #[test]
    fn a_list_on_one_line_is_read_in_pieces() {
        let item = format!(r#"{{"a":"{}"}}"#, "x".repeat(1_000));
        let text = format!("[{}, 7]", vec![item.as_str(); 2_000].join(","));
        let mut values = Values::new(text.as_bytes());
        for _ in 0..2_000 {
            let value = values.next().ok().flatten().unwrap();
            assert_eq!((value.line, value.json.trim_ascii_start()), (1, item.as_bytes()));
            assert!(values.text.capacity() < 256 * 1024, "{}", values.text.capacity());
        }
        let Err(refused) = values.next() else { panic!("a number was read") };
        let column = format!("not a message at column {}", text.len() - 1);
        assert!(refused.line == 1 && refused.reason.starts_with(&column), "{}", refused.reason);
        // A long line of a transcript is one value.
        let long = item.replace("xx", "xxxx".repeat(100).as_str());
        assert_eq!(read(&format!("{long}\n\n{long}")).unwrap(), [at(1, &long), at(3, &long)]);
    }

    #[test]
    fn a_value_that_is_not_a_list_is_named_with_line_and_column() {
        for (text, line, reason) in [
            ("[{},\n ]", 1, "comma at column 4"),
            ("[{}\n{}]", 2, "no comma before the value at column 1"),
            ("[,{}]", 1, "comma at column 2"),
            ("[{},\n", 1, "ends too early"),
            ("[{}] {}", 1, "after the end"),
            ("[1]", 1, "column 2"),
        ] {
            let (at, said) = read(text).unwrap_err();
            assert!(at == line && said.contains(reason), "{text}: {at}: {said}");
        }
    }
}
