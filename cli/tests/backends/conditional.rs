//! S3 on a server with correct conditional writes, including concurrent writers.
//!
//! None of the test servers has them: s3s-fs checks the tag before it writes, and another write may happen in
//! between. The backend detects this when it opens and does not declare the condition. This test sends one
//! write at a time to s3s-fs. Without the server the test is ignored; with `LARDER_SERVICES=required` it
//! fails.
//!
//! The cases of writes run. `LARDER_STRICT=whole` runs every case of blobs, as `.ci/long` does.
#![allow(clippy::panic, clippy::unwrap_used)]

mod turns;

use std::process::Command;

use libtest_mimic::{Arguments, Failed, Trial};
use serde_json::Value;

const VARIABLE: &str = "LARDER_S3_S3S_URL";

pub(crate) fn group(arguments: &Arguments) -> bool {
    let required = std::env::var("LARDER_SERVICES").is_ok_and(|value| value == "required");
    let url = std::env::var(VARIABLE);
    let ignored = url.is_err() && !required;
    let run = move || {
        let url =
            url.map_err(|_| Failed::from(format!("{VARIABLE} is not set, and services are required")))?;
        passes_with_conditions(&url);
        Ok(())
    };
    let trial = Trial::test("writes_under_a_condition_are_declared_and_hold", run).with_ignored_flag(ignored);
    crate::groups::run("conditional", arguments, vec![trial])
}

/// The clauses of writes, in the texts that select cases.
const WRITES: [&str; 2] = ["BLOB-00", "BLOB-01"];
const CONDITIONS: [&str; 5] = ["BLOB-007", "BLOB-008", "BLOB-009", "BLOB-010", "BLOB-011"];

fn passes_with_conditions(url: &str) {
    let server = url.split_once("endpoint=http://").unwrap().1.split('&').next().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let port = runtime.block_on(turns::one_write_at_a_time(server.to_owned()));
    let url = url.replace(server, &format!("127.0.0.1:{port}"));
    let whole = std::env::var("LARDER_STRICT").is_ok_and(|value| value == "whole");
    let filters: &[&str] = if whole { &["BLOB"] } else { &WRITES };
    let passed: Vec<String> = filters.iter().flat_map(|filter| passes(&url, filter)).collect();
    for clause in CONDITIONS {
        assert!(passed.iter().any(|passed| passed == clause), "{clause}: {passed:?}");
    }
}

/// Runs the selected cases, of which none may fail, and returns the clauses of the passed ones.
fn passes(url: &str, filter: &str) -> Vec<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_larder"))
        .args(["check", &format!("strict={url}"), "--format", "json", "--level", "contract,hostile"])
        // All cases queue for one writer, so a case waits for the others: few run concurrently, with a long
        // time limit.
        .args(["--jobs", "4", "--timeout", "300", "--filter", filter])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{said}"));
    let declared = report["backends"][0]["capabilities"]["blobs"]["optional"].as_array().unwrap();
    for condition in ["blob-create-only", "blob-if-match"] {
        assert!(declared.iter().any(|name| name == condition), "{condition}: {declared:?}");
    }
    assert_eq!(report["summary"]["failed"], 0, "{said}");
    assert_eq!(output.status.code(), Some(0), "{said}");
    let cases = report["cases"].as_array().unwrap().iter();
    let passed = cases.filter(|case| case["outcome"] == "passed");
    passed.map(|case| case["clause"].as_str().unwrap().to_owned()).collect()
}
