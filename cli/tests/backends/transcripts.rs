//! Transcripts through the command: the imported lines are exported, once, from every backend.
#![allow(clippy::expect_used, clippy::unwrap_used)]

mod formats;
mod wild;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use larder_kernel::{Seq, json_equal};
use libtest_mimic::{Arguments, Trial};
use serde_json::Value;
use tempfile::TempDir;

/// Lines that a careless reader or store would change.
const HOSTILE: &str = concat!(
    r#"{"role":"system","content":"Be brief.","name":null,"nested":{"a":[null,{"b":-0.0}],"":{}}}"#,
    "\n",
    r#"{"role":"user","content":"","n":1e16,"z":-0.0,"i":1.0,"u":18446744073709551615,"f":0.1,"e":1E-7}"#,
    "\n\n",
    concat!(
        r#"{"content":"é e\u0301 \ud83d\ude00 \u0000 \u2028","role":"user","ключ":"\u0000","id":"D1:1","#,
        r#""nul\u0000":1}"#,
    ),
    "\r\n",
    concat!(
        r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","#,
        r#""function":{"name":"f","arguments":"{\"a\": 1e16}"}},{"index":1,"id":"c2","type":"function","#,
        r#""function":{"name":"g","arguments":{"x":-0.0}}}]}"#,
    ),
    "\n",
    r#"{"role":"tool","tool_call_id":"c1","content":"","is_error":false}"#,
    "\n",
    concat!(
        r#"{"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"a"},{"type":"text","#,
        r#""text":"b"}],"name":"g"}"#,
    ),
    "\n",
    concat!(
        r#"{"role":"user","content":["x",{"type":"image_url","#,
        r#""image_url":{"url":"https://example.org/x.png"}}],"tool_calls":null}"#,
    ),
    "\n",
    r#"{"role":"assistant","refusal":"No.","larder":{"mine":true},"larder.line":[1]}"#,
);

struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.path("larder.db").display())
    }
}

fn larder(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_larder"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn import(file: &Path, url: &str, namespace: &str) -> Command {
    larder(&["import", file.to_str().unwrap(), "--to", url, "--thread", "a/s/1", "--namespace", namespace])
}

fn succeeded(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn imported(file: &Path, url: &str, namespace: &str) -> String {
    succeeded(&import(file, url, namespace).output().unwrap())
}

fn exported(url: &str, namespace: &str) -> String {
    let arguments = ["export", "--from", url, "--thread", "a/s/1", "--namespace", namespace];
    succeeded(&larder(&arguments).output().unwrap())
}

/// Returns the only line on standard error, after exit code 2 and with an empty standard output.
fn refusal(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.lines().count(), 1, "more than one line: {text}");
    text
}

/// Returns a window without the generations of its positions. Two threads never have the same one.
fn without_generations(value: Value) -> Value {
    match value {
        Value::String(text) => match text.parse::<Seq>() {
            Ok(at) if at.generation().is_some() => at.get().into(),
            _ => text.into(),
        },
        Value::Array(items) => items.into_iter().map(without_generations).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (name, without_generations(value))).collect()
        }
        other => other,
    }
}

