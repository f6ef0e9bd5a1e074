//! The lines of an archive.

use std::io;

use larder_kernel::{Contract, Error, ErrorKind, Namespace, Outcome};
use serde::{Deserialize, Serialize};

use crate::transfer::digest::Digest;
use crate::transfer::encode::base64_bytes;
use crate::transfer::missing::Missing;
use crate::transfer::record::Record;

pub(super) const VERSION: u32 = 1;
/// The version of an archive that may lack data; its last line lists what is missing.
pub(super) const VERSION_WITH_MISSING: u32 = 2;
/// The size of one part of a blob, in bytes.
pub(super) const PART_BYTES: usize = 256 * 1024;
/// The number of hexadecimal digits in a checksum.
pub(super) const CHECKSUM_CHARS: usize = 64;
/// The longest line, in bytes. A message of 4 MiB in which each byte is escaped has 24 MiB.
pub(super) const LINE_BYTES_MAX: u64 = 64 * 1024 * 1024;

pub(super) const READ: &str = "archive.read";
pub(super) const WRITE: &str = "archive.write";

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    /// The version of the format.
    pub(super) larder_archive: u32,
    pub(super) namespace: Namespace,
    /// The contracts, in the order of their records.
    pub(super) contracts: Vec<Contract>,
}

/// The part of the first line that every version has.
#[derive(Debug, Deserialize)]
pub(super) struct AnyHeader {
    pub(super) larder_archive: u32,
}

/// A line that is not a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Mark {
    /// Bytes of the blob whose record follows after its last part.
    Part(#[serde(with = "base64_bytes")] bytes::Bytes),
    /// The last line.
    End(End),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct End {
    /// The number of records.
    pub(super) records: u64,
    /// The digest of each contract, in the order of the header.
    pub(super) digests: Vec<(Contract, Digest)>,
    /// The data that could not be read; only in an archive of version 2.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) missing: Vec<Missing>,
}

/// Any line except the first.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(untagged)]
pub(super) enum Line {
    Mark(Mark),
    Record(Box<Record>),
}

/// Returns the error for a line that was altered.
pub(super) fn altered(message: &'static str, line: u64, offset: u64) -> Error {
    Error::new(ErrorKind::Corrupt, READ, message).with_context("line", line).with_context("offset", offset)
}

/// Returns the error for a file that cannot be read or written.
pub(super) fn failed(operation: &'static str, error: io::Error) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => ErrorKind::PermissionDenied,
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::ResourceExhausted,
        _ => ErrorKind::Unavailable,
    };
    // No store was written to.
    let message = if operation == READ { "the file cannot be read" } else { "the file cannot be written" };
    Error::new(kind, operation, message).with_outcome(Outcome::NotApplied).with_source(error)
}
