//! The examples of the adapters, unchanged, on SQLite and on Postgres. Without a server, its tests are
//! ignored; with `LARDER_SERVICES=required` they fail.
#![allow(clippy::panic, clippy::unwrap_used, missing_docs)]

use std::path::PathBuf;
use std::process::Command;

use libtest_mimic::{Arguments, Trial};

/// The output of each example, the same on every backend.
const EXAMPLES: [(&str, &str); 4] = [
    ("object_store", "2 objects, 977924 bytes, 1 folder, day,visits 0,0\n"),
    ("sessions", "visit 3\n"),
    ("rig", "2 messages, found imam\n"),
    ("mcp", "\"text\":\"Water the plants\""),
];
const POSTGRES: &str = "LARDER_POSTGRES_URL";

/// Runs an example, which `cargo test` builds next to the tests, and returns its output.
#[track_caller]
pub(crate) fn output(example: &str, arguments: &[&str]) -> String {
    let mut program: PathBuf = std::env::current_exe().unwrap();
    program.pop();
    program.set_file_name("examples");
    program.push(example);
    let output = Command::new(&program).args(arguments).output().unwrap_or_else(|error| {
        panic!(
            "{} does not start ({error}); build it with `cargo build --all-features --example {example}`",
            program.display()
        )
    });
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn prints(example: &str, urls: &[&str], expected: &str) {
    let printed = output(example, urls);
    assert!(printed.contains(expected), "{printed}");
}

/// Runs the tests of this group.
pub(crate) fn group(arguments: &Arguments) -> bool {
    let required = std::env::var("LARDER_SERVICES").as_deref() == Ok("required");
    let mut trials = Vec::new();
    for (example, expected) in EXAMPLES {
        trials.push(Trial::test(format!("{example}_on_sqlite"), move || {
            let folder = tempfile::tempdir()?;
            prints(example, &[&format!("sqlite:{}/larder.db", folder.path().display())], expected);
            Ok(())
        }));
        let postgres = std::env::var(POSTGRES);
        let ignored = postgres.is_err() && !required;
        let live = Trial::test(format!("{example}_on_postgres"), move || {
            let postgres = postgres.unwrap_or_else(|_| panic!("{POSTGRES} is not set"));
            prints(example, &[&postgres], expected);
            Ok(())
        });
        trials.push(live.with_ignored_flag(ignored));
    }
    crate::groups::run("adapters", arguments, trials)
}
