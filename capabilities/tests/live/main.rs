//! The backends against live servers: each module here is a group of tests, and the groups run one after the
//! other.
//!
//! `cargo test -p larder-capabilities --test live --all-features GROUP` runs one group, such as `postgres`.
//! Any other word filters tests by name. Tests of a server whose URL is not in the environment are ignored;
//! with `LARDER_SERVICES=required` they fail.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[cfg(any(feature = "postgres", feature = "redis"))]
mod emptied;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod filled;
mod groups;
#[cfg(any(feature = "postgres", feature = "s3"))]
mod held;
#[cfg(feature = "postgres")]
mod log_capture;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_history;
#[cfg(feature = "redis")]
mod redis_tasks;
#[cfg(feature = "s3")]
mod s3;
#[cfg(feature = "full")]
mod session_example;
#[cfg(feature = "redis")]
mod trial;

use std::process::ExitCode;

use groups::Group;

const GROUPS: &[(&str, Group)] = &[
    #[cfg(feature = "s3")]
    ("s3", s3::group),
    #[cfg(feature = "redis")]
    ("redis", redis::group),
    #[cfg(feature = "redis")]
    ("redis_sentinel", redis::sentinel::group),
    #[cfg(feature = "redis")]
    ("redis_history", redis_history::group),
    #[cfg(feature = "redis")]
    ("redis_tasks", redis_tasks::group),
    #[cfg(feature = "full")]
    ("session_example", session_example::group),
    // The last group, because it captures the log of the whole process from then on.
    #[cfg(feature = "postgres")]
    ("postgres", postgres::group),
];

fn main() -> ExitCode {
    #[cfg(feature = "postgres")]
    if let Some(code) = postgres::as_child() {
        return code;
    }
    groups::run_all(GROUPS)
}
