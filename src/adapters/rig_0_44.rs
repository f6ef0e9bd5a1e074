//! Memory and retrieval for agents of the crate [`rig_core`] 0.44: [`HistoryMemory`] over any
//! [`HistoryProvider`](larder_kernel::HistoryProvider), and [`VectorIndex`] over any
//! [`VectorStore`](larder_kernel::VectorStore).
//!
//! The feature adds no HTTP client and no TLS: the features of `rig_core` select the client that calls a
//! model.

mod filter;
mod index;
mod memory;
mod message;

pub use index::VectorIndex;
pub use memory::HistoryMemory;
