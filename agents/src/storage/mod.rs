//! The storage contracts in memory.
//!
//! Stores live in a [`MemoryPlace`]; `new` makes a store in a place of its own.

mod account;
mod blob;
mod dues;
mod graph;
mod history;
mod kv;
#[doc(hidden)]
pub mod offload;
mod place;
mod slots;
mod tasks;
mod vector;

pub use blob::InMemoryBlobStore;
pub use graph::{InMemoryGraphStore, ReachedIds};
pub use history::InMemoryHistoryProvider;
pub use kv::InMemoryKeyValueStore;
pub use place::{MemoryPlace, PLACE_BYTES_MAX_DEFAULT};
pub use tasks::{GlobalTaskStore, InMemoryTaskStore};
pub use vector::InMemoryVectorStore;
#[doc(hidden)]
pub use vector::limits;
