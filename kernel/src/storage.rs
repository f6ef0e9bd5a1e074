//! The six storage contracts.
//!
//! Each contract is one trait, and each method's documentation carries its **clauses**: numbered sentences, such as
//! `HIST-004`, that say what every backend does. The suite in `larder-conformance` reads the clauses from these files
//! and proves each with at least one case. What all contracts share stands in [`Store`].
//!
//! [`Store`] has three required methods. Every method of a contract has a default body that returns `Unsupported`
//! ([`Error::not_implemented`](crate::Error::not_implemented)), so a store compiles before it is complete. The suite
//! counts the cases that need a missing method as waiting, and a store conforms once it implements every method.
//!
//! Three promises hold for every method and are not repeated there:
//! - **Input is checked before any I/O.** A call refused with `InvalidInput` names the field and the limit and changes
//!   nothing.
//! - **Cancellation.** A future dropped at any point leaves the store usable and the write whole or absent.
//! - **Two handles, many workers.** Every method takes `&self` and may be called at once from any number of tasks
//!   and handles; what one call acknowledged, every later call sees, through whichever handle.

pub mod blob;
pub mod graph;
pub mod history;
pub mod key_value;
mod set;
pub mod task;
pub mod vector;

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::capability::Capabilities;
use crate::error::Result;
use crate::id::Namespace;

pub use set::StoreSet;

/// What every store of every contract offers.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// The namespace in which the store was opened.
    ///
    /// - **STORE-001** Stores in different namespaces do not see each other's data, even under the same ids.
    /// - **STORE-002** What one handle has acknowledged, another handle on the same place and namespace reads at once.
    /// - **STORE-003** Ids that differ in any byte name different things; case, Unicode form and characters special to
    ///   some backend are data.
    fn namespace(&self) -> &Namespace;

    /// What this store declares, read back from the live settings when it was opened.
    ///
    /// - **STORE-004** The capabilities do not change while the store is open, and two handles declare the same.
    /// - **STORE-005** With durability `process` or more declared, what was acknowledged is there after every handle is
    ///   closed and the place is opened again.
    fn capabilities(&self) -> Capabilities;

    /// Removes everything that the namespace holds under this contract, with every counter and every key ever used.
    ///
    /// - **STORE-006** After an erasure nothing that was stored in the namespace can be read or listed.
    /// - **STORE-007** An erasure leaves other namespaces as they are, one whose name begins alike included.
    /// - **STORE-008** Erasing a namespace that holds nothing succeeds.
    /// - **STORE-009** After an erasure the namespace can be used as if it were new.
    /// - **STORE-010** A call refused with `InvalidInput` leaves everything that can be read as it was.
    /// - **STORE-011** A write whose future is dropped midway is later seen whole or not at all, and the store goes on
    ///   working.
    /// - **STORE-012** Neither an error nor the `Debug` form of a store shows stored text or the ids of stored things.
    /// - **STORE-013** An error with the outcome `NotApplied` has left everything as it was.
    /// - **STORE-014** While the place cannot be reached every call ends in time, with `Unavailable` or `Timeout`, and once
    ///   it can be reached again, the same store works.
    ///
    /// Numbers (`Seq`, `Revision`, fencing tokens) may begin again, so consumers that hold some must start anew. Streams
    /// that are open then end with `Conflict`, as [`subscribe`](crate::HistoryProvider::subscribe) and
    /// [`watch`](crate::KeyValueStore::watch) say. Writers that go on while the namespace is erased can get ahead of a
    /// stream, so stop them first.
    ///
    /// # Errors
    /// Only the backend's own: `Unavailable`, `Timeout`, `PermissionDenied`.
    ///
    /// # Cancellation
    /// An erasure that is dropped may have removed any part; calling it again completes it.
    ///
    /// # Complexity
    /// Proportional to what the namespace holds.
    async fn erase(&self) -> Result<()>;
}

/// The contracts, as the suite names them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Contract {
    /// [`HistoryProvider`](crate::HistoryProvider).
    History,
    /// [`VectorStore`](crate::VectorStore).
    Vectors,
    /// [`GraphStore`](crate::GraphStore).
    Graph,
    /// [`BlobStore`](crate::BlobStore).
    Blobs,
    /// [`TaskStore`](crate::TaskStore).
    Tasks,
    /// [`KeyValueStore`](crate::KeyValueStore).
    KeyValue,
}

impl Contract {
    /// All six, in the order of reports.
    pub const ALL: &'static [Self] =
        &[Self::History, Self::Vectors, Self::Graph, Self::Blobs, Self::Tasks, Self::KeyValue];

    /// The name in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::History => "history",
            Self::Vectors => "vectors",
            Self::Graph => "graph",
            Self::Blobs => "blobs",
            Self::Tasks => "tasks",
            Self::KeyValue => "key_value",
        }
    }

    /// The source text of the contract, from which the suite reads the clauses.
    #[must_use]
    pub const fn source(self) -> &'static str {
        match self {
            Self::History => include_str!("storage/history.rs"),
            Self::Vectors => include_str!("storage/vector.rs"),
            Self::Graph => include_str!("storage/graph.rs"),
            Self::Blobs => include_str!("storage/blob.rs"),
            Self::Tasks => include_str!("storage/task.rs"),
            Self::KeyValue => include_str!("storage/key_value.rs"),
        }
    }

    /// The source text of [`Store`], whose clauses bind all six contracts.
    #[must_use]
    pub const fn shared_source() -> &'static str {
        include_str!("storage.rs")
    }
}

impl fmt::Display for Contract {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
