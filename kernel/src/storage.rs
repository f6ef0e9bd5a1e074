//! The six storage contracts.
//!
//! Each contract is one trait. The documentation of each method lists its **clauses**: numbered sentences,
//! such as `HIST-004`, that define the behavior of every backend. The suite in `larder-conformance` reads the
//! clauses from these files and proves each of them with at least one case. [`Store`] has the clauses that
//! all contracts share.
//!
//! [`Store`] has four required methods. Every method of a contract has a default body that returns
//! `Unsupported` ([`Error::not_implemented`](crate::Error::not_implemented)), so a store compiles before it
//! is complete. The suite counts the cases that need a missing method as waiting. A store conforms once it
//! implements every method.
//!
//! Three promises hold for every method. The methods do not repeat them:
//! - **Input validation.** Every method checks its input before any I/O. An `InvalidInput` error names the
//!   field and the limit, and the call changes nothing.
//! - **Cancellation.** If a future is dropped at any point, the store stays usable, and the write is complete
//!   or absent.
//! - **Concurrency.** Every method takes `&self`, and any number of tasks and handles may call it
//!   concurrently. Once a call is acknowledged, every later call sees its effect, through any handle.

pub mod blob;
mod fenced;
#[doc(hidden)]
pub mod forward;
pub mod graph;
pub mod guard;
pub mod history;
pub mod key_value;
mod options;
mod set;
pub mod task;
pub mod vector;

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::capability::Capabilities;
use crate::error::Result;
use crate::id::Namespace;

pub use fenced::fenced;
pub use options::{OptionSet, RequestOption, undeclared_option};
pub use set::StoreSet;

/// The methods that every store of every contract has.
#[async_trait]
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Returns the namespace in which the store was opened.
    ///
    /// - **STORE-001** Stores in different namespaces do not see each other's data, even under the same ids.
    /// - **STORE-002** A write that one handle has acknowledged is visible to every later read through any
    ///   other handle on the same backend and namespace.
    /// - **STORE-003** Ids and namespaces that differ in any byte identify different items: case and Unicode
    ///   form are significant, and characters that are special to some backend are plain data.
    fn namespace(&self) -> &Namespace;

    /// Returns the capabilities that this store declares, read from the live settings when it was opened.
    ///
    /// - **STORE-004** The capabilities do not change while the store is open, and two handles on the same
    ///   backend and namespace declare the same capabilities.
    /// - **STORE-005** If a store declares durability `process` or more, every acknowledged write is readable
    ///   after all handles are closed and the backend is opened again.
    fn capabilities(&self) -> Capabilities;

    /// Returns the optional fields of requests that this store honors, listed by name. Two handles on the
    /// same backend and namespace declare the same options.
    ///
    /// - **STORE-015** An option that the store declares has its effect, and a call that sets any other
    ///   option fails with `Unsupported` before any I/O and changes nothing.
    ///
    /// A store need not check undeclared options. [`StoreSet`], the handles of the crate `larder` and the
    /// suite call a store with an incomplete declaration through [`guard`], which refuses them. So a store
    /// that was written before an option existed never ignores that option.
    ///
    /// ```
    /// use larder_kernel::{OptionSet, RequestOption};
    ///
    /// let declared = OptionSet::of(&[RequestOption::ValueCondition, RequestOption::ValueTtl]);
    /// assert!(declared.has(RequestOption::ValueTtl));
    /// assert!(!declared.has(RequestOption::AppendTtl));
    /// ```
    fn options(&self) -> OptionSet;

    /// Removes everything that the namespace contains under this contract, including all counters and
    /// idempotency keys.
    ///
    /// - **STORE-006** After an erasure, nothing that was stored in the namespace can be read or listed.
    /// - **STORE-007** An erasure does not change other namespaces, including namespaces whose names share a
    ///   prefix with the erased namespace.
    /// - **STORE-008** Erasing an empty namespace succeeds.
    /// - **STORE-009** After an erasure, the namespace is usable as if it were new.
    /// - **STORE-010** A call that fails with `InvalidInput` changes nothing that can be read.
    /// - **STORE-011** A write whose future is dropped before it completes is later visible completely or not
    ///   at all, and the store remains usable.
    /// - **STORE-012** Neither an error nor the `Debug` output of a store contains stored text or the ids of
    ///   stored items.
    /// - **STORE-013** A call that fails with the outcome `NotApplied` has changed nothing.
    /// - **STORE-014** While the backend is unreachable, every call ends within a bounded time with
    ///   `Unavailable` or `Timeout`, and the same store works again once the backend is reachable.
    ///
    /// Numbers (`Seq`, `Revision`, fencing tokens) may restart after an erasure, so consumers must discard
    /// the numbers they have stored. Open streams end with `Conflict`, as described in
    /// [`subscribe`](crate::HistoryProvider::subscribe) and [`watch`](crate::KeyValueStore::watch). Writers
    /// that continue during an erasure can get ahead of a stream, so stop them first.
    ///
    /// # Errors
    /// Only errors of the backend itself: `Unavailable`, `Timeout`, `PermissionDenied`.
    ///
    /// # Cancellation
    /// If the future is dropped, any part may have been removed. Call `erase` again to complete the erasure.
    ///
    /// # Complexity
    /// O(items in the namespace).
    async fn erase(&self) -> Result<()>;
}

/// A storage contract, as the suite names it.
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
    /// All six contracts, in the order of reports.
    pub const ALL: &'static [Self] =
        &[Self::History, Self::Vectors, Self::Graph, Self::Blobs, Self::Tasks, Self::KeyValue];

    /// Returns the name used in reports.
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

    /// Returns the source text of the contract, from which the suite reads the clauses.
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

    /// Returns the source text of [`Store`], whose clauses apply to all six contracts.
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
