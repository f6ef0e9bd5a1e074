//! The stored content as resources.

use std::sync::Arc;

use larder_kernel::{ChatMessage, Thread};
use rmcp::model::{ReadResourceRequestParams, ResourceContents};
use serde_json::{Value, json};

use super::client::{Client, Place};

async fn text(client: &Client, uri: &str) -> String {
    let read = client.0.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap();
    match &read.contents[0] {
        ResourceContents::TextResourceContents { text, .. } => text.clone(),
        _ => panic!("a text"),
    }
}

pub(crate) async fn run(place: Arc<Place>) {
    let history = place.stores().await.history().unwrap();
    for n in 0..60 {
        let thread = Thread::new("a/b", format!("s{n:02}")).unwrap();
        history.append(&thread, ChatMessage::user("Hello")).await.unwrap();
    }
    let client = place.stdio(&[]).await;
    client.ok("note_put", json!({ "key": "../etc?", "text": "A note" })).await;
    client.ok("graph_upsert_entities", json!({ "entities": [{ "id": "é", "entity_type": "t" }] })).await;
    let board = json!({ "conversation": "c", "agent": "a", "tasks": [{ "id": "t", "title": "Do" }] });
    client.ok("board_create", board).await;

    let all = client.0.list_all_resources().await.unwrap();
    let uris: Vec<_> = all.iter().map(|resource| resource.uri.as_str()).collect();
    assert_eq!(uris.len(), 62, "{uris:?}");
    assert_eq!(uris[0], "larder://conversation/a%2Fb/s00");
    assert!(uris.contains(&"larder://note/..%2Fetc%3F") && uris.contains(&"larder://board/c/a"));
    let templates = client.0.list_all_resource_templates().await.unwrap();
    assert_eq!(templates.len(), 4);

    let thread: Value = serde_json::from_str(&text(&client, uris[7]).await).unwrap();
    assert_eq!(thread["messages"][0]["text"], "Hello");
    assert_eq!(text(&client, "larder://note/..%2Fetc%3F").await, "A note");
    assert!(text(&client, "larder://board/c/a").await.contains("\"title\":\"Do\""));
    assert!(text(&client, "larder://entity/%C3%A9").await.contains("\"entity_type\":\"t\""));
    for (uri, field) in [
        ("larder://note/absent", "uri"),
        ("larder://conversation/x/y", "uri"),
        ("larder://else/x", "uri"),
        ("file:///etc/passwd", "uri"),
        ("larder://note/%zz", "uri"),
        ("larder://note/", "key"),
    ] {
        let refused = client.0.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap_err();
        let rmcp::ServiceError::McpError(error) = refused else { panic!("{refused}") };
        assert_eq!(error.data.unwrap()["field"], field, "{uri}");
    }
    client.end().await;
}
