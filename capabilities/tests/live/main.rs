//! The backends against live servers: each module here is a group of tests, and the groups run one after the
//! other.
//!
//! `cargo test -p larder-capabilities --test live --all-features GROUP` runs one group, such as `postgres`.
//! Any other word filters tests by name. Tests of a server whose URL is not in the environment are ignored;
//! with `LARDER_SERVICES=required` they fail.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

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

use libtest_mimic::{Arguments, Trial};

/// Runs the selected tests of a group and returns `true` if none failed.
type Group = fn(&Arguments) -> bool;

const GROUPS: &[(&str, Group)] = &[
    #[cfg(feature = "s3")]
    ("s3", s3::group),
    #[cfg(feature = "redis")]
    ("redis", redis::group),
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
    let mut arguments = Arguments::from_args();
    let known = |filter: &String| GROUPS.iter().any(|(name, _)| name == filter);
    let chosen = arguments.filter.take_if(|filter| known(filter));
    let mut passed = true;
    for (name, run) in GROUPS {
        if chosen.as_ref().is_none_or(|chosen| chosen == name) {
            passed &= run(&arguments);
        }
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::from(101) }
}

/// Runs the tests of the group that the arguments do not exclude.
#[allow(dead_code, reason = "a build without a server has no group")]
fn run(group: &str, arguments: &Arguments, trials: Vec<Trial>) -> bool {
    let trials: Vec<Trial> = trials.into_iter().map(|trial| trial.with_kind(group)).collect();
    trials.iter().all(|trial| arguments.is_filtered_out(trial))
        || !libtest_mimic::run(arguments, trials).has_failed()
}
