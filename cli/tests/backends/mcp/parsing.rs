//! Messages that cannot be parsed get JSON-RPC errors, and arguments are accepted as clients send them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::{Value, json};

use super::client::{LARDER, Place};

const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","#,
    r#""capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#,
);
const CANARY: &str = "c4nary";

fn put(value: &str) -> String {
    let call = format!(r#"{{"name":"note_put","arguments":{{"key":"k","text":{value}}}}}"#);
    format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{call}}}"#)
}

/// A message, the id of its answer, and the code.
fn unparsable() -> Vec<(String, Value, i64)> {
    vec![
        (put(&format!(r#""{CANARY}\ud83d""#)), json!(7), -32_700),
        (put("1e999"), json!(7), -32_700),
        (format!("hello {CANARY}"), Value::Null, -32_700),
        (format!(r#"{{"jsonrpc":"2.0","id":7,"{CANARY}"#), Value::Null, -32_700),
        (format!("[{}]", put("\"x\"")), Value::Null, -32_600),
        ("[]".to_owned(), Value::Null, -32_600),
        (r#"{"jsonrpc":"2.0","id":8}"#.to_owned(), json!(8), -32_600),
        (r#"{"jsonrpc":"2.0","id":9,"method":"tools/call","params":7}"#.to_owned(), json!(9), -32_602),
    ]
}

pub(crate) async fn stdio(place: Arc<Place>) {
    let mut child = Command::new(LARDER)
        .args(["mcp", "--store", &place.url, "--namespace", &place.namespace])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut ask = |message: &[u8]| {
        input.write_all(message).unwrap();
        input.write_all(b"\n").unwrap();
        let mut answer = String::new();
        output.read_line(&mut answer).unwrap();
        assert!(!answer.contains(CANARY), "{answer}");
        serde_json::from_str::<Value>(&answer).unwrap()
    };
    let check_all = |ask: &mut dyn FnMut(&[u8]) -> Value| {
        for (message, id, code) in unparsable() {
            let answer = ask(message.as_bytes());
            assert_eq!(
                (&answer["id"], answer["error"]["code"].as_i64()),
                (&id, Some(code)),
                "{message}: {answer}"
            );
        }
        let answer = ask(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"\xFF\"}");
        assert_eq!(answer["error"]["code"], -32_700, "{answer}");
    };
    // Before the handshake and after it; the service goes on.
    check_all(&mut ask);
    assert_eq!(ask(INITIALIZE.as_bytes())["id"], 0);
    ask_nothing(&mut ask);
    check_all(&mut ask);
    let answer = ask(put("\"x\"").as_bytes());
    assert_eq!(answer["result"]["structuredContent"]["revision"], 1, "{answer}");
    let long = ask(format!("\"{}\"", "x".repeat(16 * 1024 * 1024)).as_bytes());
    assert_eq!((&long["id"], &long["error"]["code"]), (&Value::Null, &json!(-32_600)), "{long}");
    // The last line needs no line break.
    input.write_all(br#"{"jsonrpc":"2.0","id":10,"method":"ping"}"#).unwrap();
    drop(input);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&rest).unwrap()["id"], 10, "{rest}");
    assert!(child.wait().unwrap().success());
}

/// Sends a notification, which has no answer, before a request that has one.
fn ask_nothing(ask: &mut dyn FnMut(&[u8]) -> Value) {
    let initialized = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let ping = br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(ask(&[&initialized[..], b"\n", ping].concat())["id"], 1);
}

pub(crate) async fn http(place: Arc<Place>) {
    let server = place.http(&[], None);
    let client = reqwest::Client::new();
    for (message, id, code) in unparsable() {
        let request = client.post(&server.url).header("content-type", "application/json");
        let request = request.header("accept", "application/json, text/event-stream").body(message.clone());
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 400, "{message}");
        let answer: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
        assert_eq!(
            (&answer["id"], answer["error"]["code"].as_i64()),
            (&id, Some(code)),
            "{message}: {answer}"
        );
    }
}

pub(crate) async fn arguments(place: Arc<Place>) {
    let client = place.stdio(&[]).await;
    client
        .ok("note_put", json!({ "key": "k", "text": "x", "bucket": null, "if_absent": null, "ttl_ms": null }))
        .await;
    client.ok("note_put", json!({ "key": "k", "text": "y", "if_revision": 1.0, "if_absent": "false" })).await;
    let listed = client.ok("note_list", json!({ "limit": 2.0, "cursor": null })).await;
    assert_eq!(listed, client.ok("note_list", json!({ "limit": "2" })).await);
    let entity = json!({ "id": "e", "entity_type": "t", "properties": "{\"n\": 1.5}" });
    client.ok("graph_upsert_entities", json!({ "entities": entity.to_string() })).await;
    client.ok("graph_upsert_entities", json!({ "entities": [entity.to_string()] })).await;
    client.ok("graph_add_observations", json!({ "entity": "e", "observations": "[not a list" })).await;
    client.ok("graph_add_observations", json!({ "entity": "e", "observations": "[\"a\", \"b\"]" })).await;
    let got = client.ok("graph_get", json!({ "entities": "e" })).await;
    assert_eq!(got["entities"][0]["properties"]["n"], 1.5, "{got}");
    assert_eq!(got["entities"][0]["observations"], json!(["[not a list", "a", "b"]), "{got}");
    // Ambiguous input is refused with an explanation and an example.
    for (tool, arguments, field, words) in [
        ("note_list", json!({ "limit": 2.5 }), "limit", "must be a whole number of 0 or more, such as 5"),
        ("note_put", json!({ "key": "k", "text": 7 }), "text", "must be a string, such as \"text\""),
        (
            "note_put",
            json!({ "key": "k" }),
            "text",
            "is missing; a call with the required arguments is {\"key\":\"key\",\"text\":\"text\"}",
        ),
        (
            "note_put",
            json!({ "key": "k", "text": "x", "if_absent": "perhaps" }),
            "if_absent",
            "must be true or false",
        ),
        (
            "note_get",
            json!({ "key": "k", "colour": 1 }),
            "colour",
            "is not an argument; the arguments are `key`",
        ),
    ] {
        let error = client.call(tool, arguments).await.expect_err(tool);
        let message = error["message"].as_str().unwrap();
        assert!(error["field"] == field && message.contains(words), "{tool}: {error}");
        assert!(message.contains("; a call with the required arguments is {"), "{error}");
    }
    client.end().await;
}
