//! Sessions and streams that outlive the server: rmcp's stores over the key-value store.

use std::sync::Arc;
use std::time::Duration;

use larder_kernel::BucketName;
use reqwest::{Response, StatusCode};

use super::client::Place;
use super::http::{INITIALIZE, post};

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const TOOLS: &str = r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#;
const CALL: &str = concat!(
    r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"note_put","arguments":{"key":"k","#,
    r#""text":"ž"}}}"#,
);

async fn say(url: &str, session: &str, body: &'static str) -> Response {
    let request =
        post(url, body).header("mcp-session-id", session).header("mcp-protocol-version", "2025-11-25");
    request.send().await.unwrap()
}

async fn resume(url: &str, session: &str, event: &str) -> String {
    let request = reqwest::Client::new()
        .get(url)
        .timeout(Duration::from_secs(30))
        .header("accept", "text/event-stream")
        .header("mcp-session-id", session)
        .header("mcp-protocol-version", "2025-11-25")
        .header("last-event-id", event);
    request.send().await.unwrap().text().await.unwrap()
}

/// Returns the ids and the data of a stream's events.
fn events(stream: &str) -> Vec<(String, String)> {
    let field = |event: &str, name: &str| {
        let found = event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found.map(|value| value.trim().to_owned()).unwrap_or_default()
    };
    let events = stream.split("\n\n").filter(|event| event.contains("id:"));
    events.map(|event| (field(event, "id"), field(event, "data"))).collect()
}

pub(crate) async fn restart(place: Arc<Place>) {
    let first = place.http(&["--keep-sessions"], None);
    let begun = post(&first.url, INITIALIZE).send().await.unwrap();
    let session = begun.headers()["mcp-session-id"].to_str().unwrap().to_owned();
    assert_eq!(begun.status(), StatusCode::OK);
    assert_eq!(say(&first.url, &session, INITIALIZED).await.status(), StatusCode::ACCEPTED);
    let listed = events(&say(&first.url, &session, TOOLS).await.text().await.unwrap());
    let called = events(&say(&first.url, &session, CALL).await.text().await.unwrap());
    assert!(called.len() >= 2, "an event to resume from, and the answer: {called:?}");
    drop(first);

    let second = place.http(&["--keep-sessions"], None);
    for told in [&listed, &called] {
        let replayed = events(&resume(&second.url, &session, &told[0].0).await);
        assert_eq!(replayed, told[1..], "the rest, with the same ids");
        let (last, _) = told.last().unwrap();
        assert!(events(&resume(&second.url, &session, last).await).is_empty(), "nothing follows the answer");
    }
    let forged = called[0].0.replace('@', "@9");
    assert!(events(&resume(&second.url, &session, &forged).await).is_empty());
    assert_eq!(say(&second.url, &session, TOOLS).await.status(), StatusCode::OK, "no new handshake");
    let unknown = say(&second.url, "6f1c1c1e-0000-0000-0000-000000000000", TOOLS).await;
    assert_eq!(unknown.status(), StatusCode::NOT_FOUND);

    let store = place.stores().await.key_value().unwrap();
    let buckets = store.list_buckets(Default::default()).await.unwrap();
    let names: Vec<_> = buckets.items.iter().map(|info| info.bucket.as_str()).collect();
    assert_eq!(names, ["larder.mcp.events", "larder.mcp.sessions", "notes"]);
    for name in names {
        let keys = store.list(&BucketName::new(name).unwrap(), "", Default::default()).await.unwrap();
        assert!(keys.items.iter().all(|item| !item.key.as_str().contains(&session)), "only its hash is kept");
    }
    let ended = reqwest::Client::new()
        .delete(&second.url)
        .header("mcp-session-id", &session)
        .header("mcp-protocol-version", "2025-11-25");
    assert!(ended.send().await.unwrap().status().is_success());
    assert_eq!(say(&second.url, &session, TOOLS).await.status(), StatusCode::NOT_FOUND);
    drop(second);

    let third = place.http(&[], None);
    assert_eq!(say(&third.url, &session, TOOLS).await.status(), StatusCode::NOT_FOUND);
}
