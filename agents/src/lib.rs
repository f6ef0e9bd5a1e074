//! In-memory stores, and what is built on the contracts of `larder-kernel`.
//!
//! - [`storage`] holds the contracts in memory: for tests, for programs whose data need not last, and as the reference
//!   that every other backend is measured by.
//! - [`session`] keeps conversations with a system prompt, hints and a profile of what the model sees of them.
//! - [`scope`] says which agent is at work, so that code far from the caller finds the right board.
//! - [`transfer`] moves what stores hold from one backend to another, or into a file.
//! - [`workflow`] moves a conversation through states, resumable by id.
//!
//! ```
//! use larder_agents::{InMemoryHistoryProvider, MemoryBackend};
//! use larder_kernel::{ChatMessage, HistoryProviderExt, Namespace, Thread};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> larder_kernel::Result<()> {
//! let place = MemoryBackend::new();
//! let writer = InMemoryHistoryProvider::open(&place, Namespace::new("tenant-1")?);
//! let reader = InMemoryHistoryProvider::open(&place, Namespace::new("tenant-1")?);
//!
//! let thread = Thread::new("assistant", "session-1")?;
//! writer.append(&thread, ChatMessage::user("Hello")).await?;
//! assert_eq!(reader.count_messages(&thread).await?, 1);
//! # Ok(())
//! # }
//! ```

pub mod compaction;
pub mod context;
#[doc(hidden)]
pub mod hex;
pub mod layers;
mod lookback;
pub mod model;
pub mod scope;
pub mod session;
pub mod storage;
pub mod tokens;
pub mod transcript;
pub mod transfer;
pub mod workflow;

pub use context::{AgentContext, ContextConfig};
pub use scope::AgentScope;
pub use storage::{
    GlobalTaskStore, InMemoryHistoryProvider, InMemoryKeyValueStore, InMemoryTaskStore, MemoryBackend,
};
pub use workflow::{Workflow, WorkflowOptions, WorkflowSpec};

/// The page on the registry; what it shows compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}
