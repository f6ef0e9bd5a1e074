//! Memory and retrieval for agents of the crate [`rig_core`] 0.44: [`HistoryMemory`] over any
//! [`HistoryProvider`](larder_kernel::HistoryProvider), [`VectorIndex`] over any
//! [`VectorStore`](larder_kernel::VectorStore).
//!
//! The feature brings no HTTP client and no TLS: what calls a model is `rig_core`'s own features.

mod filter;
mod index;
mod memory;
mod message;

pub use index::VectorIndex;
pub use memory::HistoryMemory;
