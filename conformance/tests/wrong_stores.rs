//! Stores that break exactly one thing each, and the clauses by which the suite must notice.
//!
//! Every store here is the in-memory one behind a wrapper that forwards all calls but commits one sin. A test fails
//! where no case of a clause that forbids the sin fails. The same wrapper without a sin is the control: it must pass.

// The whole target is a test, its helpers included.
#![allow(clippy::panic, clippy::unwrap_used)]

#[macro_use]
#[path = "wrong_stores/frame.rs"]
mod frame;

#[path = "wrong_stores/blobs.rs"]
mod blobs;
#[path = "wrong_stores/graph.rs"]
mod graph;
#[path = "wrong_stores/history.rs"]
mod history;
#[path = "wrong_stores/key_value.rs"]
mod key_value;
#[path = "wrong_stores/tasks.rs"]
mod tasks;
#[path = "wrong_stores/vectors.rs"]
mod vectors;
