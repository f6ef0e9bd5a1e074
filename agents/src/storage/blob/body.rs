//! The bytes of a blob in memory: collecting, counting and reading them.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use larder_kernel::check::size;
use larder_kernel::{BlobBody, BlobBytes, Result};

use crate::storage::MemoryBackend;

/// The size of a piece into which a stream is collected, in bytes. It is large enough for low overhead and
/// small enough for reading.
const PIECE_BYTES: usize = 256 * 1024;

/// A reservation of bytes at a backend. On drop it releases the bytes that were not kept.
#[derive(Debug)]
pub(super) struct Reservation {
    backend: MemoryBackend,
    bytes: u64,
}

impl Reservation {
    pub(super) fn new(backend: &MemoryBackend) -> Self {
        Self { backend: backend.clone(), bytes: 0 }
    }

    /// Reserves more bytes, or fails.
    pub(super) fn grow(&mut self, operation: &'static str, bytes: u64) -> Result<()> {
        self.backend.try_reserve(operation, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Keeps the reserved bytes and returns their number.
    pub(super) fn keep(mut self) -> u64 {
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.backend.release(self.bytes);
    }
}

/// The bytes of one blob, in pieces that readers share.
#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    pieces: Vec<Bytes>,
    size: u64,
}

impl Content {
    /// Collects a body and counts it as it arrives. A body that exceeds the cap is rejected immediately.
    ///
    /// A body that arrives as a whole is kept as it is. Pieces of a stream are copied together, so that many
    /// small ones, or slices of large buffers, use no more memory than their bytes.
    pub(super) async fn collect(
        operation: &'static str,
        body: BlobBody,
        reservation: &mut Reservation,
    ) -> Result<Self> {
        let mut stream = match body {
            BlobBody::Bytes(bytes) => {
                reservation.grow(operation, size(bytes.len()))?;
                let size = size(bytes.len());
                return Ok(Self { pieces: Vec::from([bytes]), size });
            }
            body => body.into_stream(),
        };
        let mut content = Self::default();
        let mut open = BytesMut::new();
        while let Some(mut piece) = stream.try_next().await? {
            reservation.grow(operation, size(piece.len()))?;
            content.size += size(piece.len());
            while !piece.is_empty() {
                let taken = piece.split_to(piece.len().min(PIECE_BYTES - open.len()));
                open.extend_from_slice(&taken);
                if open.len() == PIECE_BYTES {
                    content.pieces.push(std::mem::take(&mut open).freeze());
                }
            }
        }
        if !open.is_empty() {
            content.pieces.push(open.freeze());
        }
        Ok(content)
    }

    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the bytes of a range within the blob, as a stream that is unaffected by later writes.
    pub(super) fn read(&self, range: &Range<u64>) -> BlobBytes {
        let mut start = 0;
        let mut found = Vec::new();
        for piece in &self.pieces {
            let end = start + size(piece.len());
            let (from, to) = (range.start.max(start), range.end.min(end));
            if from < to
                && let (Ok(from), Ok(to)) = (usize::try_from(from - start), usize::try_from(to - start))
            {
                found.push(Ok(piece.slice(from..to)));
            }
            start = end;
        }
        Box::pin(futures_util::stream::iter(found))
    }
}
