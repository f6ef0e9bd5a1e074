//! Ciphertext in text fields, and text as bytes.

use base64::Engine;
use base64::prelude::BASE64_STANDARD_NO_PAD;
use larder_kernel::{Error, ErrorKind, Outcome, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::ring::{KeyRing, Nonce, Place, corrupt};

impl KeyRing {
    /// Encrypts a value into base64 of at most `text_max` bytes.
    pub(super) fn seal_text<T: Serialize>(
        &self,
        operation: &'static str,
        place: &Place,
        value: &T,
        text_max: usize,
    ) -> Result<String> {
        let sealed =
            self.seal(operation, 0, place, &written(operation, value)?, Nonce::Random, bytes_in(text_max))?;
        Ok(BASE64_STANDARD_NO_PAD.encode(sealed))
    }

    /// Decrypts the output of [`seal_text`](Self::seal_text).
    pub(super) fn open_text<T: DeserializeOwned>(
        &self,
        operation: &'static str,
        place: &Place,
        text: &str,
    ) -> Result<T> {
        let sealed = BASE64_STANDARD_NO_PAD.decode(text).map_err(|_| corrupt(operation))?;
        read(operation, &self.open(operation, place, &sealed)?)
    }
}

/// Returns the value as JSON.
pub(super) fn written<T: Serialize>(operation: &'static str, value: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|_| {
        Error::new(ErrorKind::Unexpected, operation, "the value cannot be written as JSON")
            .with_outcome(Outcome::NotApplied)
    })
}

/// Parses a value from its JSON.
pub(super) fn read<T: DeserializeOwned>(operation: &'static str, json: &[u8]) -> Result<T> {
    serde_json::from_slice(json).map_err(|_| corrupt(operation))
}

/// Returns the number of bytes that base64 of this length holds.
pub(super) fn bytes_in(text_bytes: usize) -> usize {
    text_bytes * 6 / 8
}

/// Encodes bytes in base64.
pub(super) fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD_NO_PAD.encode(bytes)
}

/// Decodes base64.
pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    BASE64_STANDARD_NO_PAD.decode(text).ok()
}

/// Returns the number of bytes that this number of ASCII characters holds, at 7 bits each.
pub(super) fn packed_in(text_bytes: usize) -> usize {
    text_bytes * 7 / 8
}

/// Encodes bytes as ASCII characters with 7 bits each, the densest encoding that is always valid text.
pub(super) fn pack(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 8 / 7 + 1);
    let (mut held, mut bits) = (0_u16, 0_u32);
    for byte in bytes {
        held = (held << 8) | u16::from(*byte);
        bits += 8;
        while bits >= 7 {
            bits -= 7;
            text.push(ascii(held >> bits));
            held &= (1 << bits) - 1;
        }
    }
    if bits > 0 {
        text.push(ascii(held << (7 - bits)));
    }
    text
}

fn ascii(bits: u16) -> char {
    char::from(u8::try_from(bits & 0x7f).unwrap_or_default())
}

/// Decodes such characters. Drops bits that do not fill a byte.
pub(super) fn unpack(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(packed_in(text.len()));
    let (mut held, mut bits) = (0_u16, 0_u32);
    for byte in text.bytes() {
        if byte > 0x7f {
            return None;
        }
        held = (held << 7) | u16::from(byte);
        bits += 7;
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(held >> bits).ok()?);
            held &= (1 << bits) - 1;
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_bytes_decode_equal_and_take_eight_sevenths() {
        for length in 0..70 {
            let bytes: Vec<u8> = (0..=u8::MAX).cycle().take(length).map(|n| n.wrapping_mul(151)).collect();
            let text = pack(&bytes);
            assert_eq!(unpack(&text).unwrap()[..bytes.len()], bytes);
            assert!(packed_in(text.len()) >= bytes.len() && text.len() <= bytes.len() * 8 / 7 + 1);
        }
        assert_eq!(unpack("é"), None);
    }
}
