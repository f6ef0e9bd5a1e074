//! The bytes of a blob in memory: how they are collected, counted and read.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;
use larder_kernel::check::size;
use larder_kernel::{BlobBody, BlobBytes, Result};

use crate::storage::MemoryBackend;

/// Bytes in a piece that a stream is gathered into: large enough that pieces cost nothing, small enough to read by.
const PIECE_BYTES: usize = 256 * 1024;

/// Bytes reserved at a backend until they are kept; a write that ends before gives them back.
#[derive(Debug)]
pub(super) struct Reservation {
    backend: MemoryBackend,
    bytes: u64,
}

impl Reservation {
    pub(super) fn new(backend: &MemoryBackend) -> Self {
        Self { backend: backend.clone(), bytes: 0 }
    }

    /// Reserves more, or refuses.
    pub(super) fn grow(&mut self, operation: &'static str, bytes: u64) -> Result<()> {
        self.backend.try_reserve(operation, bytes)?;
        self.bytes += bytes;
        Ok(())
    }

    /// Keeps what was reserved, and says how much.
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
    /// Gathers a body, counting it as it comes: a body past the cap is refused where it passes it.
    ///
    /// Bytes given at once are kept as they are. Pieces of a stream are copied together, so that many small ones, or
    /// views into large buffers, hold no more memory than their bytes.
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
            BlobBody::Stream(stream) => stream,
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

    /// The bytes of a range, which lies within the blob, as a stream that keeps them whatever is written meanwhile.
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
