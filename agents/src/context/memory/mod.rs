//! What an agent sees of a session's memory, and what it adds (AKKA-1 to AKKA-4).

mod filter;
mod provider;

pub use filter::{MemoryFilter, Selector};
pub use provider::{LIMITED_WINDOW_BYTES_DEFAULT, LimitedWindow, MemoryProvider, SessionMemory};
