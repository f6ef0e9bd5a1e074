use larder_kernel::{ChatMessage, Role, ToolCall, ToolResult};
use serde_json::{Value, json};

use super::*;
use crate::transcript::{TranscriptReader, TranscriptReport, parse_line, to_lines};

/// Reads one value, and checks that each message is written as a line that reads as the same message.
fn read(value: &Value) -> (Vec<ChatMessage>, TranscriptReport) {
    let mut reader = TranscriptReader::new();
    let messages = reader.read(&value.to_string()).unwrap();
    for message in &messages {
        let lines = to_lines(message).unwrap();
        let [line] = &*lines else { panic!("{} lines", lines.len()) };
        let again = parse_line(line).unwrap();
        assert_eq!(again.text, message.text, "{line}");
        assert_eq!(to_lines(&again).unwrap(), lines);
    }
    (messages, reader.report())
}

fn refused(value: &Value) -> (String, String) {
    let error = TranscriptReader::new().read(&value.to_string()).unwrap_err();
    let fact = error.context().iter().find(|(name, _)| *name == "message");
    let at = fact.map_or_else(String::new, |(_, at)| at.to_string());
    (format!("{} {}", error.field().unwrap_or_default(), error.message()), at)
}

fn said(message: &ChatMessage) -> (Role, &str) {
    (message.role, &message.text)
}

fn sharegpt() -> Value {
    json!({"id": "x", "system": "Be brief.", "conversations": [
        {"from": "human", "value": "Hello", "weight": 1},
        {"from": "gpt", "value": "Hi"},
    ]})
}

#[test]
fn sharegpt_becomes_messages_and_keeps_other_fields() {
    let (messages, report) = read(&sharegpt());
    let texts: Vec<_> = messages.iter().map(said).collect();
    assert_eq!(texts, [(Role::System, "Be brief."), (Role::User, "Hello"), (Role::Assistant, "Hi")]);
    assert_eq!(messages[1].metadata.get("weight"), Some(&json!(1)));
    assert_eq!((report.document_fields, report.conversations, report.chosen_conversation), (1, 1, 1));
    let unknown =
        json!({"conversations": [{"from": "human", "value": "a"}, {"from": "narrator", "value": "b"}]});
    let (reason, at) = refused(&unknown);
    assert!(reason.starts_with("from not one of system") && at == "2", "{at}: {reason}");
    let (reason, at) = refused(&json!({"conversations": [{"from": "human"}]}));
    assert!(reason.starts_with("value") && at == "1", "{at}: {reason}");
    let roles = json!({"conversations": [{"role": "user", "content": "as OpenAI"}]});
    assert_eq!(said(&read(&roles).0[0]), (Role::User, "as OpenAI"));
}

