//! The code that the packages above share, and no one else: it can change in any release.
//!
//! The module is here and not in the kernel, because [`offload`] starts blocking work with Tokio, and the
//! kernel needs no async runtime. Every package above depends on this one anyway.

mod hex;
pub mod offload;

pub use hex::hex;