fn values(lines: &str) -> Vec<Value> {
    let lines = lines.split('\n').filter(|line| !line.trim().is_empty());
    lines.map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn assert_equal_lines(left: &str, right: &str) {
    let (left, right) = (values(left), values(right));
    assert_eq!(left.len(), right.len());
    for (left, right) in left.iter().zip(&right) {
        assert!(json_equal(left, right), "{left}\n{right}");
    }
}

/// Returns `count` different messages, enough for several batches.
fn long(count: usize) -> String {
    (0..count).fold(String::new(), |mut text, at| {
        writeln!(text, r#"{{"role":"user","content":"message {at}","at":{at}}}"#).unwrap();
        text
    })
}

fn every_field_reads_back_equal_and_a_second_import_adds_nothing() {
    let place = Place::new();
    let file = place.file("hostile.jsonl", HOSTILE);
    let said = imported(&file, &place.url(), "n1");
    let kept = "1 part has no field in a message and is kept in the metadata";
    assert_eq!(said, format!("imported 8 of 8 messages into a/s/1; the thread has 8; {kept}\n"));
    let lines = exported(&place.url(), "n1");
    assert_equal_lines(&lines, HOSTILE);
    // Numbers keep their notation even if a store might change it.
    assert!(lines.contains(r#""n":1e16"#) && lines.contains(r#""z":-0.0"#), "{lines}");
    assert!(lines.contains(r#""u":18446744073709551615"#), "{lines}");
    let said = imported(&file, &place.url(), "n1");
    let earlier = "imported 0 of 8 messages into a/s/1; 8 were imported earlier; the thread has 8";
    assert_eq!(said, format!("{earlier}; {kept}\n"));
    assert_eq!(exported(&place.url(), "n1"), lines);
    // The export is a transcript like the first.
    let again = place.file("again.jsonl", &lines);
    imported(&again, &place.url(), "n2");
    assert_eq!(exported(&place.url(), "n2"), lines);
}

fn a_complete_file_replaces_the_old_one() {
    let place = Place::new();
    let file = place.file("hostile.jsonl", HOSTILE);
    imported(&file, &place.url(), "n");
    let target = place.file("out.jsonl", "old");
    let to = |url: &str| {
        let target = target.to_str().unwrap();
        larder(&["export", "--from", url, "--thread", "a/s/1", "--namespace", "n", "--output", target])
    };
    refusal(to("sqlite:/nonexistent/x.db"));
    assert_eq!(std::fs::read_to_string(&target).unwrap(), "old");
    assert_eq!(succeeded(&to(&place.url()).output().unwrap()), "");
    assert_eq!(std::fs::read_to_string(&target).unwrap(), exported(&place.url(), "n"));
    let names = std::fs::read_dir(place.folder.path()).unwrap();
    assert!(
        names.into_iter().all(|name| !name.unwrap().file_name().to_string_lossy().starts_with(".larder"))
    );
}

fn a_line_that_is_not_a_message_is_named_and_nothing_is_imported() {
    let place = Place::new();
    let good = long(1_200);
    let bad: [(&[u8], &str); 6] = [
        (b"{\"role\":\"usher\",\"content\":\"secret\"}\n", "`role`"),
        (b"{\"role\":\"user\",\"content\":\"secret\"\n", "ends too early"),
        (b"hello\n", "not JSON"),
        (b"{\"role\":\"tool\",\"content\":\"secret\"}\n", "`tool_call_id`"),
        (b"\xFF\xFE\n", "UTF-8"),
        (b"{\"role\":\"user\",\"content\":7}\n", "`content`"),
    ];
    for (line, reason) in bad {
        let file = place
            .file("bad.jsonl", [good.as_bytes(), line, b"{\"role\":\"user\",\"content\":\"x\"}\n"].concat());
        let said = refusal(import(&file, &place.url(), "n"));
        let at = format!("{}:1201: ", file.display());
        assert!(said.contains(&at) && said.contains(reason) && !said.contains("secret"), "{said}");
        // The command does not create the database either.
        assert!(!place.path("larder.db").exists());
    }
    let deep =
        place.file("bad.jsonl", format!("{{\"role\":\"user\",\"content\":\"{}\"}}", "x".repeat(5_000_000)));
    let said = refusal(import(&deep, &place.url(), "n"));
    assert!(said.contains(":1: ") && said.contains("limit 4194304"), "{said}");
}

fn invalid_arguments_are_reported_in_one_line() {
    let place = Place::new();
    let file = place.file("one.jsonl", long(1));
    assert!(refusal(import(&place.path("absent.jsonl"), &place.url(), "n")).contains("absent.jsonl"));
    assert!(refusal(import(place.folder.path(), &place.url(), "n")).contains("cannot read"));
    let said = refusal(import(&file, "redis://user:hunter2@127.0.0.1:1/0", "n"));
    assert!(!said.contains("hunter2"), "{said}");
    let without_history = format!("file:{}", place.path("blobs").display());
    assert!(refusal(import(&file, &without_history, "n")).contains("history"));
    let empty = place.file("empty.jsonl", "\n \n");
    assert!(imported(&empty, &place.url(), "n").contains("has no messages"));
    let no_session = larder(&["export", "--from", "memory:", "--thread", "a"]).output().unwrap();
    assert_eq!(no_session.status.code(), Some(2));
    let nothing = larder(&["export", "--from", "memory:", "--thread", "a/s"]).output().unwrap();
    assert_eq!((nothing.status.code(), nothing.stdout.len(), nothing.stderr.is_empty()), (Some(2), 0, false));
}

fn a_killed_import_continues() {
    let place = Place::new();
    let text = long(6_000);
    let file = place.file("long.jsonl", &text);
    // The database exists before the kills, so that kills hit writes and not its creation.
    imported(&place.file("one.jsonl", long(1)), &place.url(), "other");
    for wait in [40, 90, 160, 250, 400] {
        let mut child = import(&file, &place.url(), "n").spawn().unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        let _ = child.kill();
        child.wait().unwrap();
        // The thread exists from the first batch on.
        let export = ["export", "--from", &place.url(), "--thread", "a/s/1", "--namespace", "n"];
        let output = larder(&export).output().unwrap();
        let there = output.status.success();
        let held = if there { values(&succeeded(&output)).len() } else { 0 };
        assert!(held.is_multiple_of(500) && held <= 6_000, "a batch is in part: {held}");
    }
    imported(&file, &place.url(), "n");
    assert_equal_lines(&exported(&place.url(), "n"), &text);
}

fn the_window_follows_the_profile_and_showing_it_changes_nothing() {
    let place = Place::new();
    let file = place.file("hostile.jsonl", HOSTILE);
    imported(&file, &place.url(), "n");
    let before = exported(&place.url(), "n");
    let url = place.url();
    let base = ["window", "--from", &url, "--thread", "a/s/1", "--namespace", "n"];
    let run = |more: &[&str]| larder(&[&base[..], more].concat()).output().unwrap();
    let text = succeeded(&run(&["--explain"]));
    assert!(text.starts_with("#1 system: Be brief.\n#2 user:\n#3 user: é"), "{text}");
    assert!(text.contains("\\u{0}") && !text.contains('\0'), "{text:?}");
    assert!(text.contains("call c1 f {\"a\": 1e16}") && text.contains("window: 8 messages"), "{text}");
    let document: Value = serde_json::from_str(&succeeded(&run(&["--format", "json"]))).unwrap();
    let shown = document["messages"][6]["text"].as_str().unwrap();
    assert!(shown.starts_with("x\n[image_url: {"), "{shown}");
    assert_eq!(document["size"]["messages"], 8);
    assert!(document.get("explanation").is_none());

    let nothing = concat!(
        r#"{"profile":{"short_term_memory_strategy":[{"memory_strategy_id":"max_tokens","#,
        r#""memory_max_tokens":-1}]}}"#,
    );
    let profile = place.file("profile.json", nothing);
    let profile = ["--profile", profile.to_str().unwrap(), "--explain", "--format", "json"];
    let document: Value = serde_json::from_str(&succeeded(&run(&profile))).unwrap();
    assert_eq!(document["messages"], Value::Array(Vec::new()));
    assert_eq!(document["explanation"]["steps"][0]["name"], "max_tokens");
    assert_eq!(exported(&place.url(), "n"), before);

    for (wrong, field) in [
        (
            r#"{"short_term_memory_strategy":[{"memory_strategy_id":"max_tokens","memory_max_tokens":-7}]}"#,
            "memory_max_tokens",
        ),
        (r#"{"short_term_memory_strategy":[{"memory_strategy_id":"psychic"}]}"#, "memory_strategy_id"),
        (r#"{"short_term":[]}"#, "short_term"),
        ("{", "column"),
    ] {
        let file = place.file("wrong.json", wrong);
        let said = refusal(larder(&[&base[..], &["--profile", file.to_str().unwrap()]].concat()));
        assert!(said.contains("wrong.json: ") && said.contains(field), "{said}");
    }
}

/// Lines through a live service and through SQLite are the same bytes.
fn same_as_sqlite(variable: &str) {
    let url = std::env::var(variable).expect("the variable names a service");
    let place = Place::new();
    let text = format!("{HOSTILE}\n{}", long(700));
    let file = place.file("long.jsonl", &text);
    let namespace = format!("transcripts-{}-{}", std::process::id(), variable.to_lowercase());
    imported(&file, &place.url(), &namespace);
    imported(&file, &url, &namespace);
    let said = imported(&file, &url, &namespace);
    assert!(said.starts_with("imported 0 of 708 messages"), "{said}");
    let lines = exported(&url, &namespace);
    assert_eq!(lines, exported(&place.url(), &namespace));
    assert_equal_lines(&lines, &text);
    let window = |url: &str| {
        let place = ["--thread", "a/s/1", "--namespace", &namespace, "--explain", "--format", "json"];
        let shown = succeeded(&larder(&[&["window", "--from", url][..], &place].concat()).output().unwrap());
        without_generations(serde_json::from_str(&shown).unwrap())
    };
    assert_eq!(window(&url), window(&place.url()));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let namespace = larder_kernel::Namespace::new(&namespace).unwrap();
        let stores = larder::Stores::builder().namespace(namespace).url(url).open().await;
        stores.unwrap().erase().await.unwrap();
    });
}

fn trial(name: &str, test: fn()) -> Trial {
    Trial::test(name, move || {
        test();
        Ok(())
    })
}

/// Returns a trial that is ignored without its service, and fails if services are required.
fn live(name: &str, variable: &'static str) -> Trial {
    let required = std::env::var("LARDER_SERVICES").as_deref() == Ok("required");
    let absent = !cfg!(feature = "full") || (std::env::var_os(variable).is_none() && !required);
    Trial::test(name, move || {
        same_as_sqlite(variable);
        Ok(())
    })
    .with_ignored_flag(absent)
}

pub(crate) fn group(arguments: &Arguments) -> bool {
    let trials = vec![
        trial(
            "every_field_reads_back_equal_and_a_second_import_adds_nothing",
            every_field_reads_back_equal_and_a_second_import_adds_nothing,
        ),
        trial("a_complete_file_replaces_the_old_one", a_complete_file_replaces_the_old_one),
        trial(
            "a_line_that_is_not_a_message_is_named_and_nothing_is_imported",
            a_line_that_is_not_a_message_is_named_and_nothing_is_imported,
        ),
        trial("invalid_arguments_are_reported_in_one_line", invalid_arguments_are_reported_in_one_line),
        trial("a_killed_import_continues", a_killed_import_continues),
        trial(
            "the_window_follows_the_profile_and_showing_it_changes_nothing",
            the_window_follows_the_profile_and_showing_it_changes_nothing,
        ),
        trial(
            "wild::each_form_is_imported_seen_in_windows_and_exported_as_it_was",
            wild::each_form_is_imported_seen_in_windows_and_exported_as_it_was,
        ),
        trial("wild::documents_and_encodings_are_read", wild::documents_and_encodings_are_read),
        trial("wild::faults_are_named_with_line_and_place", wild::faults_are_named_with_line_and_place),
        trial(
            "wild::halves_of_surrogate_pairs_are_replaced_and_counted_on_request",
            wild::halves_of_surrogate_pairs_are_replaced_and_counted_on_request,
        ),
        trial("wild::pipes_are_read_and_written", wild::pipes_are_read_and_written),
        trial(
            "wild::a_message_may_be_as_large_in_images_as_in_text",
            wild::a_message_may_be_as_large_in_images_as_in_text,
        ),
        trial(
            "formats::conversations_of_exports_are_read_and_counted",
            formats::conversations_of_exports_are_read_and_counted,
        ),
        trial(
            "formats::sessions_of_the_openai_agents_sdk_are_read",
            formats::sessions_of_the_openai_agents_sdk_are_read,
        ),
        trial("formats::checkpoints_of_langgraph_are_read", formats::checkpoints_of_langgraph_are_read),
        trial(
            "formats::a_database_and_the_files_next_to_it_are_not_changed",
            formats::a_database_and_the_files_next_to_it_are_not_changed,
        ),
        trial(
            "formats::values_of_checkpoints_without_json_are_kept_and_nesting_is_limited",
            formats::values_of_checkpoints_without_json_are_kept_and_nesting_is_limited,
        ),
        trial(
            "formats::a_format_can_be_chosen_and_the_closest_ones_are_named",
            formats::a_format_can_be_chosen_and_the_closest_ones_are_named,
        ),
        live("postgres_returns_the_same_bytes", "LARDER_POSTGRES_URL"),
        live("redis_returns_the_same_bytes", "LARDER_REDIS_URL"),
        live("a_redis_cluster_returns_the_same_bytes", "LARDER_REDIS_CLUSTER_URL"),
    ];
    crate::groups::run("transcripts", arguments, trials)
}
