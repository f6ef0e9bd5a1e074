//! Conversations that a program wrote, read and searched by a model.

use std::sync::Arc;

use larder_kernel::{AgentId, AgentRole, AppendOptions, ChatMessage, Thread, ToolCall, ToolResult};
use serde_json::json;

use super::client::{Client, Place};

pub(crate) async fn run(place: Arc<Place>) {
    let history = place.stores().await.history().unwrap();
    for session in ["s1", "s2", "s%2F3/ü"] {
        let thread = Thread::new("assistant", session).unwrap();
        let messages = (0..30).map(|n| ChatMessage::user(format!("{session} says {n}"))).collect();
        history.append_many(&thread, messages, AppendOptions::default()).await.unwrap();
    }
    let shared = Thread::new("team", "s1").unwrap();
    let author = |text: &str, agent: &str, role: &str| {
        ChatMessage::assistant(text)
            .with_author(AgentId::new(agent).unwrap(), Some(AgentRole::new(role).unwrap()))
    };
    let calls =
        ChatMessage::assistant("").with_tool_call(ToolCall::new("c", "weather", r#"{"city":"Oslo"}"#));
    let answers = ChatMessage::tool([ToolResult::new("c", "Snow in OSLO, -3 °C")]);
    for message in [author("Plan", "ann", "planner"), author("Do", "bob", "worker"), calls, answers] {
        history.append(&shared, message).await.unwrap();
    }
    history.append(&shared, ChatMessage::user("ü".repeat(400_000))).await.unwrap();

    let client = place.stdio(&[]).await;
    listed(&client).await;
    read(&client).await;
    searched(&client).await;
    whole(&client).await;
    client.end().await;
}

async fn listed(client: &Client) {
    let all = client.all("conversation_list", "conversations", json!({ "limit": 1 })).await;
    assert_eq!(all.len(), 4);
    assert_eq!((&all[0]["agent"], &all[0]["messages"]), (&json!("assistant"), &json!(30)));
    let team = client.ok("conversation_list", json!({ "agent": "team" })).await;
    assert_eq!(team["conversations"].as_array().unwrap().len(), 1);
}

async fn read(client: &Client) {
    let thread = json!({ "agent": "assistant", "session": "s%2F3/ü", "limit": 20 });
    let newest = client.ok("conversation_read", thread.clone()).await;
    let messages = newest["messages"].as_array().unwrap();
    assert_eq!(messages.len(), 20);
    assert_eq!(messages[19]["text"], "s%2F3/ü says 29");
    let mut older = thread.clone();
    older["before"] = newest["older"].clone();
    let older = client.ok("conversation_read", older).await;
    assert_eq!(older["messages"].as_array().unwrap().len(), 10);
    assert!(older.get("older").is_none(), "the beginning");
    let mut after = thread;
    after["after"] = json!(0);
    let mut read = Vec::new();
    loop {
        let page = client.ok("conversation_read", after.clone()).await;
        read.extend(page["messages"].as_array().unwrap().iter().map(|message| message["seq"].clone()));
        match page.get("newer") {
            Some(newer) => after["after"] = newer.clone(),
            None => break,
        }
    }
    assert_eq!(read, (1..=30).map(|seq| json!(seq)).collect::<Vec<_>>());
    let nothing = client.ok("conversation_read", json!({ "agent": "nobody", "session": "s" })).await;
    assert_eq!(nothing["messages"], json!([]));
}

async fn searched(client: &Client) {
    let found = client.all("conversation_search", "found", json!({ "query": "SAYS 7" })).await;
    assert_eq!(found.len(), 3, "{found:?}");
    let found = client
        .all("conversation_search", "found", json!({ "query": "says 2", "agent": "assistant", "limit": 2 }))
        .await;
    assert_eq!(found.len(), 33, "2 and 20 to 29, in three conversations");
    let found = client.ok("conversation_search", json!({ "query": "oslo" })).await;
    let parts: Vec<_> = found["found"].as_array().unwrap().iter().map(|hit| hit["part"].clone()).collect();
    assert_eq!(parts, [json!("tool_result"), json!("tool_call")], "the newest first");
    let by_role = json!({ "agent": "team", "session": "s1", "author_roles": ["worker"] });
    let found = client.ok("conversation_search", by_role).await;
    assert_eq!(found["found"][0]["excerpt"], "Do");
    assert_eq!(found["found"].as_array().unwrap().len(), 1);
    let nobody = client.ok("conversation_search", json!({ "query": "no such words" })).await;
    assert_eq!((&nobody["found"], nobody.get("next_cursor")), (&json!([]), None));
}

/// A message that is larger than any reply is truncated, and can be read in parts.
async fn whole(client: &Client) {
    let shown = client.ok("conversation_read", json!({ "agent": "team", "session": "s1", "limit": 1 })).await;
    let message = &shown["messages"][0];
    assert_eq!(message["truncated"], true);
    let mut read = String::new();
    let mut arguments = json!({ "agent": "team", "session": "s1", "seq": message["seq"] });
    loop {
        let piece = client.ok("conversation_message", arguments.clone()).await;
        read.push_str(piece["json"].as_str().unwrap());
        match piece.get("next_offset") {
            Some(next) => arguments["offset"] = next.clone(),
            None => break,
        }
    }
    let message: ChatMessage = serde_json::from_str(&read).unwrap();
    assert_eq!(message.text, "ü".repeat(400_000));
    let absent = json!({ "agent": "team", "session": "s1", "seq": 99 });
    assert_eq!(client.refused("conversation_message", absent).await, "NotFound");
}
