//! Request bodies, collected in pieces without a copy.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::vec::IntoIter;

use aws_sdk_s3::primitives::{ByteStream, SdkBody};
use bytes::{Bytes, BytesMut};
use futures_util::{StreamExt, TryStreamExt};
use http_body::{Body, Frame, SizeHint};
use larder_kernel::check::size;
use larder_kernel::{BlobBody, BlobBytes, Result};
use tokio::sync::oneshot;

use super::progress_timeout::Progress;

/// Smaller pieces are copied together. A request with thousands of tiny pieces costs more than the copy, and
/// a small view may keep a large buffer alive.
const SMALL_BYTES: usize = 64 * 1024;
/// The maximum bytes that a connection gets at a time, so that the progress of the transfer is visible.
const FRAME_BYTES_MAX: usize = 256 * 1024;

/// The bytes of one request, in pieces.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chunk {
    pieces: Vec<Bytes>,
    bytes: u64,
}

impl Chunk {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn push(&mut self, piece: Bytes) {
        if !piece.is_empty() {
            self.bytes += size(piece.len());
            self.pieces.push(piece);
        }
    }

    /// Returns the chunk as a body that can be sent again while the chunk is kept. The signature does not
    /// include a hash of it: on a network, TLS protects the bytes.
    ///
    /// A connection drops its body some time after the response; it does not hold the bytes until then.
    pub(crate) fn body(chunk: &Arc<Self>, progress: &Progress) -> ByteStream {
        let (chunk, progress) = (Arc::downgrade(chunk), progress.clone());
        ByteStream::new(SdkBody::retryable(move || {
            let chunk = chunk.upgrade().map_or_else(Self::default, |chunk| Self::clone(&chunk));
            SdkBody::from_body_1_x(Pieces::new(chunk, progress.clone()))
        }))
    }
}

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Self {
        let mut chunk = Self::default();
        chunk.push(bytes);
        chunk
    }
}

struct Pieces {
    left: IntoIter<Bytes>,
    /// The rest of the current piece.
    piece: Bytes,
    bytes: u64,
    progress: Progress,
}

impl Pieces {
    fn new(chunk: Chunk, progress: Progress) -> Self {
        progress.moved(chunk.bytes == 0);
        Self { left: chunk.pieces.into_iter(), piece: Bytes::new(), bytes: chunk.bytes, progress }
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.piece.is_empty() {
            self.piece = self.left.next().unwrap_or_default();
        }
        let taken = self.piece.len().min(FRAME_BYTES_MAX);
        let frame = self.piece.split_to(taken);
        self.bytes -= size(taken);
        self.progress.moved(self.bytes == 0);
        Poll::Ready((taken > 0).then(|| Ok(Frame::data(frame))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes)
    }
}

/// A body that pauses halfway until the test resumes it.
pub(crate) struct PausingBody {
    left: IntoIter<Bytes>,
    bytes: u64,
    halts: Option<oneshot::Sender<()>>,
    go_on: oneshot::Receiver<()>,
}

/// The control end of a [`PausingBody`].
pub(crate) struct PauseControl {
    /// Receives a message when the first half is being sent.
    pub(crate) halts: oneshot::Receiver<()>,
    /// Releases the second half; dropping it does the same.
    pub(crate) go_on: oneshot::Sender<()>,
}

impl PausingBody {
    /// Returns a body of both halves, which can be sent once.
    pub(crate) fn body(halves: [Bytes; 2]) -> (ByteStream, PauseControl) {
        let ((halts, halted), (go_on, going)) = (oneshot::channel(), oneshot::channel());
        let bytes = halves.iter().map(|half| size(half.len())).sum();
        let left = Vec::from(halves).into_iter();
        let body = Self { left, bytes, halts: Some(halts), go_on: going };
        (ByteStream::new(SdkBody::from_body_1_x(body)), PauseControl { halts: halted, go_on })
    }
}

impl Body for PausingBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left.len() == 1 {
            if let Some(halts) = self.halts.take() {
                halts.send(()).ok();
            }
            if Pin::new(&mut self.go_on).poll(context).is_pending() {
                return Poll::Pending;
            }
        }
        let piece = self.left.next();
        self.bytes -= piece.as_ref().map_or(0, |piece| size(piece.len()));
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes)
    }
}

