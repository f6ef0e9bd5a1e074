//! Streamable HTTP: both ways to start, and access control.

use std::process::Command;
use std::sync::Arc;

use reqwest::StatusCode;
use serde_json::json;

use super::client::{LARDER, Place};

pub(crate) const INITIALIZE: &str = concat!(
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","#,
    r#""capabilities":{},"clientInfo":{"name":"test","version":"0"}}}"#,
);

pub(crate) fn post(url: &str, body: &'static str) -> reqwest::RequestBuilder {
    reqwest::Client::new()
        .post(url)
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json")
        .body(body)
}

pub(crate) async fn run(place: Arc<Place>) {
    let server = place.http(&["--allow-origin", "http://localhost:6274"], None);
    let (modern, session) = (server.client().await, server.session(None).await);
    modern.ok("note_put", json!({ "key": "k", "text": "over HTTP" })).await;
    assert_eq!(session.ok("note_get", json!({ "key": "k" })).await["note"]["text"], "over HTTP");
    assert_eq!(session.refused("note_put", json!({ "key": "", "text": "" })).await, "InvalidInput");
    assert_eq!(modern.0.list_all_tools().await.unwrap().len(), 30);
    // A message as large as a note may be.
    session.ok("note_put", json!({ "key": "large", "text": "x".repeat(4 * 1024 * 1024) })).await;
    modern.end().await;
    session.end().await;

    let status = |request: reqwest::RequestBuilder| async move { request.send().await.unwrap().status() };
    assert_eq!(status(post(&server.url, INITIALIZE)).await, StatusCode::OK);
    for (header, value) in [
        ("host", "rebound.example.com"),
        ("host", "rebound.example.com:80"),
        ("origin", "https://evil.example.com"),
        ("origin", "http://localhost:1234"),
        ("origin", "null"),
    ] {
        let request = post(&server.url, INITIALIZE).header(header, value);
        assert_eq!(status(request).await, StatusCode::FORBIDDEN, "{header}: {value}");
    }
    let port = server.url.split([':', '/']).nth(4).unwrap();
    for host in ["localhost", "127.0.0.1", "[::1]"] {
        let own = format!("http://{host}:{port}");
        for origin in ["http://localhost:6274", &own] {
            let allowed = post(&server.url, INITIALIZE).header("origin", origin);
            assert_eq!(status(allowed).await, StatusCode::OK, "{origin}");
        }
    }
    let elsewhere = server.url.replace("/mcp", "/");
    assert_eq!(status(post(&elsewhere, INITIALIZE)).await, StatusCode::NOT_FOUND);

    // A further session is refused until another one ends.
    let server = place.http(&["--sessions-max", "2"], None);
    for expected in [StatusCode::OK, StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE] {
        assert_eq!(status(post(&server.url, INITIALIZE)).await, expected);
    }

    // Of many that start together, no more than the limit do.
    let server = place.http(&["--sessions-max", "3"], None);
    let starts = (0..24).map(|_| status(post(&server.url, INITIALIZE)));
    let started = futures_util::future::join_all(starts).await;
    assert_eq!(started.iter().filter(|status| **status == StatusCode::OK).count(), 3, "{started:?}");

    let server = place.http(&[], Some("s3cret"));
    for token in [None, Some("another"), Some("")] {
        let request = post(&server.url, INITIALIZE);
        let request = token.into_iter().fold(request, |request, token| request.bearer_auth(token));
        assert_eq!(status(request).await, StatusCode::UNAUTHORIZED);
    }
    let client = server.session(Some("s3cret")).await;
    assert_eq!(client.ok("note_get", json!({ "key": "k" })).await["found"], true);
    client.end().await;
}

pub(crate) async fn beyond_loopback() {
    let mut command = Command::new(LARDER);
    command.args(["mcp", "--store", "memory:", "--http", "0.0.0.0:0"]).env_remove("LARDER_MCP_TOKEN");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("LARDER_MCP_TOKEN"), "{said}");
}
