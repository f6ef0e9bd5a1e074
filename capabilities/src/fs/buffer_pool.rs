//! Buffers that reads of blobs fill and reuse.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::CHUNK_BYTES;

/// The number of buffers that the pool keeps: as many as one read needs.
const SPARE_MAX: usize = 6;
/// The alignment of a buffer's bytes. The kernel copies from the start of a page. Some processors take twice
/// as long to copy from there to 16 bytes after the start of another page, which is where allocators begin
/// large blocks.
const ALIGNMENT: usize = 64;

/// Reused buffers of one chunk. A new buffer costs a page fault for each page, as much time as reading into
/// it.
#[derive(Default)]
pub(crate) struct BufferPool(Mutex<Vec<Vec<u8>>>);

impl BufferPool {
    pub(crate) fn acquire(pool: &Arc<Self>, length: usize) -> PooledBuffer {
        let is_chunk = length == CHUNK_BYTES;
        let spare = if is_chunk { pool.spare().pop() } else { None };
        let room = if is_chunk { ALIGNMENT } else { 0 };
        let bytes = spare.unwrap_or_else(|| vec![0; length + room]);
        let start = if is_chunk { bytes.as_ptr().align_offset(ALIGNMENT).min(room) } else { 0 };
        PooledBuffer { bytes, used: start..start + length, pool: Arc::clone(pool) }
    }

    fn spare(&self) -> MutexGuard<'_, Vec<Vec<u8>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer that returns to the pool when its bytes are dropped.
pub(crate) struct PooledBuffer {
    bytes: Vec<u8>,
    used: Range<usize>,
    pool: Arc<BufferPool>,
}

impl PooledBuffer {
    /// Returns the bytes to read into.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.used.clone()]
    }
}

impl AsRef<[u8]> for PooledBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[self.used.clone()]
    }
}

impl Drop for PooledBuffer {
    fn drop(&mut self) {
        let mut spare = self.pool.spare();
        if self.used.len() == CHUNK_BYTES && spare.len() < SPARE_MAX {
            spare.push(std::mem::take(&mut self.bytes));
        }
    }
}