/// A body that is cut into chunks as it arrives.
pub(crate) struct Chunks {
    pieces: BlobBytes,
    /// The end of the last piece, which belongs to the next chunk.
    rest: Bytes,
    ended: bool,
}

impl Chunks {
    pub(crate) fn new(body: BlobBody) -> Self {
        Self { pieces: body.into_stream().fuse().boxed(), rest: Bytes::new(), ended: false }
    }

    /// Returns true if no chunk follows the chunks returned so far.
    pub(crate) fn ended(&self) -> bool {
        self.ended && self.rest.is_empty()
    }

    /// Returns the next chunk, which is full unless the body ends with it.
    pub(crate) async fn next(&mut self, full: u64) -> Result<Chunk> {
        let mut chunk = Chunk::default();
        let mut small = BytesMut::new();
        loop {
            let room = full - chunk.bytes - size(small.len());
            if room == 0 {
                break;
            }
            if self.rest.is_empty() {
                match self.pieces.try_next().await? {
                    Some(piece) => self.rest = piece,
                    None => {
                        self.ended = true;
                        break;
                    }
                }
            }
            let taken = usize::try_from(room).unwrap_or(usize::MAX).min(self.rest.len());
            let piece = self.rest.split_to(taken);
            if piece.len() < SMALL_BYTES {
                small.extend_from_slice(&piece);
                if small.len() < SMALL_BYTES {
                    continue;
                }
                chunk.push(small.split().freeze());
            } else {
                chunk.push(small.split().freeze());
                chunk.push(piece);
            }
        }
        chunk.push(small.freeze());
        self.look_ahead().await?;
        Ok(chunk)
    }

    /// Reads ahead to find out if the body ends here, so that a body of one chunk is recognized.
    async fn look_ahead(&mut self) -> Result<()> {
        while self.rest.is_empty() && !self.ended {
            match self.pieces.try_next().await? {
                Some(piece) => self.rest = piece,
                None => self.ended = true,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn cut(lengths: &[usize], full: u64) -> Vec<Vec<u8>> {
        let all: Vec<u8> = (0..=250).cycle().take(lengths.iter().sum()).collect();
        let mut rest = all.as_slice();
        let mut pieces = Vec::new();
        for length in lengths {
            let (piece, left) = rest.split_at(*length);
            pieces.push(Ok(Bytes::copy_from_slice(piece)));
            rest = left;
        }
        let mut chunks = Chunks::new(BlobBody::stream(futures_util::stream::iter(pieces)));
        let mut found = Vec::new();
        while !chunks.ended() {
            let chunk = chunks.next(full).await.unwrap();
            let bytes =
                Chunk::body(&Arc::new(chunk.clone()), &Progress::new()).collect().await.unwrap().to_vec();
            assert_eq!(chunk.bytes(), size(bytes.len()));
            found.push(bytes);
        }
        assert_eq!(found.concat(), all);
        found
    }

    #[tokio::test]
    async fn bodies_are_cut_into_full_chunks_and_a_rest() {
        for (lengths, full, wanted) in [
            (vec![], 10, vec![0]),
            (vec![0, 0], 10, vec![0]),
            (vec![10], 10, vec![10]),
            (vec![11], 10, vec![10, 1]),
            (vec![1; 25], 10, vec![10, 10, 5]),
            (vec![100_000, 3, 0, 200_000], 150_000, vec![150_000, 150_000, 3]),
            (vec![3, 70_000, 3, 70_000, 3], 70_005, vec![70_005, 70_004]),
        ] {
            let lengths: Vec<usize> = cut(&lengths, full).await.iter().map(Vec::len).collect();
            assert_eq!(lengths, wanted);
        }
    }
}
