//! How much a tool answers: whole items while they fit, long texts cut where it is said.

use larder_kernel::{Error, ErrorKind, Result, check};
use serde::Serialize;

/// Most bytes of JSON that one tool or resource answers with.
///
/// Content comes twice in a tool's result, as text and as JSON, and text is escaped once more; so a result stays below
/// the 4 MiB that a value of the key-value store, and with it a kept event, may have.
pub const RESULT_BYTES_MAX: usize = 1024 * 1024;

/// Bytes that a listing may still use.
pub(crate) struct Room {
    left: usize,
    empty: bool,
}

impl Room {
    /// An answer's room, less what surrounds the items.
    pub(crate) fn new() -> Self {
        Self { left: RESULT_BYTES_MAX - 64 * 1024, empty: true }
    }

    /// Whether the item still fits; the first always does, as no item is larger than an answer may be.
    pub(crate) fn takes<T: Serialize>(&mut self, item: &T) -> Result<bool> {
        let bytes = size(item)?;
        if !self.empty && bytes > self.left {
            return Ok(false);
        }
        self.empty = false;
        self.left = self.left.saturating_sub(bytes);
        Ok(true)
    }
}

/// Bytes of an item as JSON.
pub(crate) fn size<T: Serialize>(item: &T) -> Result<usize> {
    let json = serde_json::to_vec(item);
    json.map(|json| json.len())
        .map_err(|_| Error::new(ErrorKind::Unexpected, "mcp.answer", "a value that JSON cannot express"))
}

/// Refuses an answer that is too large, with what helps.
pub(crate) fn check_size(operation: &'static str, bytes: usize, what_helps: &'static str) -> Result<()> {
    if bytes <= RESULT_BYTES_MAX {
        return Ok(());
    }
    let error = Error::new(ErrorKind::ResourceExhausted, operation, what_helps);
    Err(error.with_limit(check::size(bytes), check::size(RESULT_BYTES_MAX)))
}

/// The beginning of a text, of at most `bytes_max` bytes and whole characters.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// A piece of a text from a byte on, and where the next one begins.
pub(crate) fn piece<'a>(
    operation: &'static str,
    text: &'a str,
    offset: usize,
    bytes_max: usize,
) -> Result<(&'a str, Option<usize>)> {
    check::at_most(operation, "offset", offset, text.len())?;
    let Some(rest) = text.get(offset..) else {
        return Err(Error::invalid(operation, "offset", "within a character; take `next_offset`"));
    };
    let piece = cut(rest, bytes_max);
    let next = (piece.len() < rest.len()).then_some(offset + piece.len());
    Ok((piece, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_characters_and_join_to_the_text() {
        let text = "aé".repeat(10);
        let (mut offset, mut read) = (0, String::new());
        loop {
            let (part, next) = piece("test", &text, offset, 4).unwrap();
            read.push_str(part);
            match next {
                Some(next) => offset = next,
                None => break,
            }
        }
        assert_eq!(read, text);
        assert_eq!(piece("test", &text, 2, 4).unwrap_err().field(), Some("offset"));
        assert_eq!(piece("test", &text, 31, 4).unwrap_err().limit(), Some(30));
    }
}
