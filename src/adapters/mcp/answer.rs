//! The size limits of results: listings contain whole items, and long texts are cut and marked.

use larder_kernel::{Error, ErrorKind, Result, check};
use serde::Serialize;

/// The maximum size of the JSON in one tool or resource result, in bytes.
///
/// A tool result contains its content twice, as text and as JSON, and escapes the text once more. With this
/// limit, a result stays below the 4 MiB limit of key-value values, so a store can keep it as an event.
pub const RESULT_BYTES_MAX: usize = 1024 * 1024;

/// The bytes that a listing may still use.
pub(crate) struct Room {
    left: usize,
    empty: bool,
}

impl Room {
    /// Creates the budget of one result, without the part around the items.
    pub(crate) fn new() -> Self {
        Self { left: RESULT_BYTES_MAX - 64 * 1024, empty: true }
    }

    /// Returns whether the item still fits. The first item always fits, because no item exceeds the limit of
    /// a result.
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

/// Returns the size of an item as JSON, in bytes.
pub(crate) fn size<T: Serialize>(item: &T) -> Result<usize> {
    let json = serde_json::to_vec(item);
    json.map(|json| json.len())
        .map_err(|_| Error::new(ErrorKind::Unexpected, "mcp.answer", "the value cannot be written as JSON"))
}

/// Refuses a result that is too large, with a hint for the caller.
pub(crate) fn check_size(operation: &'static str, bytes: usize, what_helps: &'static str) -> Result<()> {
    if bytes <= RESULT_BYTES_MAX {
        return Ok(());
    }
    let error = Error::new(ErrorKind::ResourceExhausted, operation, what_helps);
    Err(error.with_limit(check::size(bytes), check::size(RESULT_BYTES_MAX)))
}

/// Returns the start of a text: whole characters, at most `bytes_max` bytes.
pub(crate) fn cut(text: &str, bytes_max: usize) -> &str {
    &text[..text.floor_char_boundary(bytes_max)]
}

/// Returns a piece of a text from a byte offset, and the offset of the next piece.
pub(crate) fn piece<'a>(
    operation: &'static str,
    text: &'a str,
    offset: usize,
    bytes_max: usize,
) -> Result<(&'a str, Option<usize>)> {
    check::at_most(operation, "offset", offset, text.len())?;
    let Some(rest) = text.get(offset..) else {
        return Err(Error::invalid(operation, "offset", "is within a character; use `next_offset`"));
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