#[test]
fn calls_of_sharegpt_are_paired_with_their_observations() {
    let (messages, _) = read(&json!({"conversations": [
        {"from": "function_call", "value": "{\"name\": \"f\",\n \"arguments\": {\"x\": 1}}"},
        {"from": "observation", "value": "42"},
        {"from": "function_call", "value": "not JSON"},
        {"from": "observation", "value": "of nothing"},
    ]}));
    assert_eq!(messages[0].tool_calls, [ToolCall::new("larder-call-1", "f", r#"{"x":1}"#)]);
    assert_eq!(messages[1].tool_results, [ToolResult::new("larder-call-1", "42")]);
    assert_eq!(said(&messages[2]), (Role::Assistant, "not JSON"));
    assert_eq!(messages[3].tool_results, [ToolResult::new("larder-call-2", "of nothing")]);
}

fn node(id: &str, parent: &str, role: &str, content: &Value) -> Value {
    json!({"id": id, "parent": parent, "children": [], "message": {
        "id": id, "author": {"role": role, "name": null, "metadata": {}}, "create_time": 1_700_000_000.25,
        "content": content, "recipient": "all", "weight": 1.0}})
}

fn chatgpt() -> Value {
    json!({"title": "t", "conversation_id": "c-1", "current_node": "d", "mapping": {
        "root": {"id": "root", "message": null, "parent": null},
        "a": node("a", "root", "system", &json!({"content_type": "text", "parts": [""]})),
        "b": node("b", "a", "user", &json!({"content_type": "multimodal_text", "parts": [
            {"content_type": "image_asset_pointer", "asset_pointer": "file-service://f", "size_bytes": 9},
            "What is this?"]})),
        "c": node("c", "b", "assistant", &json!({"content_type": "text", "parts": ["Another answer"]})),
        "d": node("d", "b", "assistant", &json!({"content_type": "text", "parts": ["A cat."]})),
    }})
}

#[test]
fn a_branch_of_chatgpt_is_the_conversation() {
    let (messages, report) = read(&chatgpt());
    let shown = "[image_asset_pointer: {\"type\":\"image_asset_pointer\",";
    assert!(messages[0].text.starts_with(shown), "{}", messages[0].text);
    assert!(messages[0].text.ends_with("}]\nWhat is this?"), "{}", messages[0].text);
    assert_eq!(said(&messages[1]), (Role::Assistant, "A cat."));
    assert_eq!(messages[1].created_at.to_string(), "2023-11-14T22:13:20.25Z");
    assert_eq!(messages[1].metadata.get("author").unwrap()["role"], "assistant");
    assert_eq!((report.kept_parts, report.skipped_messages, report.document_fields), (1, 2, 2));
}

#[test]
fn faults_of_chatgpt_are_named() {
    let mut circle = chatgpt();
    circle["mapping"]["root"]["parent"] = json!("d");
    assert!(refused(&circle).0.starts_with("mapping has no node"), "{:?}", refused(&circle));
    let mut wrong = chatgpt();
    wrong["current_node"] = json!(7);
    assert!(refused(&wrong).0.starts_with("current_node"), "{:?}", refused(&wrong));
    let mut role = chatgpt();
    role["mapping"]["b"]["message"]["author"]["role"] = json!("critic");
    let (reason, at) = refused(&role);
    assert!(
        reason.starts_with("author.role not one of") && at == "2" && !reason.contains("critic"),
        "{reason}"
    );
}

#[test]
fn calls_thoughts_and_other_contents_of_chatgpt_are_kept() {
    let mut call =
        node("a", "", "assistant", &json!({"content_type": "code", "language": "python", "text": "1 + 1"}));
    call["parent"] = Value::Null;
    call["message"]["recipient"] = json!("python");
    let mut second = node("c", "b", "tool", &json!({"content_type": "text", "parts": ["more"]}));
    second["message"]["author"]["name"] = json!("python");
    let export = json!({"current_node": "f", "mapping": {
        "a": call,
        "b": node("b", "a", "tool", &json!({"content_type": "execution_output", "text": "2"})),
        "c": second,
        "d": node("d", "c", "assistant", &json!({"content_type": "thoughts", "source_analysis_msg_id": "s",
            "thoughts": [{"summary": "Adds", "content": "One and one."}]})),
        "e": node("e", "d", "assistant", &json!({"content_type": "tether_browsing_display", "result": "p"})),
        "f": node("f", "e", "tool", &json!({"content_type": "system_error", "name": "E", "text": "late"})),
    }});
    let (messages, report) = read(&export);
    assert_eq!(messages[0].tool_calls, [ToolCall::new("a", "python", "1 + 1")]);
    let line: Value = serde_json::from_str(&to_lines(&messages[0]).unwrap()[0]).unwrap();
    assert_eq!(line["tool_calls"][0]["language"], "python");
    assert_eq!(messages[1].tool_results, [ToolResult::new("a", "2")]);
    assert_eq!(messages[2].tool_results[0].content, "more");
    assert_eq!(messages[3].text, "[thinking: One and one.]");
    let fields = messages[3].metadata.get("content_fields");
    assert_eq!(fields, Some(&json!({"source_analysis_msg_id": "s"})));
    assert!(messages[4].text.starts_with("[tether_browsing_display: {"), "{}", messages[4].text);
    assert_eq!((&*messages[5].tool_results[0].content, messages[5].tool_results[0].is_error), ("late", true));
    assert_eq!(report.kept_parts, 2);
}

fn claude() -> Value {
    json!({"uuid": "u", "name": "n", "chat_messages": [
        {"uuid": "1", "sender": "human", "text": "Hello", "content": [{"type": "text", "text": "Hello"}],
         "created_at": "2024-05-06T07:08:09.123456Z", "attachments": [{"file_name": "a.txt"}], "files": []},
        {"uuid": "2", "sender": "assistant", "text": "Hi\n\nNot supported.", "content": [
            {"type": "thinking", "thinking": "h"}, {"type": "text", "text": "Hi", "citations": []},
            {"type": "tool_use", "name": "repl", "input": {"code": "1"}, "display_content": null},
            {"type": "tool_result", "name": "repl", "content": [{"type": "text", "text": "1"}]}]},
        {"uuid": "3", "sender": "human", "text": "", "content": []},
    ]})
}

#[test]
fn claude_becomes_messages_with_calls_and_results() {
    let (messages, report) = read(&claude());
    assert_eq!(said(&messages[0]), (Role::User, "Hello"));
    assert_eq!(messages[0].created_at.to_string(), "2024-05-06T07:08:09.123456Z");
    assert_eq!(messages[0].metadata.get("text"), None);
    assert_eq!(said(&messages[1]), (Role::Assistant, "[thinking: h]\nHi"));
    assert_eq!(messages[1].metadata.get("text"), Some(&json!("Hi\n\nNot supported.")));
    assert_eq!(messages[1].tool_calls, [ToolCall::new("larder-call-1", "repl", r#"{"code":"1"}"#)]);
    assert_eq!(messages[1].tool_results, [ToolResult::new("larder-call-1", "1")]);
    assert_eq!((messages.len(), report.kept_parts, report.skipped_messages), (2, 1, 1));
    let (reason, at) = refused(&json!({"chat_messages": [{"sender": "robot", "text": "x"}]}));
    assert!(reason.starts_with("sender neither") && at == "1", "{at}: {reason}");
}

#[test]
fn one_branch_of_claude_is_read() {
    let turn = |id: &str, parent: &str, text: &str| {
        let sender = if text.ends_with('?') { "human" } else { "assistant" };
        json!({"uuid": id, "parent_message_uuid": parent, "sender": sender, "text": text, "content": []})
    };
    let mut export = json!({"chat_messages": [
        turn("1", "0", "first?"), turn("2", "1", "old"), turn("3", "1", "new"), turn("4", "3", "more?")]});
    let texts = |export: &Value| {
        let (messages, report) = read(export);
        (messages.iter().map(|message| message.text.clone()).collect::<Vec<_>>(), report.skipped_messages)
    };
    assert_eq!(texts(&export), (vec!["first?".into(), "new".into(), "more?".into()], 1));
    export["current_leaf_message_uuid"] = json!("2");
    assert_eq!(texts(&export), (vec!["first?".into(), "old".into()], 2));
}

#[test]
fn one_conversation_is_chosen_by_number_or_id() {
    let all = [sharegpt(), chatgpt(), claude()];
    let read = |wanted: Option<&str>| {
        let mut reader = TranscriptReader::new();
        if let Some(wanted) = wanted {
            reader = reader.conversation(wanted);
        }
        let mut count = 0;
        for value in &all {
            count += reader.read(&value.to_string())?.len();
        }
        Ok::<_, Error>((count, reader.report().chosen_conversation, reader.report().skipped_conversations))
    };
    assert!(read(None).unwrap_err().message().contains("`conversation`"));
    for wanted in ["2", "c-1"] {
        assert_eq!(read(Some(wanted)).unwrap(), (2, 2, 2), "{wanted}");
    }
    assert_eq!(read(Some("u")).unwrap(), (2, 3, 2));
    assert_eq!(read(Some("4")).unwrap(), (0, 0, 3));
}

#[test]
fn a_message_with_a_field_of_an_export_is_a_message() {
    let line = r#"{"role":"user","content":"Hello","mapping":{},"conversations":[]}"#;
    assert_eq!(to_lines(&parse_line(line).unwrap()).unwrap().len(), 1);
}

#[test]
fn a_number_is_a_place_in_the_file_even_if_ids_are_numbers() {
    let turn = |id: &str, text: &str| json!({"id": id, "conversations": [{"from": "human", "value": text}]});
    let all = [turn("2", "first"), turn("1", "second")];
    for (wanted, said) in [("1", "first"), ("2", "second")] {
        let mut reader = TranscriptReader::new().conversation(wanted);
        let read = all.iter().map(|value| reader.read(&value.to_string()).unwrap());
        let texts: Vec<_> = read.flatten().map(|message| message.text).collect();
        assert_eq!(texts, [said]);
    }
}

#[test]
fn a_chatgpt_conversation_without_a_current_node_ends_at_the_last_one() {
    let texts = |export: &Value| {
        let (messages, report) = read(export);
        (
            messages.iter().skip(1).map(|message| message.text.clone()).collect::<Vec<_>>(),
            report.skipped_messages,
        )
    };
    let mut export = chatgpt();
    export["current_node"] = Value::Null;
    assert_eq!(texts(&export), (vec!["A cat.".to_owned()], 2));
    export.as_object_mut().unwrap().remove("current_node");
    assert_eq!(texts(&export).1, 2);
    assert_eq!(read(&json!({"mapping": {}, "current_node": null})).0, []);
}

#[test]
fn contents_of_unknown_shape_in_chatgpt_are_kept() {
    let export = json!({"current_node": "b", "mapping": {
        "a": {"parent": null, "message": {"id": "a", "author": {"role": "user"}, "content": "bare"}},
        "b": node("b", "a", "assistant", &json!({"content_type": "text", "parts": [null, 7, "seven"]})),
    }});
    let (messages, report) = read(&export);
    assert_eq!(said(&messages[0]), (Role::User, "bare"));
    assert_eq!(messages[1].text, "[part: {\"type\":\"part\",\"value\":7}]\nseven");
    assert_eq!((report.kept_parts, report.skipped_messages), (1, 0));
}

#[test]
fn a_call_of_chatgpt_is_not_answered_after_the_next_question() {
    let mut call = node("a", "", "assistant", &json!({"content_type": "code", "text": "1 + 1"}));
    call["parent"] = Value::Null;
    call["message"]["recipient"] = json!("python");
    let mut found = node("c", "b", "tool", &json!({"content_type": "text", "parts": ["A file."]}));
    found["message"]["author"]["name"] = json!("file_search");
    let export = json!({"current_node": "c", "mapping": {
        "a": call,
        "b": node("b", "a", "user", &json!({"content_type": "text", "parts": ["Stop."]})),
        "c": found,
    }});
    assert_eq!(read(&export).0[2].tool_results, [ToolResult::new("larder-call-1", "A file.")]);
}

#[test]
fn parallel_results_of_claude_without_ids_are_paired_by_name() {
    let (messages, _) = read(&json!({"chat_messages": [{"sender": "assistant", "text": null, "content": [
        {"type": "tool_use", "id": null, "name": "f", "input": {}},
        {"type": "tool_use", "id": null, "name": "g", "input": {}},
        {"type": "tool_result", "tool_use_id": null, "name": "g", "content": "of g"},
        {"type": "tool_result", "tool_use_id": null, "name": "f", "content": "of f"},
    ]}, {"sender": "human", "text": null, "content": []}]}));
    let [first, second] = &*messages[0].tool_calls else { panic!("{messages:?}") };
    let results = [ToolResult::new(&*second.id, "of g"), ToolResult::new(&*first.id, "of f")];
    assert_eq!(messages[0].tool_results, results);
}

#[test]
fn a_second_list_of_messages_is_another_conversation() {
    let documents = ["first", "second"].map(|text| {
        json!({"id": text, "messages": [
        {"role": "user", "content": text}]})
        .to_string()
    });
    let read = |wanted: Option<&str>| {
        let mut reader = TranscriptReader::new();
        if let Some(wanted) = wanted {
            reader = reader.conversation(wanted);
        }
        let mut texts = Vec::new();
        for document in &documents {
            texts.extend(reader.read(document)?.into_iter().map(|message| message.text));
        }
        Ok::<_, Error>((texts, reader.report().conversations, reader.report().skipped_conversations))
    };
    assert!(read(None).unwrap_err().message().contains("a second conversation"));
    for wanted in ["2", "second"] {
        assert_eq!(read(Some(wanted)).unwrap(), (vec!["second".to_owned()], 2, 1), "{wanted}");
    }
}
