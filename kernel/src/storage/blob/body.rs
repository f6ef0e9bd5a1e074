//! The bytes of a blob on their way in and out.

use std::fmt;

use bytes::Bytes;
use futures_core::stream::{BoxStream, Stream};
use futures_util::StreamExt;

use crate::error::Result;

/// The bytes of a blob as they are read.
pub type BlobBytes = BoxStream<'static, Result<Bytes>>;

/// The bytes of a blob to write: at once, or piece by piece.
///
/// ```
/// use larder_kernel::BlobBody;
///
/// let at_once: BlobBody = "hello".into();
/// assert_eq!(at_once.known_len(), Some(5));
/// ```
pub enum BlobBody {
    /// All of them.
    Bytes(Bytes),
    /// A stream of pieces. An error in it ends the write without effect.
    Stream(BlobBytes),
}

impl BlobBody {
    /// A body that arrives piece by piece.
    #[must_use]
    pub fn stream(pieces: impl Stream<Item = Result<Bytes>> + Send + 'static) -> Self {
        Self::Stream(pieces.boxed())
    }

    /// How many bytes there are, where that is known beforehand.
    #[must_use]
    pub fn known_len(&self) -> Option<usize> {
        match self {
            Self::Bytes(bytes) => Some(bytes.len()),
            Self::Stream(_) => None,
        }
    }

    /// The body as a stream, whichever it was.
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
