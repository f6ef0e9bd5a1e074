//! The `larder` command as a user meets it: what it prints, and how it exits.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn larder(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_larder")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The one line on standard error, after exit 2 and with nothing on standard output.
fn refusal(arguments: &[&str]) -> String {
    let output = larder(arguments);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(stdout(&output), "");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "more than one line: {text}");
    text
}

#[test]
fn what_cannot_be_opened_exits_2_with_one_clear_line() {
    let line = refusal(&["check", "sqlite:/nonexistent/x.db"]);
    assert!(line.contains("path"), "{line}");
    let line = refusal(&["check", "redis://user:hunter2@127.0.0.1:1/0"]);
    assert!(line.contains("redis") && line.contains("feature") && !line.contains("hunter2"), "{line}");
    let line = refusal(&["check", "postgres://user:hunter2@127.0.0.1:1/db"]);
    let expected = if cfg!(feature = "full") { "Unavailable" } else { "feature `postgres`" };
    assert!(line.contains(expected) && !line.contains("hunter2"), "{line}");
    let line = refusal(&["check", "memory:?x=1"]);
    assert!(line.contains("`x`") || line.contains("parameter"), "{line}");
    let line = refusal(&["check", "gopher:x"]);
    assert!(line.contains("scheme"), "{line}");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.txt");
    std::fs::write(&path, "this is no database, however long it may grow to be").unwrap();
    let line = refusal(&["check", &format!("sqlite:{}", path.display())]);
    assert!(line.contains("database"), "{line}");
    assert_eq!(std::fs::read(&path).unwrap(), b"this is no database, however long it may grow to be");
}

#[test]
fn a_filter_that_matches_nothing_exits_2() {
    assert_eq!(larder(&["check", "memory:", "--filter", "no-such-case"]).status.code(), Some(2));
    assert_eq!(larder(&["check", "--list", "--filter", "no-such-case"]).status.code(), Some(2));
}

#[test]
fn json_on_standard_output_is_one_document_with_the_documented_fields() {
    let output = larder(&["check", "memory:", "--filter", "KV-00", "--format", "json", "--seed", "7"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["seed"], 7);
    assert_eq!(report["suite_version"], larder_conformance::SUITE_VERSION);
    assert_eq!(report["backends"][0]["name"], "memory");
    assert!(report["backends"][0]["capabilities"]["key_value"].is_object());
    let cases = report["cases"].as_array().unwrap();
    assert!(cases.len() >= 9, "{}", cases.len());
    for case in cases {
        for field in ["clause", "case", "contract", "backend", "level", "outcome", "reason"] {
            assert!(case[field].is_string(), "{field} of {case}");
        }
        assert!(case["elapsed_us"].is_u64());
    }
    assert_eq!(report["summary"]["passed"], cases.len());
    assert_eq!(report["summary"]["failed"], 0);
}

#[test]
fn the_list_names_clause_level_and_case() {
    let output = larder(&["check", "--list", "--filter", "BLOB-001"]);
    assert_eq!(stdout(&output), "BLOB-001  contract  blobs.bytes_of_many_sizes_read_back\n");
}

#[test]
#[cfg(target_os = "linux")]
fn a_result_that_cannot_be_written_exits_2() {
    for arguments in [&["contract"][..], &["check", "memory:", "--filter", "KV-001", "--format", "json"]] {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output =
            Command::new(env!("CARGO_BIN_EXE_larder")).args(arguments).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(!output.stderr.is_empty());
    }
}
