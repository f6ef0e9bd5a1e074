//! The offered tools: those of the available stores, and for a read-only server no tool that writes.

use std::process::Command;
use std::sync::Arc;

use serde_json::json;

use super::client::{LARDER, Place};

pub(crate) async fn nothing_to_offer() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("file:{}", folder.path().join("blobs").display());
    let output = Command::new(LARDER).args(["mcp", "--store", &url]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("no tools for blobs"), "{said}");
    assert!(output.stdout.is_empty(), "nothing but MCP is written there");
}

pub(crate) async fn read_only(place: Arc<Place>) {
    let (writer, reader) = (place.stdio(&[]).await, place.stdio(&["--read-only"]).await);
    let (all, fewer) = (writer.0.list_all_tools().await.unwrap(), reader.0.list_all_tools().await.unwrap());
    assert_eq!(all.len(), 30);
    let reads = |tool: &&rmcp::model::Tool| tool.annotations.as_ref().unwrap().read_only_hint == Some(true);
    assert_eq!(all.iter().filter(reads).count(), fewer.len());
    writer.ok("note_put", json!({ "key": "k", "text": "there" })).await;
    assert_eq!(reader.ok("note_get", json!({ "key": "k" })).await["note"]["text"], "there");
    assert_eq!(reader.refused("note_put", json!({ "key": "k", "text": "gone" })).await, "Unsupported");
    assert_eq!(reader.ok("note_get", json!({ "key": "k" })).await["note"]["text"], "there");
    writer.end().await;
    reader.end().await;
}
