//! The level `concurrent` against stores that are wrong only when several use them at once: each is caught within 200
//! histories, and the same stores without the defect are not.

// The whole target is a test, its helpers included.
#![allow(clippy::panic, clippy::unwrap_used)]

#[macro_use]
mod frame;
mod blobs;
mod graph;
mod history;
mod key_value;
mod tasks;
mod vectors;
