//! Settings and metrics of sessions, over the stores in memory. `tests/scenarios/everywhere` tests the
//! behavior of sessions.

#![allow(clippy::unwrap_used, clippy::panic)]

mod numbers;
mod settings;
#[allow(dead_code, reason = "the scenarios use the rest")]
mod support;
