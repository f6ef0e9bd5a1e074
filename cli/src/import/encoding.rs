//! The encoding of a file: UTF-8, and UTF-16 with its byte-order mark.

use std::borrow::Cow;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

const REPLACEMENT: &str = "\u{FFFD}";

/// Opens a file from the start, as UTF-8.
///
/// # Errors
/// The reason, for an encoding that is not read.
pub(super) fn open(mut file: &File) -> Result<Box<dyn BufRead + '_>, String> {
    let mut mark = Vec::new();
    let start = file.rewind().and_then(|()| file.take(4).read_to_end(&mut mark));
    start.map_err(|error| error.to_string())?;
    let (skip, big) = match *mark {
        [0xFF, 0xFE, 0, 0] | [0, 0, 0xFE, 0xFF] => {
            return Err("UTF-32 is not read (convert it to UTF-8)".to_owned());
        }
        [0xFF, 0xFE, ..] => (2, false),
        [0xFE, 0xFF, ..] => (2, true),
        [0, byte, ..] | [byte, 0, ..] if byte != 0 => {
            return Err(
                "UTF-16 is read only with its byte-order mark (add it, or convert it to UTF-8)".to_owned()
            );
        }
        _ => (0, false),
    };
    file.seek(SeekFrom::Start(skip)).map_err(|error| error.to_string())?;
    if skip == 0 {
        return Ok(Box::new(BufReader::new(file)));
    }
    Ok(Box::new(BufReader::new(Utf16 {
        from: BufReader::new(file),
        big,
        high: None,
        ready: Vec::new(),
        at: 0,
    })))
}

/// A reader of UTF-16 as UTF-8. Half of a surrogate pair becomes the three bytes that UTF-8 would have for
/// it, so that [`text`] finds it.
struct Utf16<R> {
    from: R,
    big: bool,
    /// The first half of a pair.
    high: Option<u16>,
    ready: Vec<u8>,
    at: usize,
}

impl<R: BufRead> Utf16<R> {
    fn push(&mut self, units: &[u16]) {
        for decoded in char::decode_utf16(units.iter().copied()) {
            match decoded {
                Ok(char) => self.ready.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
                Err(half) => {
                    let [high, low] = half.unpaired_surrogate().to_be_bytes();
                    let (second, third) = (0x80 | ((high & 0x0F) << 2) | (low >> 6), 0x80 | (low & 0x3F));
                    self.ready.extend_from_slice(&[0xED, second, third]);
                }
            }
        }
    }

    fn fill(&mut self) -> std::io::Result<()> {
        self.ready.clear();
        self.at = 0;
        let mut bytes = Vec::new();
        self.from.by_ref().take(64 * 1024).read_to_end(&mut bytes)?;
        if bytes.len() % 2 == 1 {
            return Err(std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                "UTF-16 with an odd number of bytes",
            ));
        }
        let unit = |pair: &[u8]| {
            let pair = [pair[0], pair[1]];
            if self.big { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) }
        };
        let mut units: Vec<u16> = self.high.into_iter().chain(bytes.chunks_exact(2).map(unit)).collect();
        let goes_on = !bytes.is_empty() && matches!(units.last(), Some(0xD800..=0xDBFF));
        self.high = if goes_on { units.pop() } else { None };
        self.push(&units);
        if self.ready.is_empty() && self.high.is_some() { self.fill() } else { Ok(()) }
    }
}

impl<R: BufRead> Read for Utf16<R> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        if self.at == self.ready.len() {
            self.fill()?;
        }
        let count = (self.ready.len() - self.at).min(to.len());
        to[..count].copy_from_slice(&self.ready[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// Returns bytes as text. With `replaced`, halves of surrogate pairs become U+FFFD and are counted there.
///
/// # Errors
/// The reason, with the line of the fault from 0.
pub(super) fn text<'a>(
    bytes: &'a [u8],
    mut replaced: Option<&mut u64>,
) -> Result<Cow<'a, str>, (u64, String)> {
    let (mut fixed, mut rest) = (String::new(), bytes);
    loop {
        let error = match std::str::from_utf8(rest) {
            Ok(text) if fixed.is_empty() && rest.len() == bytes.len() => return Ok(Cow::Borrowed(text)),
            Ok(text) => return Ok(Cow::Owned(fixed + text)),
            Err(error) => error,
        };
        let (valid, bad) = rest.split_at(error.valid_up_to());
        let at = bytes.len() - bad.len();
        let is_half = matches!(bad, [0xED, 0xA0..=0xBF, 0x80..=0xBF, ..]);
        let (line, byte) = position(bytes, at);
        match &mut replaced {
            Some(count) if is_half => {
                **count += 1;
                fixed.push_str(std::str::from_utf8(valid).unwrap_or_default());
                fixed.push_str(REPLACEMENT);
                rest = &bad[3..];
            }
            _ if is_half => {
                let reason = format!(
                    "half of a surrogate pair, which is not a character, at byte {byte} of the line \
                     (`--lossy` replaces it with U+FFFD)"
                );
                return Err((line, reason));
            }
            _ => {
                let reason = format!("not UTF-8, at byte {byte} of the line (convert the file to UTF-8)");
                return Err((line, reason));
            }
        }
    }
}

/// Returns the line of a byte, from 0, and its position in the line, from 1.
fn position(bytes: &[u8], at: usize) -> (u64, usize) {
    let before = &bytes[..at];
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    let line = before.iter().filter(|byte| **byte == b'\n').count();
    (larder_kernel::check::size(line), at - start + 1)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<u8>, String> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let mut all = Vec::new();
        open(&file)?.read_to_end(&mut all).map_err(|error| error.to_string())?;
        Ok(all)
    }

    #[test]
    fn utf_16_with_its_mark_is_read_in_both_orders() {
        // Pairs fall on the boundaries of the pieces that are read.
        let long = format!("x{}", "é🦀\n".repeat(30_000));
        for text in ["", "{}\n", long.as_str(), &long[1..]] {
            let units: Vec<u16> = text.encode_utf16().collect();
            let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
            let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
            assert_eq!(read(&[&b"\xFF\xFE"[..], &little[..]].concat()).unwrap(), text.as_bytes());
            assert_eq!(read(&[&b"\xFE\xFF"[..], &big[..]].concat()).unwrap(), text.as_bytes());
            assert_eq!(read(text.as_bytes()).unwrap(), text.as_bytes());
        }
        assert!(read(b"\xFF\xFEa").unwrap_err().contains("odd"));
        assert!(read(b"{\0}\0").unwrap_err().contains("mark"));
        assert!(read(b"\xFF\xFE\0\0").unwrap_err().contains("UTF-32"));
    }

    #[test]
    fn halves_of_pairs_are_named_or_replaced_and_other_bytes_are_named() {
        let half = read(b"\xFF\xFEa\0\x3D\xD8b\0").unwrap();
        assert_eq!(half, b"a\xED\xA0\xBDb");
        let (line, reason) = text(&half, None).unwrap_err();
        assert!(line == 0 && reason.contains("byte 2") && reason.contains("--lossy"), "{reason}");
        let mut count = 0;
        assert_eq!(text(&half, Some(&mut count)).unwrap(), "a\u{FFFD}b");
        assert_eq!(count, 1);
        let (line, reason) = text(b"{\n\"Z\xFCrich", Some(&mut count)).unwrap_err();
        assert!(line == 1 && reason.contains("not UTF-8, at byte 3"), "{reason}");
    }
}
