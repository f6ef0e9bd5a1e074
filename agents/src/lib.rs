//! In-memory stores, and agent features on top of the contracts of `larder-kernel`.
//!
//! - [`storage`] implements the contracts in memory: for tests, for programs with temporary data, and as the
//!   reference for every other backend.
//! - [`checkpoint`] keeps the state of a run after each turn, for runtimes that resume, branch and rewind.
//! - [`retrieval`] searches for documents that differ from each other.
//! - [`session`] keeps conversations with a system prompt, hints and a profile that limits the part the model
//!   sees.
//! - [`scope`] identifies the current agent, so that code far from the caller finds the right board.
//! - [`transfer`] copies stored data from one backend to another, or into a file.
//! - [`workflow`] moves a conversation through states and can be resumed by id.
//!
//! [`storage`], [`layers`] and [`transfer`] are always built. The other modules, with context windows,
//! compaction, token counters and models, need the feature `toolkit`.
//!
//! ```
//! use larder_agents::{InMemoryHistoryProvider, MemoryBackend};
//! use larder_kernel::{ChatMessage, HistoryProviderExt, Namespace, Thread};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> larder_kernel::Result<()> {
//! let backend = MemoryBackend::new();
//! let writer = InMemoryHistoryProvider::open(&backend, Namespace::new("tenant-1")?);
//! let reader = InMemoryHistoryProvider::open(&backend, Namespace::new("tenant-1")?);
//!
//! let thread = Thread::new("assistant", "session-1")?;
//! writer.append(&thread, ChatMessage::user("Hello")).await?;
//! assert_eq!(reader.count_messages(&thread).await?, 1);
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "toolkit")]
pub mod checkpoint;
#[cfg(feature = "toolkit")]
pub mod compaction;
#[cfg(feature = "toolkit")]
pub mod context;
#[doc(hidden)]
pub mod internal;
pub mod layers;
#[cfg(feature = "toolkit")]
mod load;
#[cfg(feature = "toolkit")]
mod lookback;
#[cfg(feature = "toolkit")]
pub mod model;
#[cfg(feature = "toolkit")]
pub mod retrieval;
#[cfg(feature = "toolkit")]
pub mod scope;
#[cfg(feature = "toolkit")]
pub mod session;
pub mod storage;
#[cfg(feature = "toolkit")]
mod stored_seq;
#[cfg(feature = "toolkit")]
pub mod tokens;
#[cfg(feature = "toolkit")]
pub mod transcript;
pub mod transfer;
#[cfg(feature = "toolkit")]
pub mod workflow;
#[cfg(feature = "toolkit")]
mod written;

#[cfg(feature = "toolkit")]
pub use context::{AgentContext, ContextConfig};
#[cfg(feature = "toolkit")]
pub use scope::AgentScope;
pub use storage::{
    GlobalTaskStore, InMemoryHistoryProvider, InMemoryKeyValueStore, InMemoryTaskStore, MemoryBackend,
};
#[cfg(feature = "toolkit")]
pub use workflow::{Workflow, WorkflowOptions, WorkflowSpec};

/// The registry page, whose examples compile.
#[cfg(all(doctest, feature = "toolkit"))]
#[doc = include_str!("../README.md")]
mod readme {}
