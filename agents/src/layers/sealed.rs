//! The recognition of encrypted messages.

use larder_kernel::ChatMessage;
use larder_kernel::limits::MESSAGE_BYTES_MAX;

/// The shortest ciphertext: its length, key, nonce and tag, in base64.
const SEALED_TEXT_MIN: usize = 60;

/// Returns true for every message that the encryption layer has encrypted, and for hardly any other.
///
/// A store that compresses messages must leave these as they are. The layer pads a message with blanks to its
/// plain size; compression would remove the blanks, so that the stored length would reveal how well the plain
/// text compresses. This function does not depend on the feature `encryption`, because a program without it
/// may copy encrypted messages.
#[doc(hidden)]
#[must_use]
pub fn is_sealed(message: &ChatMessage) -> bool {
    let Some(author) = &message.author else { return false };
    let text = author.agent.as_str().as_bytes();
    // The ciphertext begins with its length in four bytes, which are the first six characters of base64.
    let mut length = 0_u64;
    for (at, byte) in text.iter().enumerate() {
        let Some(digit) = digit(*byte) else { return false };
        if at < 6 {
            length = length << 6 | u64::from(digit);
        }
    }
    let length = usize::try_from(length >> 4).unwrap_or(usize::MAX);
    text.len() >= SEALED_TEXT_MIN && (1..=2 * MESSAGE_BYTES_MAX).contains(&length)
}

/// Returns the value of a digit of base64.
fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}
