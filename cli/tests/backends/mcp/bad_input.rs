//! Bad arguments: each is a typed error of the tool that names the field, and nothing is changed.

use std::sync::Arc;

use serde_json::{Value, json};

use super::client::Place;

const CANARY: &str = "c4nary";

/// A tool, its arguments, the refused field, and the limit that the field breaks, if any.
#[allow(clippy::too_many_lines, reason = "one table")]
fn calls() -> Vec<(&'static str, Value, &'static str, Option<u64>)> {
    let long = format!("{CANARY}{}", "x".repeat(600));
    let deep = (0..40).fold(json!(CANARY), |value, _| json!([value]));
    let ids = |count: usize| (0..count).map(|n| json!(format!("e{n}"))).collect::<Vec<_>>();
    let board = |more: Value| {
        let mut arguments = json!({ "conversation": "c", "agent": "a" });
        arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        arguments
    };
    vec![
        ("note_put", json!({ "key": long, "text": "x" }), "key", Some(512)),
        ("note_put", json!({ "key": "", "text": "x" }), "key", Some(1)),
        ("note_put", json!({ "key": "a\u{0}b", "text": CANARY }), "key", None),
        (
            "note_put",
            json!({ "key": "k", "text": "x".repeat(4 * 1024 * 1024 + 1) }),
            "text",
            Some(4 * 1024 * 1024),
        ),
        ("note_put", json!({ "key": "k", "text": "x", "ttl_ms": 0 }), "ttl_ms", Some(1)),
        (
            "note_put",
            json!({ "key": "k", "text": "x", "if_absent": true, "if_revision": 1 }),
            "if_absent",
            None,
        ),
        ("note_put", json!({ "key": "k", "text": "x", "bucket": "larder.mcp.sessions" }), "bucket", None),
        ("note_put", json!({ "key": "k", "text": { CANARY: 1 } }), "text", None),
        ("note_put", json!({ "key": "k", "text": "x", "no_such": 1 }), "no_such", None),
        ("note_put", json!({ "key": "k" }), "text", None),
        ("note_list", json!({ "limit": 0 }), "limit", Some(1)),
        ("note_list", json!({ "limit": 201 }), "limit", Some(200)),
        ("note_list", json!({ "limit": -1 }), "limit", None),
        ("note_list", json!({ "cursor": CANARY }), "cursor", None),
        ("note_list", json!({ "prefix": long }), "prefix", Some(512)),
        ("graph_upsert_entities", json!({ "entities": [] }), "entities", Some(1)),
        (
            "graph_upsert_entities",
            json!({ "entities": [
            { "id": "x", "entity_type": "t" }, { "id": "x", "entity_type": "t" }] }),
            "entities.id",
            None,
        ),
        (
            "graph_upsert_entities",
            json!({ "entities": [
            { "id": "x", "entity_type": "t", "properties": { "p": deep } }] }),
            "entity.properties",
            Some(32),
        ),
        (
            "graph_upsert_entities",
            json!({ "entities": [
            { "id": "x", "entity_type": "t", "properties": { "p": "x".repeat(70_000) } }] }),
            "entity.properties",
            Some(64 * 1024),
        ),
        (
            "graph_upsert_entities",
            json!({ "entities": [{ "id": "x", "entity_type": CANARY, "x": 1 }] }),
            "entities[0].x",
            None,
        ),
        ("graph_add_observations", json!({ "entity": "e", "observations": [] }), "observations", Some(1)),
        ("graph_neighbors", json!({ "entity": "e", "depth": 33 }), "depth", Some(32)),
        (
            "graph_neighbors",
            json!({ "entity": "e", "relationship_types": ids(65) }),
            "relationship_types",
            Some(64),
        ),
        ("graph_neighbors", json!({ "entity": "e", "direction": CANARY }), "direction", None),
        ("graph_get", json!({ "entities": ids(201) }), "entities", Some(200)),
        ("graph_search", json!({ "query": "" }), "query", Some(1)),
        ("graph_search", json!({ "query": "x".repeat(1_025) }), "query", Some(1_024)),
        ("graph_search", json!({ "contains": { "tags": ids(257) } }), "filter.values", Some(256)),
        ("conversation_search", json!({ "session": "s" }), "agent", None),
        ("conversation_search", json!({ "authors": ids(65) }), "filter", Some(64)),
        (
            "conversation_read",
            json!({ "agent": "a", "session": "s", "before": 1, "after": 1 }),
            "after",
            None,
        ),
        ("conversation_read", json!({ "agent": long, "session": "s" }), "agent", Some(512)),
        ("board_create", board(json!({ "tasks": [{ "id": "t", "title": "" }] })), "task.title", Some(1)),
        ("board_create", board(json!({ "label": "x".repeat(5_000) })), "label", Some(4_096)),
        ("task_add", board(json!({ "tasks": [] })), "tasks", Some(1)),
        ("task_claim", board(json!({ "worker": "w", "lease_ms": 0 })), "lease_ms", Some(1)),
        (
            "task_claim",
            board(json!({ "worker": "w", "lease_ms": u64::MAX })),
            "lease_ms",
            Some(3_153_600_000_000),
        ),
        ("task_update", board(json!({ "task": "t", "status": CANARY })), "status", None),
        (
            "task_complete",
            board(json!({ "task": "t", "result": "x".repeat(1024 * 1024 + 1) })),
            "result",
            Some(1024 * 1024),
        ),
    ]
}

pub(crate) async fn run(place: Arc<Place>) {
    let client = place.stdio(&[]).await;
    for (tool, arguments, field, limit) in calls() {
        let error = client.call(tool, arguments).await.expect_err(tool);
        assert_eq!(error["kind"], "InvalidInput", "{tool}: {error}");
        assert_eq!(error["field"], field, "{tool}: {error}");
        assert_eq!(error.get("limit").and_then(Value::as_u64), limit, "{tool}: {error}");
        assert_eq!(error["may_have_happened"], false, "{tool}: {error}");
        assert!(!error.to_string().contains(CANARY), "{tool}: {error}");
    }
    let stores = place.stores().await;
    let buckets = stores.set().key_value().unwrap().list_buckets(Default::default()).await.unwrap();
    let boards = stores.set().tasks().unwrap().list_boards(None, Default::default()).await.unwrap();
    assert!(buckets.items.is_empty() && boards.items.is_empty());
    assert_eq!(stores.set().graph().unwrap().count().await.unwrap().entities, 0);
    let unknown = rmcp::model::CallToolRequestParams::new("no_such_tool");
    assert!(matches!(client.0.call_tool(unknown).await, Err(rmcp::ServiceError::McpError(_))));
    client.end().await;
}
