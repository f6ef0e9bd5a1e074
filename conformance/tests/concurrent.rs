//! The level `concurrent` against stores that are wrong only when several use them at once: each is caught within 200
//! histories, and the same stores without the defect are not.

// The whole target is a test, its helpers included.
#![allow(clippy::panic, clippy::unwrap_used)]

#[macro_use]
#[path = "concurrent/frame.rs"]
mod frame;
#[path = "concurrent/blobs.rs"]
mod blobs;
#[path = "concurrent/graph.rs"]
mod graph;
#[path = "concurrent/history.rs"]
mod history;
#[path = "concurrent/key_value.rs"]
mod key_value;
#[path = "concurrent/tasks.rs"]
mod tasks;
#[path = "concurrent/vectors.rs"]
mod vectors;
