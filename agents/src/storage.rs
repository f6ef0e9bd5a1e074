//! The storage contracts in memory.
//!
//! Stores live in a [`MemoryBackend`]; `new` makes a store in a place of its own.

mod account;
mod backend;
mod blob;
mod dues;
mod graph;
mod history;
mod key_value;
#[doc(hidden)]
pub mod offload;
mod slots;
mod tasks;
mod vector;

pub use backend::{MemoryBackend, PLACE_BYTES_MAX_DEFAULT};
pub use blob::InMemoryBlobStore;
pub use graph::{InMemoryGraphStore, ReachedIds};
pub use history::InMemoryHistoryProvider;
pub use key_value::InMemoryKeyValueStore;
pub use tasks::{GlobalTaskStore, InMemoryTaskStore};
pub use vector::InMemoryVectorStore;
