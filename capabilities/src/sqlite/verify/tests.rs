//! Planted corruptions: each is found under its name, nothing is changed, and a repair brings back what
//! follows from other rows.

use std::path::{Path, PathBuf};
use std::time::Duration;

use larder_kernel::{
    AgentId, AppendOptions, BoardId, BucketName, ChatMessage, CollectionName, Document, DocumentId,
    Embedding, Entity, EntityId, EntityType, GraphStore, HistoryProvider, IdempotencyKey, Key, KeyValueStore,
    KeyValueStoreExt, Metadata, Namespace, NewBoard, NewTask, PutMode, Relationship, RelationshipId,
    RelationshipType, RunId, TaskId, TaskStore, Thread, VectorStore, WorkerId,
};
use tempfile::TempDir;

use super::super::Sqlite;
use super::*;
use crate::verify::Verified;

fn ns() -> Namespace {
    Namespace::new("n").unwrap()
}

/// Fills every table.
async fn filled(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("whole.db");
    let sqlite = Sqlite::open(SqliteConfig::new(&path)).await.unwrap();
    let (history, thread) = (sqlite.history(ns()), Thread::new("a", "s").unwrap());
    let say = |text: &str| {
        ChatMessage::user(text)
            .with_run(RunId::new("run").unwrap())
            .with_author(AgentId::new("writer").unwrap(), None)
    };
    let key = IdempotencyKey::new("once").unwrap();
    let options = AppendOptions::default().with_idempotency_key(key);
    history.append_many(&thread, vec![say("one"), say("two"), say("three")], options).await.unwrap();
    let cleared = Thread::new("a", "cleared").unwrap();
    history.append_many(&cleared, vec![say("x")], AppendOptions::default()).await.unwrap();
    history.clear(&cleared, None).await.unwrap();
    let (key_value, bucket) = (sqlite.key_value(ns()), BucketName::new("b").unwrap());
    for key in ["k1", "k2", "gone"] {
        key_value.set(&bucket, &Key::new(key).unwrap(), "v".into()).await.unwrap();
    }
    key_value.delete(&bucket, &Key::new("gone").unwrap(), None).await.unwrap();
    let document = |id: &str| {
        Document::new(DocumentId::new(id).unwrap(), "text")
            .with_embedding(Embedding::new(vec![1.0, 2.0]).unwrap())
            .with_metadata(Metadata::new().with("a", 1))
    };
    let (vectors, collection) = (sqlite.vectors(ns(), None), CollectionName::new("c").unwrap());
    vectors.put(&collection, vec![document("d1"), document("d2")], PutMode::Upsert).await.unwrap();
    let entity = |id: &str| Entity::new(EntityId::new(id).unwrap(), EntityType::new("t").unwrap());
    let graph = sqlite.graph(ns());
    graph.upsert_entities(vec![entity("e1"), entity("e2")]).await.unwrap();
    let (id, kind) = (RelationshipId::new("r").unwrap(), RelationshipType::new("knows").unwrap());
    let ends = (EntityId::new("e1").unwrap(), EntityId::new("e2").unwrap());
    graph.upsert_relationships(vec![Relationship::new(id, kind, ends.0, ends.1)]).await.unwrap();
    let (tasks, board) = (sqlite.tasks(ns()), BoardId::new("conv", "a").unwrap());
    let task = |id: &str| NewTask::new(TaskId::new(id).unwrap(), "title");
    tasks.create_task_list(&board, NewBoard::new(vec![task("t1"), task("t2")])).await.unwrap();
    tasks.claim(&board, &WorkerId::new("w").unwrap(), Duration::from_secs(3_600)).await.unwrap().unwrap();
    sqlite.close().await;
    path
}

async fn found(path: &Path) -> Verified {
    let (config, faults) = (SqliteConfig::new(path), Faults::default());
    verify(&config, &faults).await.unwrap();
    faults.take()
}

/// A corruption: the statements that plant it, the expected kind and place, and whether a repair removes it.
type Planted = (&'static str, FaultKind, &'static str, bool);

use FaultKind::{Counter, Foreign, Format, Index, Record, Reference};

