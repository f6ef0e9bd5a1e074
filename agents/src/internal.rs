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

/// The source of the error of a listing that met a damaged blob. It carries the key to programs that may show
/// it; no message contains it.
#[derive(Debug)]
pub struct DamagedBlob(pub String);

impl std::fmt::Display for DamagedBlob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a blob is damaged")
    }
}

impl std::error::Error for DamagedBlob {}
