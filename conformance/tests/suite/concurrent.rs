//! The level `concurrent` against stores with defects that only concurrent use shows. The level catches each
//! within 200 histories and passes the same stores without the defect.

// The whole target is a test, including its helpers.
#![allow(clippy::panic, clippy::unwrap_used)]

#[macro_use]
mod frame;
mod blobs;
mod graph;
mod history;
mod key_value;
mod tasks;
mod vectors;
