//! The bytes of a blob, for writing and reading.

use std::fmt;

use bytes::Bytes;
use futures_core::stream::{BoxStream, Stream};
use futures_util::StreamExt;

use crate::error::Result;

/// The bytes of a blob, as a stream for reading.
pub type BlobBytes = BoxStream<'static, Result<Bytes>>;

/// The bytes of a blob to write: in one piece or as a stream.
///
/// ```
/// use larder_kernel::BlobBody;
///
/// let at_once: BlobBody = "hello".into();
/// assert_eq!(at_once.known_len(), Some(5));
/// ```
#[non_exhaustive]
pub enum BlobBody {
    /// All bytes in one piece.
    Bytes(Bytes),
    /// A stream of pieces. An error in the stream ends the write without effect.
    Stream(BlobBytes),
}

impl BlobBody {
    /// Creates a body from a stream of pieces.
    #[must_use]
    pub fn stream(pieces: impl Stream<Item = Result<Bytes>> + Send + 'static) -> Self {
        Self::Stream(pieces.boxed())
    }

    /// Returns the number of bytes if it is known in advance.
    #[must_use]
    pub fn known_len(&self) -> Option<usize> {
        match self {
            Self::Bytes(bytes) => Some(bytes.len()),
            Self::Stream(_) => None,
        }
    }

    /// Converts the body to a stream.
    #[must_use]
    pub fn into_stream(self) -> BlobBytes {
        match self {
            Self::Bytes(bytes) => futures_util::stream::once(std::future::ready(Ok(bytes))).boxed(),
            Self::Stream(pieces) => pieces,
        }
    }
}

impl fmt::Debug for BlobBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "BlobBody({} bytes)", bytes.len()),
            Self::Stream(_) => f.write_str("BlobBody(stream)"),
        }
    }
}

impl From<Bytes> for BlobBody {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Vec<u8>> for BlobBody {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<&'static [u8]> for BlobBody {
    fn from(bytes: &'static [u8]) -> Self {
        Self::Bytes(Bytes::from_static(bytes))
    }
}

impl From<&'static str> for BlobBody {
    fn from(text: &'static str) -> Self {
        Self::Bytes(Bytes::from_static(text.as_bytes()))
    }
}
