//! Files in the forms of providers and their tools, as they are found: what the command says of each, what a
//! window shows, and that the export is the file again.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Output, Stdio};

use larder_kernel::json_equal;
use serde_json::Value;

use super::{Place, exported, import, imported, larder, refusal, succeeded, values, without_generations};

pub(super) fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/backends/transcripts/wild/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap()
}

/// Checks that each provider accepts the messages of a window: each result directly follows its call, no call
/// stays open, and each id occurs once.
fn assert_valid(window: &Value) {
    let list = |message: &Value, name: &str| message[name].as_array().cloned().unwrap_or_default();
    let (mut open, mut known) = (Vec::<String>::new(), std::collections::BTreeSet::new());
    for message in window["messages"].as_array().unwrap() {
        let results = list(message, "tool_results");
        assert!(open.is_empty() || !results.is_empty(), "{open:?} stay open: {window}");
        for result in results {
            let id = result["call_id"].as_str().unwrap();
            let at = open.iter().position(|open| open == id);
            assert!(at.is_some(), "{id} has no open call: {window}");
            open.remove(at.unwrap_or_default());
        }
        for call in list(message, "tool_calls") {
            let id = call["id"].as_str().unwrap().to_owned();
            assert!(!id.is_empty() && known.insert(id.clone()), "{id}: {window}");
            open.push(id);
        }
    }
    assert!(open.is_empty(), "{open:?} stay open: {window}");
}

fn window(place: &Place, namespace: &str, profile: Option<&str>) -> Value {
    let url = place.url();
    let mut arguments =
        vec!["window", "--from", &url, "--thread", "a/s/1", "--namespace", namespace, "--format", "json"];
    let file = profile.map(|profile| place.file("profile.json", profile));
    if let Some(file) = &file {
        arguments.extend(["--profile", file.to_str().unwrap()]);
    }
    serde_json::from_str(&succeeded(&larder(&arguments).output().unwrap())).unwrap()
}

/// Returns windows under many profiles, after a check that each is valid.
fn windows(place: &Place, namespace: &str) -> Vec<Value> {
    let mut windows = vec![window(place, namespace, None)];
    for count in [1, 2, 3, 5, 8] {
        let sliding = format!(r#"{{"pipeline":[{{"type":"sliding_window","max_messages":{count}}}]}}"#);
        let truncated = format!(r#"{{"pipeline":[{{"type":"truncation","max_chars":{}}}]}}"#, count * 9);
        let groups =
            format!(r#"{{"pipeline":[{{"type":"selective_tool_call","keep_recent_groups":{count}}}]}}"#);
        let memory = format!(
            r#"{{"short_term_memory_strategy":[
                {{"memory_strategy_id":"max_tokens","memory_max_tokens":{}}}]}}"#,
            count * 3
        );
        let rolling = format!(
            r#"{{"type":"rolling_window","max_tokens":{},"summarization_threshold":{0}}}"#,
            count * 5
        );
        for profile in [sliding, truncated, groups, memory, rolling] {
            windows.push(window(place, namespace, Some(&profile)));
        }
    }
    windows.iter().for_each(assert_valid);
    windows
}

