//! The metadata after the bytes of a blob in its file, so that one open file is one complete version.
//!
//! ```text
//! body | JSON | 8 bytes: length of the body | 4: length of the JSON | 32: SHA-256 of the JSON | 8: magic
//! ```
//! The lengths are little-endian.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use larder_kernel::{
    BlobEntry, BlobInfo, BlobKey, ETag, Error, ErrorKind, Outcome, Result, Timestamp, UserMetadata,
};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::fs::failure::failed;

const MAGIC: &[u8; 8] = b"LARDERB1";
const TRAILER_BYTES: usize = 8 + 4 + 32 + 8;
/// A limit far above the size of a content type and user metadata; a longer text is damage.
const JSON_BYTES_MAX: u64 = 64 * 1024;

/// The checksum with which a read of the whole body verifies it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Checksum {
    /// CRC-64/NVME. It is computed at the speed of memory, and in parts.
    Crc64Nvme(u64),
    /// SHA-256 in hexadecimal, of blobs that earlier versions wrote.
    Sha256(String),
}

/// The metadata of a blob in its file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Footer {
    pub(crate) etag: ETag,
    #[serde(flatten)]
    pub(crate) checksum: Checksum,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) content_type: Option<String>,
    #[serde(default, skip_serializing_if = "UserMetadata::is_empty")]
    pub(crate) metadata: UserMetadata,
    pub(crate) modified_at: Timestamp,
    #[serde(skip)]
    pub(crate) size: u64,
}

impl Footer {
    /// Returns the JSON and the trailer, which follow the body.
    pub(crate) fn encode(&self) -> io::Result<Vec<u8>> {
        let mut bytes = serde_json::to_vec(self)?;
        let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
        let checksum = Sha256::digest(&bytes);
        bytes.extend_from_slice(&self.size.to_le_bytes());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(&checksum);
        bytes.extend_from_slice(MAGIC);
        Ok(bytes)
    }

    /// Reads the footer after the body.
    pub(crate) fn read(operation: &'static str, file: &File) -> Result<Self> {
        let io = |error| failed(operation, error, Outcome::NotApplied);
        let corrupt = || corrupt(operation);
        let file_bytes = file.metadata().map_err(io)?.len();
        let trailer_bytes = TRAILER_BYTES as u64;
        let before = file_bytes.checked_sub(trailer_bytes).ok_or_else(corrupt)?;
        let mut trailer = [0; TRAILER_BYTES];
        file.read_exact_at(&mut trailer, before).map_err(io)?;
        let (size, rest) = trailer.split_first_chunk::<8>().ok_or_else(corrupt)?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or_else(corrupt)?;
        let (checksum, magic) = rest.split_first_chunk::<32>().ok_or_else(corrupt)?;
        let (size, length) = (u64::from_le_bytes(*size), u64::from(u32::from_le_bytes(*length)));
        if magic != MAGIC || length > JSON_BYTES_MAX || size.checked_add(length) != Some(before) {
            return Err(corrupt());
        }
        let mut json = vec![0; usize::try_from(length).map_err(|_| corrupt())?];
        file.read_exact_at(&mut json, size).map_err(io)?;
        if Sha256::digest(&json).as_slice() != checksum {
            return Err(corrupt());
        }
        let footer: Self = serde_json::from_slice(&json).map_err(|_| corrupt())?;
        Ok(Self { size, ..footer })
    }

    /// Converts the footer to the contract's information about the blob.
    pub(crate) fn into_info(self, key: BlobKey) -> BlobInfo {
        let Self { etag, content_type, metadata, modified_at, size, .. } = self;
        BlobInfo::new(key, size, etag, modified_at).with_content_type(content_type).with_metadata(metadata)
    }

    /// Converts the footer to an entry of a listing.
    pub(crate) fn into_entry(self, key: BlobKey) -> BlobEntry {
        BlobEntry::new(key, self.size, self.etag, self.modified_at)
    }
}

/// Returns the error of a file that cannot be read back as it was written.
pub(crate) fn corrupt(operation: &'static str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        operation,
        "the blob's file is damaged; restore it or write the blob again",
    )
}
