//! The `larder` command as a user sees it: its output and its exit codes.
#![allow(clippy::unwrap_used)]

use std::process::{Command, Output};

fn larder(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_larder")).args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Returns the only line on standard error, after exit code 2 and with an empty standard output.
fn refusal(arguments: &[&str]) -> String {
    let output = larder(arguments);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert_eq!(stdout(&output), "");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "more than one line: {text}");
    text
}

#[test]
fn a_backend_that_cannot_be_opened_exits_2_with_one_line() {
    let line = refusal(&["check", "sqlite:/nonexistent/x.db"]);
    assert!(line.contains("path"), "{line}");
    let line = refusal(&["check", "redis://user:hunter2@127.0.0.1:1/0"]);
    let expected = if cfg!(feature = "full") { "Unavailable" } else { "feature `redis`" };
    assert!(line.contains(expected) && !line.contains("hunter2"), "{line}");
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
fn a_missing_required_backend_exits_2_and_the_others_are_checked() {
    let check = |required: &str| larder(&["check", "memory:", "--filter", "KV-001", "--require", required]);
    assert_eq!(check("memory").status.code(), Some(0));
    let missing = check("postgres");
    assert_eq!(missing.status.code(), Some(2), "{missing:?}");
    let text = stdout(&missing);
    assert!(text.contains("missing REQUIRED postgres:") && text.contains(", 1 missing;"), "{text}");
    assert!(text.contains("3 passed, 0 failed"), "{text}");
    // An existing backend without any selected case proves nothing either.
    let idle = larder(&["check", "--filter", "KV-001", "--require", "fs"]);
    assert_eq!(idle.status.code(), Some(2), "{idle:?}");
    assert!(stdout(&idle).contains("missing REQUIRED fs: no case passed on it"), "{idle:?}");
    let line = refusal(&["check", "memory:", "--require", "gopher"]);
    assert!(line.contains("gopher"), "{line}");
}

#[test]
fn a_build_with_embedded_backends_names_the_full_command() {
    if cfg!(feature = "full") {
        return;
    }
    for arguments in [&["check", "postgres://u:hunter2@127.0.0.1:1/db"][..], &["check", "--live"]] {
        let line = refusal(arguments);
        assert!(line.contains("cargo larder-full") && !line.contains("hunter2"), "{line}");
    }
}

#[test]
fn a_backend_uses_the_given_name() {
    let output = larder(&["check", "mine=memory:", "memory:", "--filter", "KV-001", "--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(report["backends"][0]["name"], "mine");
    assert_eq!(report["backends"][1]["name"], "memory");
    assert_eq!(report["absent"], serde_json::json!([]));
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
fn a_report_is_a_folder_of_consistent_files() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("new/out");
    let to = folder.to_str().unwrap();
    let output = larder(&["check", "mine=memory:", "--filter", "KV-00", "--report", to, "--format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let written: serde_json::Value = serde_json::from_str(&read("report.json")).unwrap();
    let printed: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(written, printed);
    assert_eq!(written["again"]["mine"], "cargo larder check mine=memory:");
    let standing = &written["standings"][0]["levels"][0];
    assert_eq!((&standing["level"], &standing["verdict"]), (&"contract".into(), &"not_proven".into()));
    let put = |own: &&serde_json::Value| own["method"] == "put" && own["contract"] == "key_value";
    let latencies = written["latencies"].as_array().unwrap();
    let put = latencies.iter().find(put).unwrap();
    assert!(put["count"].as_u64() > Some(5) && put["p50_ns"].as_u64() <= put["p99_ns"].as_u64(), "{put}");
    assert!(read("report.html").contains("KV-001 on mine: passed"));
    assert!(read("junit.xml").contains("<testsuite name=\"mine.key_value\""));
    assert!(read("badge-mine.svg").contains("not proven"));
    let line = refusal(&["check", "memory:", "--filter", "KV-001", "--report", "/dev/null/out"]);
    assert!(line.contains("cannot write /dev/null/out"), "{line}");
}

#[test]
fn unused_waivers_are_shown_and_expired_waivers_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("waivers.toml");
    let path = file.to_str().unwrap();
    let waiver = |clause: &str, expires: &str| {
        let text = format!(
            "[[waiver]]\nbackend = \"memory\"\nclause = \"{clause}\"\nreason = \"known\"\nexpires = \
             {expires}\n"
        );
        std::fs::write(&file, text).unwrap();
        ["check", "memory:", "--filter", "KV-001", "--waivers", path]
    };
    let unused = larder(&waiver("KV-001", "2999-12-31"));
    assert_eq!(unused.status.code(), Some(0), "{unused:?}");
    let text = stdout(&unused);
    assert!(text.contains("waiver unused: memory KV-001, until 2999-12-31: known"), "{text}");
    assert!(text.contains("memory: suite ") && text.contains("not proven contract ("), "{text}");
    let expired = larder(&waiver("KV-001", "2020-02-29"));
    assert_eq!(expired.status.code(), Some(1), "{expired:?}");
    let text = stdout(&expired);
    assert!(text.contains("EXPIRED waiver of memory KV-001: it ended on 2020-02-29"), "{text}");
    let line = refusal(&waiver("KV-001", "\"soon\""));
    assert!(line.contains("waivers.toml:5: field `expires`:"), "{line}");
    let line = refusal(&waiver("KV-999", "2999-12-31"));
    assert!(line.contains("waivers.toml:3: field `clause`:"), "{line}");
    let line = refusal(&["check", "memory:", "--waivers", "/nonexistent.toml"]);
    assert!(line.contains("/nonexistent.toml: cannot be read"), "{line}");
}

#[test]
fn the_list_names_clause_level_and_case() {
    let output = larder(&["check", "--list", "--filter", "BLOB-001"]);
    let cases = ["bytes_of_many_sizes_read_back", "bytes_at_every_edge_read_back"];
    assert_eq!(stdout(&output), cases.map(|name| format!("BLOB-001  contract  blobs.{name}\n")).concat());
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

#[test]
fn a_mutant_is_compared_with_its_control_and_the_matrix_names_the_detecting_cases() {
    let defect = "key_value.deleting_takes_longer_keys_too";
    let output = larder(&["mutants", "--only", defect, "--format", "json", "--seed", "3"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let matrix: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&matrix["seed"], &matrix["scope"]), (&3.into(), &"own".into()));
    assert_eq!(matrix["suite_version"], larder_conformance::SUITE_VERSION);
    let tally =
        serde_json::json!({"killed": 1, "survived": 0, "controls_passed": 1, "controls_condemned": 0});
    assert_eq!(matrix["tally"], tally);
    let rows = matrix["mutants"].as_array().unwrap();
    assert_eq!(
        (&rows[0]["mutant"], &rows[0]["verdict"]),
        (&"key_value.the_control_passes".into(), &"passed".into())
    );
    assert_eq!((&rows[1]["mutant"], &rows[1]["verdict"]), (&defect.into(), &"killed".into()));
    assert_eq!(rows[1]["caught_by"], serde_json::json!(["KV-027"]));
    assert_eq!(rows[1]["sin"], "Deleting takes longer keys too.");
    for field in ["contract", "unnoticed_by", "also", "cases", "reason", "elapsed_ms"] {
        assert!(!rows[1][field].is_null(), "{field}");
    }
    let text = stdout(&larder(&["mutants", "--only", defect]));
    assert!(text.contains("Deleting takes longer keys too.") && text.contains("KV-027"), "{text}");
    assert!(text.contains("1 killed, 0 survived; 1 controls passed;"), "{text}");
}

#[test]
fn mutants_are_listed_with_the_clauses_that_name_their_defect() {
    let output = larder(&["mutants", "--list", "--contract", "tasks", "--only", "two_winners"]);
    assert_eq!(stdout(&output), "tasks.the_control_passes\ntasks.a_claim_has_two_winners  TASK-041\n");
    let all = stdout(&larder(&["mutants", "--list"]));
    assert!(all.lines().count() >= 200, "{}", all.lines().count());
    assert!(refusal(&["mutants", "--only", "no such defect"]).contains("no mutant"));
    assert_eq!(larder(&["mutants", "--contract", "wine"]).status.code(), Some(2));
}

#[test]
fn clients_of_the_level_concurrent_run_in_separate_processes_if_possible() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("larder.db").display());
    let few = ["check", "--level", "concurrent", "--per-mille", "60", "--format", "json", &url];
    let output = larder(&few);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let levels = report["levels"].as_array().unwrap();
    assert_eq!(levels.len(), 6, "{report:#}");
    for level in levels {
        assert!(level["trouble"].is_null(), "{level:#}");
        assert!(level["counterexamples"].as_array().unwrap().is_empty(), "{level:#}");
        let executed = level["executed"].as_u64().unwrap();
        assert!(executed >= 6 && executed < level["required"].as_u64().unwrap(), "{level:#}");
        let notes = level["notes"].to_string();
        assert!(notes.contains("made by 5 processes") && !notes.contains("\"0 histories"), "{level:#}");
    }
    // So few runs prove nothing.
    assert_eq!(output.status.code(), Some(2));
}
