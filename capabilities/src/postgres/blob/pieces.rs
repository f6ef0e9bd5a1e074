//! The pieces of a body, cut into chunks.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt as _;
use larder_kernel::{BlobBody, BlobBytes, Result};

use super::CHUNK_BYTES;

/// A body that is being read.
pub(super) struct Pieces {
    /// The rest of the body; `None` at its end.
    rest: Option<BlobBytes>,
    queue: VecDeque<Bytes>,
    queued: usize,
}

impl Pieces {
    pub(super) fn new(body: BlobBody) -> Self {
        Self { rest: Some(body.into_stream()), queue: VecDeque::new(), queued: 0 }
    }

    /// Returns the number of bytes that were read and not taken.
    pub(super) fn queued(&self) -> usize {
        self.queued
    }

    /// Reads the body until this many bytes are queued. Returns false if it ended before.
    pub(super) async fn fill(&mut self, bytes: usize) -> Result<bool> {
        while self.queued < bytes {
            let Some(rest) = &mut self.rest else { return Ok(false) };
            match rest.try_next().await? {
                Some(piece) if piece.is_empty() => {}
                Some(piece) => {
                    self.queued += piece.len();
                    self.queue.push_back(piece);
                }
                None => self.rest = None,
            }
        }
        Ok(true)
    }

    /// Takes up to this many chunks from the queue.
    pub(super) fn take(&mut self, chunks: usize) -> Vec<Bytes> {
        let taken = std::iter::from_fn(|| self.take_chunk());
        taken.take(chunks).collect()
    }

    /// Takes the next chunk. A chunk within one piece shares its memory.
    fn take_chunk(&mut self) -> Option<Bytes> {
        let wanted = self.queued.min(CHUNK_BYTES);
        let front = self.queue.front_mut()?;
        self.queued -= wanted;
        if front.len() > wanted {
            return Some(front.split_to(wanted));
        }
        if front.len() == wanted {
            return self.queue.pop_front();
        }
        let mut chunk = BytesMut::with_capacity(wanted);
        while chunk.len() < wanted {
            let front = self.queue.front_mut()?;
            chunk.extend_from_slice(&front.split_to(front.len().min(wanted - chunk.len())));
            if front.is_empty() {
                self.queue.pop_front();
            }
        }
        Some(chunk.freeze())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, stream};

    use super::*;

    #[test]
    fn chunks_are_full_except_for_the_last_one_and_keep_the_order_of_the_bytes() {
        let body: Vec<u8> = (0..=250).cycle().take(CHUNK_BYTES * 3 + 5).collect();
        for piece_bytes in [1_000, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, body.len()] {
            let pieces = body.chunks(piece_bytes).map(Bytes::copy_from_slice);
            let pieces: Vec<_> = pieces.flat_map(|piece| [Ok(Bytes::new()), Ok(piece)]).collect();
            let mut pieces = Pieces::new(BlobBody::stream(stream::iter(pieces)));
            let mut chunks = Vec::new();
            while pieces.fill(2 * CHUNK_BYTES).now_or_never().unwrap().unwrap() {
                chunks.extend(pieces.take(2));
            }
            chunks.extend(pieces.take(2));
            assert_eq!(
                chunks.iter().map(Bytes::len).collect::<Vec<_>>(),
                [CHUNK_BYTES, CHUNK_BYTES, CHUNK_BYTES, 5]
            );
            assert!(chunks.concat() == body, "{piece_bytes}");
        }
    }
}
