//! The benchmark program, as a user starts it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::{Command, Output};

fn bench(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_larder-bench")).args(arguments).output().unwrap()
}

#[test]
fn the_benches_have_names_and_a_wrong_one_is_refused() {
    let output = bench(&["--list"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let names = String::from_utf8(output.stdout).unwrap();
    for name in ["sqlite-history", "postgres-history", "redis-history", "s3-blobs"] {
        assert!(names.lines().any(|line| line == name), "{names}");
    }
    let output = bench(&["--only", "nothing like it"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("--list"));
}
