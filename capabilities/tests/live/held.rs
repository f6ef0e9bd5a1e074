//! Bytes that a store received and still holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

/// The bytes that the store received and still holds.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) now: AtomicU64,
    pub(crate) most: AtomicU64,
}

impl Held {
    /// Returns a piece of this many bytes, which counts until its last reference is dropped.
    pub(crate) fn piece(self: &Arc<Self>, bytes: u64) -> Bytes {
        let now = self.now.fetch_add(bytes, Ordering::SeqCst) + bytes;
        self.most.fetch_max(now, Ordering::SeqCst);
        let bytes = vec![7; usize::try_from(bytes).unwrap()];
        Bytes::from_owner(Piece { bytes, held: Arc::clone(self) })
    }
}

/// A piece that reports when its last reference is dropped.
struct Piece {
    bytes: Vec<u8>,
    held: Arc<Held>,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.held.now.fetch_sub(self.bytes.len() as u64, Ordering::SeqCst);
    }
}
