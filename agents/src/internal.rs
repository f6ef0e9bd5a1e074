//! The code that the packages above share, and no one else: it can change in any release.
//!
//! The module is here and not in the kernel, because [`offload`] starts blocking work with Tokio, and the
//! kernel needs no async runtime. Every package above depends on this one anyway.

pub mod offload;

use std::fmt::Write as _;

use larder_kernel::{Error, ErrorKind};

/// Returns the bytes in lowercase hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Returns the error of a read of a version that the key does not have.
#[must_use]
pub fn missing_version() -> Error {
    let message = "the version does not exist; list the versions of the key";
    Error::new(ErrorKind::NotFound, "blobs.get_version", message).with_field("blob_version")
}

/// Returns the error of a deletion of the current version of a blob.
#[must_use]
pub fn current_version() -> Error {
    let message = "the version is the current one; delete or overwrite the blob first";
    Error::new(ErrorKind::Conflict, "blobs.delete_version", message)
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
