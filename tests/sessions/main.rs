//! Settings and measures of sessions, over the stores in memory; what sessions do stands in `tests/everywhere`.

#![allow(clippy::unwrap_used, clippy::panic)]

mod numbers;
#[path = "../backends.rs"]
mod places;
mod settings;
#[allow(dead_code, reason = "the scenarios use the rest")]
mod support;
