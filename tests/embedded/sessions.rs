//! Settings and measures of sessions, over the stores in memory; what sessions do stands in `tests/scenarios/everywhere`.

#![allow(clippy::unwrap_used, clippy::panic)]

mod numbers;
mod settings;
#[allow(dead_code, reason = "the scenarios use the rest")]
mod support;
