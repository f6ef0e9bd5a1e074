//! Tests that run on every backend: each module here is a group of tests, and the groups run one after the
//! other.
//!
//! `cargo test --test scenarios --all-features GROUP` runs one group, such as `everywhere`. Any other word
//! filters tests by name. Tests of a server whose URL is not in the environment are ignored; with
//! `LARDER_SERVICES=required` they fail.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod adapters;
mod away;
mod everywhere;
#[path = "../../capabilities/tests/live/groups.rs"]
mod groups;
mod handles;
mod object_store;
mod outage;
mod round_trips;
mod runtime;
mod runtime_backend;
#[path = "../test_backend.rs"]
mod test_backend;
mod tls;
#[path = "../../capabilities/tests/live/trial.rs"]
mod trial;

use std::process::ExitCode;

use groups::Group;

const GROUPS: [(&str, Group); 10] = [
    ("object_store", object_store::group),
    ("adapters", adapters::group),
    ("handles", handles::group),
    ("everywhere", everywhere::group),
    ("runtime", runtime::group),
    ("runtime_backend", runtime_backend::group),
    ("round_trips", round_trips::group),
    ("tls", tls::group),
    ("away", away::group),
    // The last group, because it captures the log of the whole process from then on.
    ("outage", outage::group),
];

fn main() -> ExitCode {
    for as_child in [runtime::as_child, runtime_backend::as_child, outage::as_child] {
        if let Some(code) = as_child() {
            return code;
        }
    }
    groups::run_all(&GROUPS)
}
