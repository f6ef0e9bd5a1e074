//! The formats of providers and their tools: conversion of a line to a message, and back to the same line.

use larder_kernel::{ToolCall, check};
use serde_json::json;

use super::properties::{exact, stored};
use super::*;

/// Reads lines with one reader, and checks that each message becomes its line again.
fn read(lines: &[&str]) -> Vec<ChatMessage> {
    let mut reader = TranscriptReader::new();
    let mut all = Vec::new();
    for line in lines {
        let read = reader.read(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let [message] = &*read else { panic!("{} messages: {line}", read.len()) };
        let written = to_lines(message).unwrap();
        assert_eq!(written.len(), 1, "{line}");
        assert_eq!(exact(&written[0]), exact(line), "{}", written[0]);
        assert_eq!(to_lines(&stored(message.clone())).unwrap(), written);
        all.push(message.clone());
    }
    all
}

fn call(message: &ChatMessage) -> (&str, &str, &str) {
    let [call] = &*message.tool_calls else { panic!("{} calls", message.tool_calls.len()) };
    (&call.id, &call.name, &call.arguments)
}

fn result(message: &ChatMessage) -> (&str, &str) {
    let [result] = &*message.tool_results else { panic!("{} results", message.tool_results.len()) };
    (&result.call_id, &result.content)
}

#[test]
fn anthropic_messages_have_calls_results_and_thinking() {
    let messages = read(&[
        concat!(
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"h\nm","signature":"c2ln"},"#,
            r#"{"type":"redacted_thinking","data":"x"},{"type":"text","text":"I look.","citations":null},"#,
            r#"{"type":"tool_use","id":"t1","name":"order","input":{"id":77,"n":1e16}},"#,
            r#"{"type":"tool_use","id":"t2","name":"order","input":{}}]}"#,
        ),
        concat!(
            r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","#,
            r#""content":[{"type":"text","text":"shipped"},{"type":"image","source":{"type":"base64","#,
            r#""media_type":"image/png","data":"iVBO"}}]},{"type":"tool_result","tool_use_id":"t2","#,
            r#""content":"no","is_error":true},{"type":"tool_result","tool_use_id":"t3"},{"type":"text","#,
            r#""text":"and?"}]}"#,
        ),
        concat!(
            r#"{"role":"assistant","content":[{"type":"server_tool_use","id":"s1","name":"web_search","#,
            r#""input":{"query":"q"}},{"type":"web_search_tool_result","tool_use_id":"s1","#,
            r#""content":[{"type":"web_search_result","url":"https://example.org"}]}]}"#,
        ),
        concat!(
            r#"{"role":"user","content":[{"type":"document","source":{"type":"text","#,
            r#""media_type":"text/plain","data":"the text"},"title":"t"}]}"#,
        ),
    ]);
    assert_eq!(
        messages[0].text,
        "[thinking: h\nm]\n[redacted_thinking: {\"type\":\"redacted_thinking\",\"data\":\"x\"}]\nI look."
    );
    let calls = [ToolCall::new("t1", "order", r#"{"id":77,"n":1e16}"#), ToolCall::new("t2", "order", "{}")];
    assert_eq!(messages[0].tool_calls, calls);
    assert_eq!(messages[1].role, Role::User);
    assert_eq!(messages[1].text, "and?");
    let results = &messages[1].tool_results;
    assert!(results[0].content.starts_with("shipped\n[image: {"), "{}", results[0].content);
    assert_eq!(results[1], ToolResult::error("t2", "no"));
    assert_eq!(results[2], ToolResult::new("t3", ""));
    assert_eq!(call(&messages[2]), ("s1", "web_search", r#"{"query":"q"}"#));
    assert!(result(&messages[2]).1.contains("example.org"));
    assert_eq!(messages[3].text, "[document: the text]");
}

#[test]
fn responses_items_are_messages_reasoning_calls_and_results() {
    let long = format!(
        r#"{{"type":"reasoning","id":"rs_2","summary":[],"encrypted_content":"{}"}}"#,
        "x".repeat(999)
    );
    let messages = read(&[
        concat!(
            r#"{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"},"#,
            r#"{"type":"input_image","image_url":"https://example.org/x.png"}]}"#,
        ),
        concat!(
            r#"{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"so"}],"#,
            r#""encrypted_content":"gAAAA"}"#,
        ),
        &long,
        concat!(
            r#"{"type":"function_call","call_id":"c1","name":"f","arguments":"{\"a\": 1}","id":"fc_1","#,
            r#""status":"completed"}"#,
        ),
        r#"{"type":"function_call_output","call_id":"c1","output":"42"}"#,
        r#"{"type":"custom_tool_call","call_id":"c2","name":"exec","input":"ls"}"#,
        r#"{"type":"custom_tool_call_output","call_id":"c2","output":[{"type":"input_text","text":"a"}]}"#,
        r#"{"type":"local_shell_call","call_id":"c3","action":{"command":["ls"]},"status":"completed"}"#,
        r#"{"type":"local_shell_call_output","call_id":"c3","output":"{}"}"#,
        r#"{"type":"web_search_call","id":"ws_1","status":"completed","action":{"query":"q"}}"#,
        concat!(
            r#"{"type":"mcp_call","id":"m1","name":"g","arguments":"{}","output":"done","error":null,"#,
            r#""server_label":"s"}"#,
        ),
        r#"{"type":"reasoning","id":"rs_3","summary":[]}"#,
    ]);
    assert!(messages[0].text.starts_with("hi\n[input_image: {"), "{}", messages[0].text);
    assert_eq!(messages[0].metadata.get("type"), Some(&json!("message")));
    assert_eq!(messages[1].text, "[thinking: so]\n[reasoning: \"gAAAA\"]");
    assert_eq!((messages[2].role, &*messages[2].text), (Role::Assistant, "[reasoning: 1001 bytes]"));
    assert_eq!(call(&messages[3]), ("c1", "f", r#"{"a": 1}"#));
    assert_eq!(messages[3].metadata.get("status"), Some(&json!("completed")));
    assert_eq!((messages[4].role, result(&messages[4])), (Role::Tool, ("c1", "42")));
    assert_eq!(call(&messages[5]), ("c2", "exec", "ls"));
    assert_eq!(result(&messages[6]), ("c2", "a"));
    assert_eq!(call(&messages[7]), ("c3", "local_shell", r#"{"command":["ls"]}"#));
    assert_eq!(result(&messages[8]), ("c3", "{}"));
    assert!(messages[9].text.starts_with("[web_search_call: "), "{}", messages[9].text);
    assert_eq!((call(&messages[10]), result(&messages[10])), (("m1", "g", "{}"), ("m1", "done")));
    assert!(messages[11].text.starts_with("[reasoning: "));
}

#[test]
fn gemini_parts_are_paired_by_the_name_of_the_function() {
    let messages = read(&[
        r#"{"role":"user","parts":[{"text":"hi"},{"inlineData":{"mimeType":"image/png","data":"AAAA"}}]}"#,
        concat!(
            r#"{"role":"model","parts":[{"text":"hm","thought":true},{"functionCall":{"name":"f","#,
            r#""args":{"x":1}}},{"functionCall":{"name":"g","args":{}},"thoughtSignature":"s"}]}"#,
        ),
        concat!(
            r#"{"role":"user","parts":[{"functionResponse":{"name":"g","response":{"r":2}}},"#,
            r#"{"functionResponse":{"name":"f","response":{"r":1}}}]}"#,
        ),
        concat!(
            r#"{"role":"model","parts":[{"executableCode":{"language":"PYTHON","code":"print(1)"}},"#,
            r#"{"codeExecutionResult":{"outcome":"OUTCOME_OK","output":"1"}}]}"#,
        ),
        r#"{"parts":[{"text":"no role"}]}"#,
        r#"{"role":"function","parts":[{"function_response":{"name":"orphan","response":{}}}]}"#,
    ]);
    assert!(messages[0].text.starts_with("hi\n[inlineData: {"), "{}", messages[0].text);
    assert_eq!((messages[1].role, &*messages[1].text), (Role::Assistant, "[thinking: hm]"));
    let ids: Vec<_> = messages[1].tool_calls.iter().map(|call| &*call.id).collect();
    assert_eq!(ids, ["larder-call-1", "larder-call-2"]);
    let results =
        [ToolResult::new("larder-call-2", r#"{"r":2}"#), ToolResult::new("larder-call-1", r#"{"r":1}"#)];
    assert_eq!(messages[2].tool_results, results);
    assert_eq!(messages[3].text, "[executableCode: print(1)]\n[codeExecutionResult: 1]");
    assert_eq!((messages[4].role, &*messages[4].text), (Role::User, "no role"));
    assert_eq!(messages[5].role, Role::Tool);
}

#[test]
fn older_and_other_forms_of_calls_are_read() {
    let messages = read(&[
        r#"{"role":"assistant","content":null,"function_call":{"name":"weather","arguments":"{}"}}"#,
        r#"{"role":"function","name":"weather","content":"{\"t\":-3}"}"#,
        concat!(
            r#"{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"custom","#,
            r#""custom":{"name":"exec","input":"ls"}}]}"#,
        ),
        r#"{"role":"tool","tool_call_id":"c1","content":"a"}"#,
        concat!(
            r#"{"role":"assistant","content":"","tool_calls":[{"name":"f","args":{"a":1},"id":"c2","#,
            r#""type":"tool_call"}]}"#,
        ),
        r#"{"role":"tool","tool_call_id":"c2","content":{"t":-3}}"#,
        concat!(
            r#"{"role":"assistant","content":[{"type":"tool-call","toolCallId":"c3","toolName":"f","#,
            r#""input":{}}]}"#,
        ),
        concat!(
            r#"{"role":"tool","content":[{"type":"tool-result","toolCallId":"c3","toolName":"f","#,
            r#""output":{"type":"text","value":"x"}}]}"#,
        ),
        concat!(
            r#"{"role":"assistant","content":[{"text":"b"},{"toolUse":{"toolUseId":"c4","name":"f","#,
            r#""input":{}}}]}"#,
        ),
        concat!(
            r#"{"role":"user","content":[{"toolResult":{"toolUseId":"c4","content":[{"json":{"a":1}}],"#,
            r#""status":"error"}}]}"#,
        ),
        r#"{"role":"assistant","content":null,"refusal":"No."}"#,
    ]);
    assert_eq!(call(&messages[0]), ("larder-call-1", "weather", "{}"));
    assert_eq!((messages[1].role, result(&messages[1])), (Role::Tool, ("larder-call-1", r#"{"t":-3}"#)));
    assert_eq!(call(&messages[2]), ("c1", "exec", "ls"));
    assert_eq!(call(&messages[4]), ("c2", "f", r#"{"a":1}"#));
    assert_eq!(result(&messages[5]), ("c2", r#"{"t":-3}"#));
    assert_eq!((call(&messages[6]).0, result(&messages[7]).0), ("c3", "c3"));
    assert_eq!(call(&messages[8]).0, "c4");
    assert!(messages[9].tool_results[0].is_error && result(&messages[9]).1.contains(r#"{"a":1}"#));
    assert_eq!(messages[10].text, "[refusal: No.]");
}

#[test]
fn a_result_without_an_id_belongs_to_the_open_call_before_it() {
    for id in [r#""id":"","#, r#""id":null,"#, ""] {
        let mut reader = TranscriptReader::new();
        let call = |name: &str| {
            format!(r#"{{{id}"type":"function","function":{{"name":"{name}","arguments":"{{}}"}}}}"#)
        };
        let asks =
            format!(r#"{{"role":"assistant","content":null,"tool_calls":[{},{}]}}"#, call("f"), call("g"));
        let asked = reader.read(&asks).unwrap();
        let ids: Vec<_> = asked[0].tool_calls.iter().map(|call| call.id.clone()).collect();
        assert_ne!(ids[0], ids[1]);
        let answer = id.replace("\"id\"", "\"tool_call_id\"");
        let answer = |more: &str| format!(r#"{{"role":"tool",{answer}{more}"content":"x"}}"#);
        let named = reader.read(&answer(r#""name":"g","#)).unwrap();
        assert_eq!(named[0].tool_results[0].call_id, ids[1]);
        let next = reader.read(&answer("")).unwrap();
        assert_eq!(next[0].tool_results[0].call_id, ids[0]);
        assert_eq!(exact(&to_lines(&next[0]).unwrap()[0]), exact(&answer("")));
        assert_eq!(exact(&to_lines(&asked[0]).unwrap()[0]), exact(&asks));
        assert_eq!(reader.report().paired_results, 2);
        assert_eq!(reader.read(&answer("")).unwrap_err().field(), Some("tool_call_id"));
    }
}

#[test]
fn a_name_that_occurs_twice_inside_a_field_is_kept() {
    for (name, value) in [("m", r#"{"a":1,"a":2}"#), ("n", r#"[{"x":":"},{"b":{"c":":","c":3}}]"#)] {
        let line = format!(r#"{{"role":"user","content":"x","{name}":{value}}}"#);
        let message = parse_line(&line).unwrap();
        assert_eq!((to_lines(&message).unwrap(), message.metadata.get(name)), (vec![line], None));
    }
}

#[test]
fn a_line_of_a_log_holds_its_inner_message_with_ids_and_time() {
    let line = concat!(
        r#"{"parentUuid":"6e9c","type":"assistant","message":{"id":"msg_1","role":"assistant","#,
        r#""content":[{"type":"tool_use","id":"t1","name":"Bash","input":{"command":"ls"}}],"#,
        r#""usage":{"n":1}},"uuid":"7a","timestamp":"2026-02-01T10:00:02.000Z","big":1e16}"#,
    );
    let rollout = concat!(
        r#"{"timestamp":"2026-02-01T10:00:03Z","type":"response_item","#,
        r#""payload":{"type":"function_call_output","call_id":"t1","output":"a"}}"#,
    );
    let messages = read(&[line, rollout]);
    assert_eq!(call(&messages[0]), ("t1", "Bash", r#"{"command":"ls"}"#));
    assert_eq!(messages[0].metadata.get("uuid"), Some(&json!("7a")));
    assert_eq!(messages[0].created_at, "2026-02-01T10:00:02Z".parse().unwrap());
    assert_eq!(result(&messages[1]), ("t1", "a"));
    let mut reader = TranscriptReader::new();
    for entry in [
        r#"{"type":"summary","summary":"s","leafUuid":"7a"}"#,
        r#"{"timestamp":"2026-02-01T10:00:03Z","type":"event_msg","payload":{"type":"token_count"}}"#,
    ] {
        assert!(reader.read(entry).unwrap().is_empty());
    }
    assert_eq!(reader.report().log_entries, 2);
}

#[test]
fn a_document_holds_its_messages_and_instructions() {
    let mut reader = TranscriptReader::new();
    let chat = concat!(
        r#"{"model":"m","system":"Be brief.","messages":[{"role":"user","content":"q"},"#,
        r#"{"role":"assistant","content":"a"}]}"#,
    );
    let texts: Vec<_> = reader.read(chat).unwrap().into_iter().map(|message| message.text).collect();
    assert_eq!(texts, ["Be brief.", "q", "a"]);
    assert_eq!(reader.report().document_fields, 1);
    let gemini = concat!(
        r#"{"systemInstruction":{"parts":[{"text":"s"}]},"contents":[{"role":"user","#,
        r#""parts":[{"text":"q"}]}]}"#,
    );
    let read = TranscriptReader::new().read(gemini).unwrap();
    assert_eq!((read[0].role, &*read[0].text, &*read[1].text), (Role::System, "s", "q"));
    let wrong = TranscriptReader::new()
        .read(r#"{"messages":[{"role":"user","content":"q"},{"role":"user"}]}"#)
        .unwrap_err();
    assert_eq!(wrong.field(), Some("content"));
    assert!(wrong.context().iter().any(|(name, at)| *name == "message" && at.to_string() == "2"));
}

#[test]
fn content_other_than_text_counts_in_tokens_characters_and_summaries() {
    use crate::tokens::{EstimatedTokenCounter, TokenCounter as _};
    for line in [
        r#"{"role":"assistant","content":[{"type":"tool_use","id":"t","name":"f","input":{"a":1}}]}"#,
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"words"}]}"#,
        r#"{"role":"assistant","content":[{"type":"thinking","thinking":"words","signature":"s"}]}"#,
        r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://example.org/x.png"}}]}"#,
        r#"{"role":"user","content":[{"type":"file","file":{"file_id":"f1"}}]}"#,
        r#"{"type":"reasoning","summary":[],"encrypted_content":"gAAAA"}"#,
        r#"{"role":"user","parts":[{"fileData":{"fileUri":"gs://x"}}]}"#,
        r#"{"role":"assistant","content":null,"audio":{"id":"a","transcript":"words"}}"#,
    ] {
        let message = &read(&[line])[0];
        assert!(EstimatedTokenCounter.count_message(message) > 0, "{line}");
        assert!(!crate::compaction::render_transcript([message]).trim().is_empty(), "{line}");
    }
    let url = format!("data:image/png;base64,{}", "A".repeat(3 << 20));
    let image =
        format!(r#"{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"{url}"}}}}]}}"#);
    let message = &read(&[&image])[0];
    assert!(message.text.len() < 50 && message.size_bytes() > 3 << 20, "{}", message.text);
}

#[test]
fn a_message_that_was_rewritten_is_written_in_the_common_format() {
    let line = concat!(
        r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"long"},"#,
        r#"{"type":"text","text":"and?"}],"id":1}"#,
    );
    let mut message = parse_line(line).unwrap();
    message.tool_results[0].content = "[cut]".to_owned();
    assert_eq!(
        to_lines(&message).unwrap(),
        [
            r#"{"role":"user","content":"and?","id":1}"#,
            r#"{"role":"tool","content":"[cut]","tool_call_id":"t","id":1}"#,
        ]
    );
}

#[test]
fn faults_of_the_json_are_named_with_field_and_column() {
    let deep = format!(r#"{{"role":"user","content":"d","x":{}1{}}}"#, "[".repeat(127), "]".repeat(127));
    let fits = format!(r#"{{"role":"user","content":"d","x":{}1{}}}"#, "[".repeat(126), "]".repeat(126));
    read(&[&fits]);
    let refused = [
        (r#"{"role":"user","content":"n","e":1e400,"z":-0.0}"#, "line", "`e`, column 34"),
        (r#"{"role":"user","content":"n","a":{"b":[1,-1e999]}}"#, "line", "`a.b[1]`, column 42"),
        (r#"{"role":"user","content":"n","x y":1e400}"#, "line", "`?`, column 36"),
        (r#"{"role":"user","content":[{"text":"é\ud83d"}]}"#, "content", "`content[0].text`, column 37"),
        (r#"{"role":"user","content":"n","n":NaN}"#, "line", "NaN or Infinity at `n`, column 34"),
        (r#"{"role":"user","content":"n"},"#, "line", "comma at column 30"),
        (r#"{"role":"user","content":"n",}"#, "line", "comma at column 29"),
        (&deep, "line", "nested deeper than 127 levels"),
    ];
    for (line, field, place) in refused {
        let error = parse_line(line).unwrap_err();
        assert!(error.field() == Some(field) && error.message().contains(place), "{line}: {error}");
    }
    let error = parse_line("{\"role\":\"user\",\n \"content\":1e999}").unwrap_err();
    assert!(error.context().iter().any(|(name, line)| *name == "line" && line.to_string() == "2"), "{error}");
}

#[test]
fn a_lossy_reader_replaces_halves_of_pairs_and_counts_them() {
    let line = r#"{"role":"user","content":"a\ud83d\ude00 \ud83d \\ud83d \udc00\ud83d","\ud800":1}"#;
    assert!(parse_line(line).is_err());
    let mut reader = TranscriptReader::new().lossy();
    let read = reader.read(line).unwrap();
    assert_eq!(read[0].text, "a😀 \u{FFFD} \\ud83d \u{FFFD}\u{FFFD}");
    assert_eq!(reader.report().replaced_surrogates, 4);
    assert_eq!(check::size(reader.read(r#"{"role":"user","content":"b"}"#).unwrap().len()), 1);
    assert_eq!(reader.report().replaced_surrogates, 4);
}