pub(super) fn each_form_is_imported_seen_in_windows_and_exported_as_it_was() {
    let place = Place::new();
    // The file, the messages, and the calls and results that the whole window shows.
    for (name, messages, calls, said) in [
        ("anthropic.jsonl", 8, 3, "the thread has 8"),
        ("openai-responses.jsonl", 5, 1, "the thread has 5"),
        ("gemini.jsonl", 3, 1, "the thread has 3"),
        ("coding-agent-log.jsonl", 2, 0, "the thread has 2"),
        ("role-function.jsonl", 4, 1, "the thread has 4"),
        ("custom-tool.jsonl", 2, 1, "the thread has 2"),
        ("tool-id-empty.jsonl", 2, 1, "1 result without an id was paired with the open call before it"),
        ("tool-id-null.jsonl", 2, 1, "1 result without an id was paired with the open call before it"),
        ("tool-id-missing.jsonl", 2, 1, "1 result without an id was paired with the open call before it"),
        ("interrupted-calls.jsonl", 12, 3, "the thread has 12"),
        ("package-openai-chat.jsonl", 4, 1, "the thread has 4"),
        ("package-openai-responses.jsonl", 5, 1, "the thread has 5"),
        ("package-anthropic.jsonl", 4, 1, "the thread has 4"),
        ("package-gemini.jsonl", 4, 1, "the thread has 4"),
    ] {
        let text = fixture(name);
        let file = place.file(name, &text);
        let output = imported(&file, &place.url(), name);
        let start = format!("imported {messages} of {messages} messages");
        assert!(output.starts_with(&start) && output.contains(said), "{name}: {output}");
        let lines = exported(&place.url(), name);
        let (given, returned) = (values(std::str::from_utf8(&text).unwrap()), values(&lines));
        assert_eq!(given.len(), returned.len(), "{name}");
        for (given, returned) in given.iter().zip(&returned) {
            assert!(json_equal(given, returned), "{name}: {given}\n{returned}");
        }
        // A second import adds nothing. An import of the export gives the same messages.
        assert!(imported(&file, &place.url(), name).starts_with("imported 0 of"), "{name}");
        let again = place.file("again.jsonl", &lines);
        let copy = format!("{name}-copy");
        imported(&again, &place.url(), &copy);
        assert_eq!(exported(&place.url(), &copy), lines, "{name}");
        let whole = &windows(&place, name)[0];
        let count = |part: &str| {
            let messages = whole["messages"].as_array().unwrap().iter();
            messages.map(|message| message[part].as_array().map_or(0, Vec::len)).sum::<usize>()
        };
        assert_eq!((count("tool_calls"), count("tool_results")), (calls, calls), "{name}: {whole}");
        let of_copy = window(&place, &copy, None);
        assert_eq!(without_generations(of_copy), without_generations(whole.clone()), "{name}");
        for message in whole["messages"].as_array().unwrap() {
            let text = message["text"].as_str().unwrap();
            let is_seen =
                !text.is_empty() || message["tool_calls"].is_array() || message["tool_results"].is_array();
            assert!(is_seen, "{name}: {message}");
        }
        // The window does not change what is stored.
        assert_eq!(exported(&place.url(), name), lines);
    }
}

pub(super) fn documents_and_encodings_are_read() {
    let place = Place::new();
    let chat = concat!(
        r#"{"messages": [{"role": "user", "content": "Which platform for Basel?"}, {"role": "assistant", "#,
        r#""content": "Platform 7."}], "model": "m"}"#,
    );
    let spread = "{\n \"messages\": [\n  {\"role\": \"user\",\n   \"content\": \"Which platform for \
                  Basel?\"},\n  {\"role\": \"assistant\", \"content\": \"Platform 7.\"}\n ]\n}\n";
    let list = concat!(
        r#"[{"role":"user","content":"Which platform for Basel?"},"#,
        r#"{"role":"assistant","content":"Platform 7."}]"#,
    );
    let units = list.encode_utf16().flat_map(u16::to_be_bytes);
    let big_endian: Vec<u8> = [0xFE, 0xFF].into_iter().chain(units).collect();
    let forms = [
        fixture("json-array.json"),
        fixture("messages-wrapper.jsonl"),
        fixture("utf16.jsonl"),
        chat.into(),
        spread.into(),
        big_endian,
    ];
    for (at, text) in forms.iter().enumerate() {
        let namespace = format!("n{at}");
        let said = imported(&place.file("document", text), &place.url(), &namespace);
        assert!(said.starts_with("imported 2 of 2 messages"), "{said}");
        assert_eq!(said.contains("1 field next to the messages was skipped"), at == 3, "{said}");
        let lines = exported(&place.url(), &namespace);
        assert_eq!(lines, exported(&place.url(), "n0"), "{lines}");
        assert!(lines.contains("Which platform for Basel?") && lines.contains("Platform 7."), "{lines}");
    }
}

