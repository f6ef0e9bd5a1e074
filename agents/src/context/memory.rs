//! The part of a session's memory that an agent sees, and the messages that it adds.

mod provider;

/// A filter of a session's messages by author. The store evaluates it.
pub use larder_kernel::MessageFilter as MemoryFilter;
/// A selector of messages by author.
pub use larder_kernel::MessageSelector as Selector;

pub use provider::{LIMITED_WINDOW_BYTES_DEFAULT, LimitedWindow, MemoryProvider, SessionMemory};
