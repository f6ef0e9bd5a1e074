//! What an agent sees of a session's memory, and what it adds (AKKA-1 to AKKA-4).

mod provider;

/// Which messages of a session an agent sees, by who wrote them. The store evaluates it.
pub use larder_kernel::MessageFilter as MemoryFilter;
/// Who wrote a message.
pub use larder_kernel::MessageSelector as Selector;

pub use provider::{LIMITED_WINDOW_BYTES_DEFAULT, LimitedWindow, MemoryProvider, SessionMemory};
