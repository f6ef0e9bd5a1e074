//! Reading by author: how the database goes about it, and files from before it knew authors.

use larder_kernel::AgentRole;
use rusqlite::params;

use super::super::super::value::length;
use super::*;

const FIRST_VERSION: &str = include_str!("../../../../migrations/sqlite/0001_contracts.sql");

fn by(agent: &str, role: Option<&str>, text: &str) -> ChatMessage {
    let role = role.map(|role| AgentRole::new(role).unwrap());
    ChatMessage::assistant(text).with_author(AgentId::new(agent).unwrap(), role)
}

fn only(agent: &str) -> MessageFilter {
    MessageFilter::new().include_agent(AgentId::new(agent).unwrap())
}

async fn kept(store: &SqliteHistoryProvider, filter: &MessageFilter) -> Vec<i64> {
    let found = store.tail_matching(&thread(), filter, None, 100).await.unwrap();
    found.iter().map(|stored| stored.seq.get()).collect()
}

/// Writes messages into a file as the first version of the schema keeps them.
fn write_first_version(file: &std::path::Path, bodies: &[String]) {
    let old = Connection::open(file).unwrap();
    old.execute_batch(FIRST_VERSION).unwrap();
    old.execute_batch(
        "PRAGMA application_id = 0x4c726472; PRAGMA user_version = 1; PRAGMA foreign_keys = ON;
         INSERT INTO threads VALUES (7, 'test', 'agent', 'session', 1, 9, 0, 0, 0, NULL, 0, NULL);",
    )
    .unwrap();
    for (number, body) in bodies.iter().enumerate() {
        let (seq, run) = (length(number + 1), (number % 2 == 0).then_some("r"));
        let row = params![7, seq, run, Some(3).filter(|_| number == 1), 5, 5 * seq, body];
        old.execute("INSERT INTO messages VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)", row).unwrap();
        old.execute("UPDATE threads SET messages = messages + 1, bytes = bytes + 5", []).unwrap();
    }
}

#[tokio::test]
async fn a_file_of_the_first_version_is_upgraded_with_the_authors_of_its_messages() {
    let folder = TempDir::new().unwrap();
    let author = serde_json::json!({ "agent": "a", "role": "x" });
    let messages = [
        by("a", Some("x"), "nul \0 and \u{1f980}"),
        by("a \u{1}\"\\é", None, r#"{"author":{"agent":"a"}}"#),
        text(r#""author":{"agent":"a","role":"x"}"#),
        text("in its metadata").with_metadata(larder_kernel::Metadata::new().with("author", author)),
        by("agent", Some("y"), ""),
    ];
    let bodies: Vec<String> =
        messages.iter().map(|message| serde_json::to_string(message).unwrap()).collect();
    write_first_version(&folder.path().join("larder.db"), &bodies);
    let store = open(&folder).await;
    let stored = store.all_messages(&thread()).await.unwrap();
    assert!(stored.iter().map(|stored| &*stored.message).eq(&messages));
    assert_eq!(kept(&store, &only("a")).await, [1]);
    assert_eq!(kept(&store, &only("a \u{1}\"\\é")).await, [2]);
    assert_eq!(kept(&store, &only("agent")).await, [3, 4, 5]);
    let role = |role| MessageFilter::new().exclude_role(AgentRole::new(role).unwrap());
    assert_eq!(kept(&store, &role("x")).await, [2, 3, 4, 5]);
    assert_eq!(kept(&store, &role("y")).await, [1, 2, 3, 4]);
    // What else hangs on the rows is there, and the file goes on.
    let info = store.thread_info(&thread()).await.unwrap();
    assert_eq!((info.messages, info.bytes, info.last.get()), (5, 25, 9));
    assert_eq!(store.append(&thread(), by("a", None, "new")).await.unwrap().get(), 10);
    assert_eq!(store.clear_run(&thread(), &RunId::new("r").unwrap()).await.unwrap(), 3);
    assert_eq!(kept(&store, &only("a")).await, [10]);
    store.erase().await.unwrap();
    let left = |sql: &Connection| Ok(sql.query_row("SELECT count(*) FROM messages", [], |row| row.get(0))?);
    let left: i64 = store.engine.read("test.left", left).await.unwrap();
    assert_eq!(left, 0);
}

#[tokio::test]
async fn a_body_that_is_no_json_does_not_keep_a_file_from_being_upgraded() {
    let folder = TempDir::new().unwrap();
    let good = serde_json::to_string(&by("a", None, "good")).unwrap();
    write_first_version(&folder.path().join("larder.db"), &[r#"{"author":{"agent":"#.to_owned(), good]);
    let store = open(&folder).await;
    assert_eq!(kept(&store, &only("a")).await, [2]);
    assert_eq!(store.all_messages(&thread()).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn one_author_is_read_along_the_index_and_others_back_from_the_newest() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let plans = |sql: &Connection| {
        let plan = super::super::super::tests::plan;
        Ok([plan(sql, read::MATCHING_ONE)?, plan(sql, read::MATCHING)?])
    };
    let [one, any] = store.engine.read("test.plan", plans).await.unwrap();
    assert!(one.contains("messages_by_author (thread=? AND author=? AND seq<?)"), "{one}");
    assert!(any.contains("sqlite_autoindex_messages_1 (thread=? AND seq<?)"), "{any}");
    assert!(!one.contains("TEMP B-TREE") && !any.contains("TEMP B-TREE"), "{one}; {any}");
}
