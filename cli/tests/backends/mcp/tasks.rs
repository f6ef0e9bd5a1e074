//! A board that two workers share.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::client::Place;

fn with(more: &Value) -> Value {
    let mut arguments = json!({ "conversation": "release", "agent": "planner" });
    for (name, value) in more.as_object().unwrap() {
        arguments[name] = value.clone();
    }
    arguments
}

pub(crate) async fn run(place: Arc<Place>) {
    let (one, two) = (place.stdio(&[]).await, place.stdio(&[]).await);
    let add = with(&json!({ "tasks": [{ "id": "c", "title": "Tell", "retries_max": 1 }] }));
    assert_eq!(one.refused("task_add", add.clone()).await, "NotFound", "no board yet");
    let tasks =
        json!([{ "id": "a", "title": "Build", "metadata": { "os": "any" } }, { "id": "b", "title": "Test" }]);
    let board = one.ok("board_create", with(&json!({ "label": "Release", "tasks": tasks }))).await;
    assert_eq!(board["tasks"]["planned"], 2);
    assert_eq!(two.refused("board_create", with(&json!({}))).await, "AlreadyExists");
    assert_eq!(two.ok("task_add", add).await["added"], 1);

    let claim = |worker: &str, lease_ms: u64| with(&json!({ "worker": worker, "lease_ms": lease_ms }));
    let a = one.ok("task_claim", claim("w1", 60_000)).await;
    let b = two.ok("task_claim", claim("w2", 1)).await;
    assert_eq!((&a["task"]["id"], &b["task"]["id"]), (&json!("a"), &json!("b")));
    assert_eq!(a["task"]["lease"]["worker"], "w1");
    let step = |task: &str, token: &Value| with(&json!({ "task": task, "token": token, "result": "done" }));
    assert_eq!(
        two.refused("task_complete", step("a", &b["token"])).await,
        "Conflict",
        "the token of another"
    );
    let mut lease = step("a", &a["token"]);
    lease.as_object_mut().unwrap().remove("result");
    lease["lease_ms"] = json!(60_000);
    assert!(one.ok("task_renew", lease).await["expires_at"].is_string());
    let done = one.ok("task_complete", step("a", &a["token"])).await;
    assert_eq!((&done["status"], &done["result"]), (&json!("succeeded"), &json!("done")));

    tokio::time::sleep(Duration::from_millis(20)).await;
    let again = one.ok("task_claim", claim("w1", 60_000)).await;
    assert_eq!(again["task"]["id"], "b", "its lease has passed");
    assert_eq!(two.refused("task_fail", step("b", &b["token"])).await, "Conflict", "the old token");
    assert_eq!(one.ok("task_fail", step("b", &again["token"])).await["status"], "failed");
    let retried = one.ok("task_retry", with(&json!({ "task": "b" }))).await;
    assert_eq!((&retried["retried"], &retried["task"]["status"]), (&json!(true), &json!("planned")));

    let blocked = with(&json!({ "task": "c", "status": "blocked", "result": "waits" }));
    let blocked = two.ok("task_update", blocked).await;
    let stale = with(&json!({ "task": "c", "status": "planned", "if_revision": 0 }));
    assert_eq!(two.refused("task_update", stale).await, "Conflict");
    let fresh = with(&json!({ "task": "c", "status": "abandoned", "if_revision": blocked["revision"] }));
    assert_eq!(two.ok("task_update", fresh).await["status"], "abandoned");
    assert_eq!(two.refused("task_retry", with(&json!({ "task": "c" }))).await, "Conflict");

    let all = one.all("task_list", "tasks", with(&json!({ "limit": 1 }))).await;
    assert_eq!(all.iter().map(|task| task["id"].as_str().unwrap()).collect::<Vec<_>>(), ["a", "b", "c"]);
    let planned = one.all("task_list", "tasks", with(&json!({ "statuses": ["planned"] }))).await;
    assert_eq!(planned.len(), 1);
    let whole = one.ok("task_get", with(&json!({ "task": "a" }))).await;
    let texts: Value = serde_json::from_str(whole["json"].as_str().unwrap()).unwrap();
    assert_eq!(texts["result"], "done");
    assert_eq!(one.refused("task_get", with(&json!({ "task": "z" }))).await, "NotFound");
    let boards = one.ok("board_list", json!({ "conversation": "release" })).await;
    assert_eq!(boards["boards"][0]["tasks"]["abandoned"], 1);
    let last = one.ok("task_claim", claim("w1", 60_000)).await;
    assert_eq!(last["task"]["id"], "b");
    assert_eq!(two.ok("task_claim", claim("w2", 60_000)).await, json!({ "claimed": false }));
    assert_eq!(one.ok("board_delete", with(&json!({}))).await["existed"], true);
    assert_eq!(one.ok("board_delete", with(&json!({}))).await["existed"], false);
    one.end().await;
    two.end().await;
}