const PLANTED: &[Planted] = &[
    ("UPDATE threads SET messages = messages + 1 WHERE session = 's'", Counter, "thread n a/s", true),
    ("UPDATE threads SET bytes = 0 WHERE session = 's'", Counter, "thread n a/s", true),
    ("UPDATE threads SET live = 0", Counter, "thread n a/s", true),
    ("UPDATE threads SET last_seq = 1, changed_seq = 0", Counter, "thread n a/s", true),
    ("UPDATE threads SET fence = -1 WHERE session = 's'", Record, "thread n a/s", false),
    ("DELETE FROM threads WHERE session = 's'", Reference, "message 2 of thread row 1", false),
    ("DELETE FROM threads WHERE session = 'cleared'", Reference, "event 2 of thread row 2", false),
    ("UPDATE messages SET body = x'00' WHERE seq = 2", Record, "message 2 of the thread n a/s", false),
    ("UPDATE messages SET bytes = bytes + 1 WHERE seq = 3", Record, "message 3 of the thread n a/s", false),
    ("UPDATE messages SET author = 'other' WHERE seq = 1", Record, "message 1 of the thread n a/s", false),
    ("UPDATE messages SET run = NULL WHERE seq = 1", Record, "message 1 of the thread n a/s", false),
    ("UPDATE append_keys SET thread = 99", Reference, "idempotency key once of thread row 99", false),
    (
        "INSERT INTO removal_keys VALUES (99, 'pop', x'00', 0, 1, '')",
        Reference,
        "key of a removal pop of thread row 99",
        false,
    ),
    (
        "INSERT INTO popped_messages VALUES (99, 'pop', 7, 0, x'00')",
        Reference,
        "popped message 7 of thread row 99",
        false,
    ),
    ("UPDATE kv_buckets SET last_revision = 0", Counter, "bucket n b", true),
    ("DELETE FROM kv_buckets", Reference, "key n b k1", false),
    ("UPDATE kv_entries SET revision = 2", Record, "bucket n b", false),
    ("UPDATE kv_tombstones SET key = 'k1'", Record, "key n b k1", false),
    ("UPDATE kv_entries SET key = '' WHERE key = 'k1'", Record, "key n b ", false),
    ("UPDATE collections SET documents = 9", Counter, "collection n c", true),
    ("DELETE FROM collections", Reference, "document d1 of collection row 1", false),
    ("DELETE FROM embeddings WHERE id = 'd1'", Reference, "document n c d1", false),
    ("DELETE FROM documents WHERE id = 'd2'", Reference, "embedding d2 of collection row 1", false),
    ("UPDATE embeddings SET embedding = x'00'", Record, "embedding of the document n c d1", false),
    ("UPDATE embeddings SET norm = 9", Record, "embedding of the document n c d1", false),
    ("UPDATE embeddings SET id = 'other' WHERE id = 'd2'", Index, "embedding of the document d2", true),
    ("UPDATE collections SET dimensions = 7", Record, "embedding of the document n c d1", false),
    ("UPDATE documents SET metadata = '{' WHERE id = 'd1'", Record, "document n c d1", false),
    ("UPDATE documents SET content = x'ff' WHERE id = 'd1'", Record, "document n c d1", false),
    ("UPDATE entities SET properties = '[' WHERE id = 'e1'", Record, "entity n e1", false),
    ("UPDATE entity_revisions SET last_revision = 0", Counter, "entity_revisions", true),
    ("UPDATE relationships SET revision = 9", Counter, "entity_revisions", true),
    ("UPDATE threads SET expires_ms = 9, sweep_ms = 10", Index, "thread n a/s", true),
    ("DELETE FROM entities WHERE id = 'e2'", Reference, "relationship n r", false),
    ("UPDATE entities SET namespace = 'other' WHERE id = 'e2'", Reference, "relationship n r", false),
    ("UPDATE tasks SET status = 'odd' WHERE id = 't2'", Record, "task n conv/a t2", false),
    ("UPDATE tasks SET lease_worker = 'w' WHERE id = 't2'", Record, "task n conv/a t2", false),
    ("DELETE FROM boards", Reference, "task t1 of board row 1", false),
    ("UPDATE boards SET last_position = 0", Counter, "board n conv/a", true),
    ("DROP INDEX messages_by_author", Index, "index messages_by_author", true),
    ("CREATE TABLE theirs (a)", Foreign, "table theirs", false),
    ("ALTER TABLE threads ADD COLUMN odd INTEGER", Format, "table threads", false),
    (
        "CREATE TEMP TABLE kept AS SELECT * FROM sqlite_schema WHERE name = 'kv_entries_by_revision';
         PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE name = 'kv_entries_by_revision';
         PRAGMA writable_schema = RESET; UPDATE kv_entries SET revision = 3 WHERE key = 'k1';
         PRAGMA writable_schema = ON; INSERT INTO sqlite_schema SELECT * FROM kept;
         PRAGMA writable_schema = OFF",
        Index,
        ".db",
        true,
    ),
];

