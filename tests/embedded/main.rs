//! Tests that need no server, under Rust's test harness.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[cfg(feature = "toolkit")]
mod checkpoints;
mod defaults;
#[cfg(feature = "full")]
mod diagnose;
#[cfg(all(feature = "fs", feature = "sqlite"))]
mod health;
#[cfg(all(feature = "adapter-rig-0-44", feature = "sqlite"))]
mod rig_0_44;
#[cfg(feature = "toolkit")]
mod sessions;
#[cfg(feature = "toolkit")]
#[path = "../test_backend.rs"]
mod test_backend;
#[cfg(feature = "adapter-tower-sessions")]
mod tower_sessions;
