//! The backends through the suite and through the command: each module here is a group of tests, and the
//! groups run one after the other.
//!
//! `cargo test -p larder-cli --test backends GROUP` runs one group, such as `embedded`. Any other word
//! filters tests by name. Tests that need every backend are in a build with the feature `full`.

#[cfg(feature = "full")]
mod browser;
#[cfg(feature = "full")]
mod conditional;
mod doctor;
mod durable;
mod embedded;
#[path = "../../../capabilities/tests/live/groups.rs"]
mod groups;
#[cfg(feature = "full")]
mod guarantees;
#[cfg(feature = "full")]
mod kill;
mod layers;
mod leaves;
#[cfg(feature = "full")]
mod live;
#[cfg(feature = "full")]
mod mcp;
mod moving;
mod operations;
mod sample;
#[cfg(feature = "full")]
mod scale;
mod transcripts;
mod versions;

use std::process::ExitCode;

use groups::Group;

const GROUPS: &[(&str, Group)] = &[
    ("embedded", embedded::group),
    ("layers", layers::group),
    ("leaves", leaves::group),
    ("durable", durable::group),
    ("moving", moving::group),
    ("doctor", doctor::group),
    ("operations", operations::group),
    ("transcripts", transcripts::group),
    ("versions", versions::group),
    #[cfg(feature = "full")]
    ("mcp", mcp::group),
    #[cfg(feature = "full")]
    ("browser", browser::group),
    #[cfg(feature = "full")]
    ("guarantees", guarantees::group),
    #[cfg(feature = "full")]
    ("live", live::group),
    #[cfg(feature = "full")]
    ("conditional", conditional::group),
    #[cfg(feature = "full")]
    ("kill", kill::group),
    #[cfg(feature = "full")]
    ("scale", scale::group),
];

fn main() -> ExitCode {
    if durable::wrote() {
        return ExitCode::SUCCESS;
    }
    groups::run_all(GROUPS)
}
