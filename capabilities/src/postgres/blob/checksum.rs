//! CRC-64/NVME of the bytes of blobs.

use crc_fast::{CrcAlgorithm, Digest};

/// A running checksum.
pub(crate) struct Running(Digest);

impl Running {
    pub(crate) fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc64Nvme))
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn value(&self) -> i64 {
        self.0.finalize().cast_signed()
    }
}

/// Returns the checksum of all bytes of a blob.
pub(crate) fn of_whole(bytes: &[u8]) -> i64 {
    let mut sum = Running::new();
    sum.add(bytes);
    sum.value()
}

/// Returns the checksum of a chunk. It covers the position, so that a chunk in another one does not match.
pub(crate) fn of_chunk(content: i64, chunk: i32, bytes: &[u8]) -> i64 {
    let mut sum = Running::new();
    sum.add(&content.to_le_bytes());
    sum.add(&chunk.to_le_bytes());
    sum.add(bytes);
    sum.value()
}
