//! In-memory implementations of the storage contracts.
//!
//! Stores are opened in a [`MemoryBackend`]. `new` creates a store in a new backend.

mod backend;
mod blob;
mod expiry_queue;
mod graph;
mod history;
mod key_value;
mod quota;
mod sharded_map;
mod tasks;
mod vector;

pub use backend::{BACKEND_BYTES_MAX_DEFAULT, MemoryBackend};
pub use blob::InMemoryBlobStore;
pub use graph::{InMemoryGraphStore, ReachedIds};
pub use history::InMemoryHistoryProvider;
pub use key_value::InMemoryKeyValueStore;
pub use tasks::{GlobalTaskStore, InMemoryTaskStore};
pub use vector::InMemoryVectorStore;