pub(super) fn faults_are_named_with_line_and_place() {
    let place = Place::new();
    let deep = fixture("nested-200-levels.jsonl");
    for (name, text, reasons) in [
        ("trailing-comma.jsonl", None, [":1: ", "comma at column 57"]),
        ("latin1.jsonl", None, [":1: ", "not UTF-8, at byte 28"]),
        ("numbers.jsonl", None, [":1: ", "number out of range at `e`"]),
        ("nested-200-levels.jsonl", Some(deep), [":1: ", "nested deeper than 127 levels"]),
        ("lone-surrogate-content.jsonl", None, [":2: ", "`content`"]),
        ("lone-surrogate-tool-result.jsonl", None, [":2: ", "--lossy"]),
        (
            "array",
            Some(b"[\n {\"role\": \"user\", \"content\": \"secret\"},\n {\"role\": \"usher\"}\n]".to_vec()),
            [":3: ", "`role`"],
        ),
        (
            "comma",
            Some(b"[\n {\"role\": \"user\", \"content\": \"secret\"},\n]".to_vec()),
            [":2: ", "comma at column 39"],
        ),
        (
            "list",
            Some(b"{\"messages\": [{\"role\": \"user\"}]}".to_vec()),
            ["message 1 of the list", "`content`"],
        ),
        (
            "spread",
            Some(b"{\n \"role\": \"user\",\n \"content\": \"secret\", \"n\": 1e999\n}".to_vec()),
            [":3: ", "`n`, column 28"],
        ),
    ] {
        let file = place.file(name, text.unwrap_or_else(|| fixture(name)));
        let said = refusal(import(&file, &place.url(), "n"));
        assert!(reasons.iter().all(|reason| said.contains(reason)), "{name}: {said}");
        assert!(said.contains("nothing was imported") && !said.contains("secret"), "{said}");
        assert!(!place.path("larder.db").exists());
    }
    // Every other number of the file survives exactly.
    let numbers = String::from_utf8(fixture("numbers.jsonl")).unwrap().replace("1e400", "1e300");
    imported(&place.file("numbers", &numbers), &place.url(), "numbers");
    let lines = exported(&place.url(), "numbers");
    for number in [
        "653247040368672768",
        "18446744073709551615",
        "123456789012345678901234567890",
        "1234567890.12345678",
        "1e300",
        "-0.0",
        "\"one\":1.0",
    ] {
        assert!(lines.contains(number), "{number}: {lines}");
    }
}

pub(super) fn halves_of_surrogate_pairs_are_replaced_and_counted_on_request() {
    let place = Place::new();
    for (name, text) in [
        ("lone-surrogate-content.jsonl", "done \u{FFFD}"),
        ("lone-surrogate-tool-result.jsonl", "scrape \u{FFFD} tail"),
    ] {
        let file = place.file(name, fixture(name));
        let mut command = import(&file, &place.url(), name);
        let said = succeeded(&command.arg("--lossy").output().unwrap());
        assert!(said.contains("1 half of a surrogate pair was replaced with U+FFFD"), "{said}");
        assert!(exported(&place.url(), name).contains(text));
    }
}

pub(super) fn piped(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = larder(arguments).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

pub(super) fn pipes_are_read_and_written() {
    let place = Place::new();
    let text = (0..1_200).fold(String::new(), |mut text, at| {
        writeln!(text, r#"{{"role":"user","content":"message {at}"}}"#).unwrap();
        text
    });
    let url = place.url();
    for (namespace, file) in [("dash", "-"), ("device", "/dev/stdin")] {
        let arguments = ["import", file, "--to", &url, "--thread", "a/s/1", "--namespace", namespace];
        let said = succeeded(&piped(&arguments, text.as_bytes()));
        assert!(said.starts_with("imported 1200 of 1200 messages"), "{said}");
        assert!(succeeded(&piped(&arguments, text.as_bytes())).starts_with("imported 0 of"));
        let wrong = piped(&arguments, b"{\"role\":\"user\",\"content\":\"x\"}\n{}\n");
        let said = String::from_utf8(wrong.stderr).unwrap();
        assert!(wrong.status.code() == Some(2) && said.contains(":2: no message"), "{said}");
    }
    let export = ["export", "--from", &url, "--thread", "a/s/1", "--namespace", "dash", "--output", "-"];
    assert_eq!(succeeded(&larder(&export).output().unwrap()), exported(&url, "device"));
    assert!(!std::path::Path::new("-").exists());
}

pub(super) fn a_message_may_be_as_large_in_images_as_in_text() {
    let place = Place::new();
    let image = "A".repeat(3 * 1024 * 1024);
    let (url, extra) = (format!("data:image/png;base64,{image}"), "é".repeat(100_000));
    let content = format!(
        r#"[{{"type":"image_url","image_url":{{"url":"{url}"}}}},{{"type":"text","text":"What is this?"}}]"#
    );
    let line = format!(r#"{{"role":"user","content":{content},"extra":"{extra}"}}"#);
    let file = place.file("image.jsonl", &line);
    imported(&file, &place.url(), "n");
    let lines = exported(&place.url(), "n");
    assert!(json_equal(&values(&line)[0], &values(&lines)[0]));
    let shown = window(&place, "n", None)["messages"][0]["text"].as_str().unwrap().to_owned();
    assert!(shown.starts_with("[image_url: 3") && shown.ends_with("bytes]\nWhat is this?"), "{shown}");
    let larger =
        place.file("larger.jsonl", line.replace("base64,", &format!("base64,{}", "A".repeat(2 << 20))));
    let said = refusal(import(&larger, &place.url(), "n"));
    assert!(said.contains("`message`") && said.contains("4194304"), "{said}");
}
