//! The code that the packages above share, and no one else: it can change in any release.
//!
//! The module is here and not in the kernel, because [`offload`] starts blocking work with Tokio, and the
//! kernel needs no async runtime. Every package above depends on this one anyway.

pub mod offload;

use std::fmt::Write as _;

/// Returns the bytes in lowercase hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