#[tokio::test]
async fn each_planted_corruption_is_found_by_name_and_changes_nothing() {
    let folder = TempDir::new().unwrap();
    let whole = filled(&folder).await;
    let verified = found(&whole).await;
    assert_eq!(verified.faults, []);
    assert!(verified.records >= 15, "{}", verified.records);
    for (number, (sql, kind, place, repairable)) in PLANTED.iter().enumerate() {
        let path = folder.path().join(format!("{number}.db"));
        std::fs::copy(&whole, &path).unwrap();
        let planter = Connection::open(&path).unwrap();
        planter.execute_batch("PRAGMA foreign_keys = OFF").unwrap();
        planter.execute_batch(sql).unwrap();
        planter.close().unwrap();
        let before = std::fs::read(&path).unwrap();
        let verified = found(&path).await;
        let named = |fault: &Fault| fault.kind == *kind && fault.place.contains(place);
        let fault = verified.faults.iter().find(|fault| named(fault));
        let fault = fault.unwrap_or_else(|| panic!("{sql}: {:#?}", verified.faults));
        assert_eq!(fault.repair.is_some(), *repairable, "{sql}: {fault:?}");
        assert!(std::fs::read(&path).unwrap() == before, "{sql} was changed");
        if *repairable {
            let repaired = repair(&SqliteConfig::new(&path)).await.unwrap();
            assert_eq!(found(&path).await.faults, [], "{sql}");
            assert!(!found(&repaired.copy).await.faults.is_empty(), "{sql}: the copy is not the old state");
        }
    }
}

#[tokio::test]
async fn damaged_pages_and_a_damaged_header_are_findings() {
    let folder = TempDir::new().unwrap();
    let whole = filled(&folder).await;
    let bytes = std::fs::read(&whole).unwrap();
    let path = folder.path().join("damaged.db");
    let mut page = bytes.clone();
    page[4096 * 3..4096 * 3 + 64].fill(0xff);
    for damaged in [page, [&[0x20; 16], &bytes[16..]].concat()] {
        std::fs::write(&path, &damaged).unwrap();
        let faults = found(&path).await.faults;
        assert!(faults.iter().any(|fault| fault.place.contains("damaged.db")), "{faults:#?}");
        assert!(std::fs::read(&path).unwrap() == damaged);
    }
}

#[tokio::test]
async fn a_verification_sees_one_state_and_disturbs_no_writer() {
    let folder = TempDir::new().unwrap();
    let path = filled(&folder).await;
    let sqlite = Sqlite::open(SqliteConfig::new(&path)).await.unwrap();
    let (history, thread) = (sqlite.history(ns()), Thread::new("a", "s").unwrap());
    let writing = tokio::spawn(async move {
        for _ in 0..200 {
            let more = vec![ChatMessage::user("more")];
            history.append_many(&thread, more, AppendOptions::default()).await.unwrap();
        }
    });
    while !writing.is_finished() {
        assert_eq!(found(&path).await.faults, []);
    }
    writing.await.unwrap();
    assert_eq!(found(&path).await.faults, []);
}

#[cfg(all(feature = "fs", unix))]
#[tokio::test]
async fn a_message_whose_blob_is_gone_is_a_finding() {
    use larder_kernel::{BlobKey, BlobRef, BlobStoreExt};

    use crate::driver::{BackendUrl, Driver, StoresRequest};

    let folder = TempDir::new().unwrap();
    let url = format!("sqlite:{}", folder.path().join("blobs.db").display());
    let location = || super::super::SqliteDriver.read(&BackendUrl::parse(&url).unwrap()).unwrap();
    let connection = location().open().await.unwrap();
    let stores = connection.stores(&StoresRequest::new(ns())).await;
    let (history, blobs) = (stores.history().unwrap(), stores.blobs().unwrap());
    let key = |key: &str| BlobKey::new(key).unwrap();
    for name in ["kept", "gone"] {
        blobs.put_bytes(&key(name), "x".into()).await.unwrap();
        let message = ChatMessage::user("see").with_blob(BlobRef::new(key(name)));
        let thread = Thread::new("a", name).unwrap();
        history.append_many(&thread, vec![message], AppendOptions::default()).await.unwrap();
    }
    blobs.delete(&key("gone")).await.unwrap();
    connection.close().await;
    let faults = Faults::default();
    location().verify(&faults).await.unwrap();
    let found = faults.take().faults;
    let [fault] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((fault.kind, fault.place.as_str()), (Reference, "message 1 of the thread n a/gone"));
    assert!(fault.seen.contains("gone"), "{fault:?}");
}

#[tokio::test]
async fn a_repair_is_refused_while_the_database_is_open() {
    let folder = TempDir::new().unwrap();
    let path = filled(&folder).await;
    let sqlite = Sqlite::open(SqliteConfig::new(&path)).await.unwrap();
    let before = std::fs::read(&path).unwrap();
    let refused = repair(&SqliteConfig::new(&path)).await.unwrap_err();
    assert_eq!((refused.kind(), refused.outcome()), (ErrorKind::Conflict, Outcome::NotApplied));
    assert!(std::fs::read(&path).unwrap() == before);
    assert_eq!(
        std::fs::read_dir(folder.path())
            .unwrap()
            .filter(|entry| {
                entry.as_ref().unwrap().file_name().to_string_lossy().contains("before-repair")
            })
            .count(),
        0
    );
    sqlite.close().await;
    repair(&SqliteConfig::new(&path)).await.unwrap();
}
