//! Notes with versions, written by two servers.

use std::sync::Arc;

use larder_kernel::{BucketName, Key};
use serde_json::json;

use super::client::Place;

pub(crate) async fn run(place: Arc<Place>) {
    let (one, two) = (place.stdio(&[]).await, place.stdio(&[]).await);
    let first = one.ok("note_put", json!({ "key": "plan", "text": "Čaj", "if_absent": true })).await;
    let taken = two.refused("note_put", json!({ "key": "plan", "text": "mine", "if_absent": true })).await;
    assert_eq!(taken, "Conflict");
    let over = |text: &str| json!({ "key": "plan", "text": text, "if_revision": first["revision"] });
    let second = two.ok("note_put", over("Kafe")).await;
    assert_eq!(one.refused("note_put", over("late")).await, "Conflict");
    let read = one.ok("note_get", json!({ "key": "plan" })).await;
    assert_eq!((&read["note"]["text"], &read["note"]["revision"]), (&json!("Kafe"), &second["revision"]));
    assert_eq!(one.ok("note_get", json!({ "key": "nothing" })).await, json!({ "found": false }));

    for n in 0..5 {
        one.ok("note_put", json!({ "key": format!("day/{n}"), "text": "x", "ttl_ms": 3_600_000 })).await;
    }
    let days = two.all("note_list", "notes", json!({ "prefix": "day/", "limit": 2 })).await;
    assert_eq!(days.len(), 5);
    let day = two.ok("note_get", json!({ "key": "day/0" })).await;
    assert!(day["note"]["expires_at"].is_string());
    let other = two.ok("note_list", json!({ "bucket": "other" })).await;
    assert_eq!(other["notes"], json!([]));

    let stale = json!({ "key": "plan", "if_revision": first["revision"] });
    assert_eq!(one.refused("note_delete", stale).await, "Conflict");
    assert_eq!(one.ok("note_delete", json!({ "key": "plan" })).await["existed"], true);
    assert_eq!(one.ok("note_delete", json!({ "key": "plan" })).await["existed"], false);

    let long = "ž".repeat(300_000);
    one.ok("note_put", json!({ "key": "long", "text": long })).await;
    let (mut read, mut arguments) = (String::new(), json!({ "key": "long" }));
    loop {
        let note = two.ok("note_get", arguments.clone()).await["note"].clone();
        read.push_str(note["text"].as_str().unwrap());
        match note.get("next_offset") {
            Some(next) => arguments["offset"] = next.clone(),
            None => break,
        }
    }
    assert_eq!(read, long);

    let store = place.stores().await.key_value().unwrap();
    let (bucket, key) = (BucketName::new("notes").unwrap(), Key::new("bytes").unwrap());
    store.set(&bucket, &key, bytes::Bytes::from_static(&[0xff, 0, 1])).await.unwrap();
    let bytes = one.ok("note_get", json!({ "key": "bytes" })).await;
    assert_eq!((&bytes["note"]["encoding"], &bytes["note"]["text"]), (&json!("base64"), &json!("/wAB")));
    one.end().await;
    two.end().await;
}
