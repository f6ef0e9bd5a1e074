//! Verification of a database: planted corruptions, each found by name.

use larder_capabilities::driver::{BackendUrl, Driver};
use larder_capabilities::postgres::PostgresDriver;
use larder_capabilities::verify::FaultKind::{Checksum, Counter, Foreign, Format, Index, Record, Reference};
use larder_kernel::{ChatMessage, ErrorKind, HistoryProvider, HistoryProviderExt, Outcome, Thread};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::connections::run;
use super::outage::namespace;
use super::{open, url_of, with_database};
use crate::filled::{Planted, assert_found, fill, found};

const PLANTED: &[Planted<&str>] = &[
    ("UPDATE larder.threads SET messages = messages + 1 WHERE session = 's'", Counter, "thread n a/s"),
    ("UPDATE larder.threads SET bytes = 0 WHERE session = 's'", Counter, "thread n a/s"),
    ("UPDATE larder.threads SET last_seq = 1, changed_seq = 0", Counter, "thread n a/s"),
    ("UPDATE larder.threads SET changed_seq = 99 WHERE session = 's'", Counter, "thread n a/s"),
    ("UPDATE larder.threads SET sweep_ms = NULL WHERE session = 'ending'", Index, "thread n a/ending"),
    ("UPDATE larder.threads SET fence = -1 WHERE session = 's'", Record, "thread n a/s"),
    ("DELETE FROM larder.threads WHERE session = 's'", Reference, "message 2 of thread row"),
    ("DELETE FROM larder.threads WHERE session = 'cleared'", Reference, "event 3 of thread row"),
    ("UPDATE larder.messages SET body = '\\x00' WHERE seq = 2", Record, "message 2 of the thread n a/s"),
    (
        "UPDATE larder.messages SET body = set_byte(body, length(body) - 9, 0) WHERE length(body) > 40 AND \
         seq = 3",
        Record,
        "message 3 of the thread n a/s",
    ),
    ("UPDATE larder.messages SET bytes = bytes + 1 WHERE seq = 3", Record, "message 3 of the thread n a/s"),
    ("UPDATE larder.messages SET author = 'other'", Record, "message 1 of the thread n a/s"),
    ("UPDATE larder.messages SET run = NULL", Record, "message 1 of the thread n a/s"),
    ("UPDATE larder.thread_events SET seq = 2 WHERE kind < 6", Reference, "event 2 of thread row"),
    ("UPDATE larder.append_keys SET thread = 99", Reference, "idempotency key once of thread row 99"),
    (
        "INSERT INTO larder.removal_keys VALUES ('n', 99, 'pop', '', 0, 1, '{}')",
        Reference,
        "key of a removal pop of thread row 99",
    ),
    (
        "INSERT INTO larder.popped_messages VALUES ('n', 99, 'pop', 7, 0, '')",
        Reference,
        "popped message 7 of thread row 99",
    ),
    ("UPDATE larder.kv_buckets SET last_revision = 0", Counter, "bucket n b"),
    ("UPDATE larder.kv_buckets SET sweep_ms = NULL", Index, "bucket n b"),
    ("DELETE FROM larder.kv_buckets", Reference, "key n b k1"),
    ("UPDATE larder.kv_entries SET revision = 2", Record, "bucket n b"),
    ("UPDATE larder.kv_tombstones SET key = 'k1'", Record, "key n b k1"),
    ("UPDATE larder.kv_entries SET key = '' WHERE key = 'k1'", Record, "key n b "),
    ("UPDATE larder.blobs SET bytes = 'smalL' WHERE key = 'small'", Checksum, "blob n small"),
    ("UPDATE larder.blobs SET bytes = NULL WHERE key = 'small'", Record, "blob n small"),
    ("UPDATE larder.blobs SET metadata = '[' WHERE key = 'small'", Record, "blob n small"),
    ("UPDATE larder.blobs SET key = 'a//b' WHERE key = 'small'", Record, "blob n a//b"),
    ("UPDATE larder.blobs SET version = 0 WHERE key = 'small'", Record, "blob n small"),
    ("UPDATE larder.blobs SET version = 99 WHERE key = 'small'", Counter, "sequence blob_numbers"),
    ("UPDATE larder.blobs SET size = size - 262144 WHERE key = 'large'", Record, "blob n large"),
    ("UPDATE larder.blobs SET content = NULL WHERE key = 'large'", Record, "blob n large"),
    ("UPDATE larder.blobs SET crc = 0 WHERE key = 'large'", Checksum, "blob n large"),
    (
        "DELETE FROM larder.blobs WHERE content IS NOT NULL; UPDATE larder.blob_chunks SET content = 2",
        Reference,
        "content 2 in n",
    ),
    ("DELETE FROM larder.blob_chunks WHERE chunk = 1", Record, "blob n copy"),
    ("DELETE FROM larder.blob_chunks", Record, "blob n copy"),
    (
        "UPDATE larder.blob_chunks SET bytes = set_byte(bytes, 9, 255 - get_byte(bytes, 9)) WHERE chunk = 2",
        Checksum,
        "chunk 2 of the blob n copy",
    ),
    ("UPDATE larder.blob_chunks SET chunk = chunk + 10", Checksum, "chunk 12 of the blob n copy"),
    ("DELETE FROM larder.collections", Reference, "document n c d1"),
    ("UPDATE larder.documents SET embedding = '\\x00' WHERE id = 'd1'", Record, "document n c d1"),
    ("UPDATE larder.documents SET metadata = '{' WHERE id = 'd1'", Record, "document n c d1"),
    ("UPDATE larder.documents SET content = '\\xff' WHERE id = 'd1'", Record, "document n c d1"),
    (
        "UPDATE larder.documents SET direction = '[1,0]' WHERE id = 'd2'",
        Index,
        "direction of the document n c d2",
    ),
    ("UPDATE larder.collections SET dimensions = 7", Record, "document n c d1"),
    ("UPDATE larder.entities SET properties = '[' WHERE id = 'e1'", Record, "entity n e1"),
    ("UPDATE larder.entities SET revision = 0 WHERE id = 'e1'", Record, "entity n e1"),
    ("UPDATE larder.entities SET revision = 999 WHERE id = 'e1'", Counter, "entity_revisions"),
    ("UPDATE larder.relationships SET revision = 0", Record, "relationship n r"),
    ("UPDATE larder.relationships SET revision = 999", Counter, "entity_revisions"),
    ("DELETE FROM larder.entities WHERE id = 'e2'", Reference, "relationship n r"),
    ("UPDATE larder.tasks SET status = 'odd' WHERE id = 't2'", Record, "task n conv/a t2"),
    ("UPDATE larder.tasks SET lease_worker = 'w' WHERE id = 't2'", Record, "task n conv/a t2"),
    ("UPDATE larder.tasks SET retries = -1 WHERE id = 't2'", Record, "task n conv/a t2"),
    ("DELETE FROM larder.boards", Reference, "task n conv/a t1"),
    ("UPDATE larder.boards SET last_position = 0", Counter, "board n conv/a"),
    ("UPDATE larder.boards SET label = '\\xff'", Record, "board n conv/a"),
    ("DROP INDEX larder.messages_by_author", Index, "index messages_by_author"),
    (
        "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'larder.tasks_planned'::regclass",
        Index,
        "index tasks_planned",
    ),
    ("ALTER TABLE larder.tasks DROP CONSTRAINT tasks_board", Format, "constraint tasks_board"),
    ("DROP FUNCTION larder.claim_tasks", Format, "function claim_tasks"),
    ("ALTER TABLE larder.kv_entries DROP COLUMN value", Record, "kv_entries"),
    ("CREATE TABLE larder.theirs (a int)", Foreign, "table theirs"),
];

/// Returns the state of every table.
async fn everything(url: &str) -> Vec<(String, String)> {
    let mut admin = PgConnection::connect(url).await.unwrap();
    let tables =
        "SELECT relname::text FROM pg_class WHERE relnamespace = 'larder'::regnamespace AND relkind = 'r'
        ORDER BY 1";
    let tables: Vec<String> = sqlx::query_scalar(tables).fetch_all(&mut admin).await.unwrap();
    let mut all = Vec::new();
    for table in tables {
        let rows = format!(
            "SELECT coalesce(string_agg(t::text || xmin, ' ' ORDER BY t::text), '') FROM larder.{table} t"
        );
        let rows = sqlx::query_scalar(AssertSqlSafe(rows)).fetch_one(&mut admin).await.unwrap();
        all.push((table, rows));
    }
    admin.close().await.unwrap();
    all
}

/// Runs a test on a copy of a database.
async fn with_copy(url: &str, test: impl AsyncFnOnce(String)) {
    let mut admin = PgConnection::connect(&url_of("postgres")).await.unwrap();
    let name = url.rsplit_once('/').unwrap().1;
    let copy = format!("{name}_copy");
    let make = format!("CREATE DATABASE {copy} TEMPLATE {name}");
    sqlx::raw_sql(AssertSqlSafe(make)).execute(&mut admin).await.unwrap();
    test(url_of(&copy)).await;
    let remove = format!("DROP DATABASE {copy} WITH (FORCE)");
    sqlx::raw_sql(AssertSqlSafe(remove)).execute(&mut admin).await.unwrap();
}

async fn plant(url: &str, sql: &str) {
    let mut admin = PgConnection::connect(url).await.unwrap();
    run(&mut admin, "SET session_replication_role = replica").await;
    run(&mut admin, sql).await;
    admin.close().await.unwrap();
}

pub(crate) async fn each_planted_corruption_is_found_by_name_and_changes_nothing() {
    with_database("verify", async |url: String| {
        fill(&PostgresDriver, &url, "n").await;
        let verified = found(&PostgresDriver, &url).await;
        assert_eq!(verified.faults, []);
        assert!(verified.records >= 20, "{}", verified.records);
        for (sql, kind, place) in PLANTED {
            with_copy(&url, async |url| {
                plant(&url, sql).await;
                let before = everything(&url).await;
                assert_found(&found(&PostgresDriver, &url).await, *kind, place, sql);
                assert_eq!(everything(&url).await, before, "{sql}");
            })
            .await;
        }
    })
    .await;
}

/// Damage of everything that follows from other rows.
const REPAIRABLE: &str =
    "UPDATE larder.threads SET messages = 9, bytes = 9, last_seq = 0, changed_seq = 0, sweep_ms = NULL;
    UPDATE larder.kv_buckets SET last_revision = 0, sweep_ms = NULL;
    UPDATE larder.boards SET last_position = 0, last_revision = 0, last_token = 0;
    SELECT setval('larder.entity_revisions', 1, false);
    SELECT setval('larder.blob_numbers', 1, false); DROP INDEX larder.messages_by_author;
    UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'larder.tasks_planned'::regclass";

pub(crate) async fn a_repair_dumps_first_and_is_refused_while_the_database_is_in_use() {
    with_database("repair", async |url: String| {
        fill(&PostgresDriver, &url, "n").await;
        plant(&url, REPAIRABLE).await;
        let faults = found(&PostgresDriver, &url).await.faults;
        assert!(faults.iter().filter(|fault| fault.repair.is_some()).count() >= 12, "{faults:#?}");
        let location = PostgresDriver.read(&BackendUrl::parse(&url).unwrap()).unwrap();
        let other = PgConnection::connect(&url).await.unwrap();
        let before = everything(&url).await;
        let refused = location.repair().await.unwrap_err();
        assert_eq!((refused.kind(), refused.outcome()), (ErrorKind::Conflict, Outcome::NotApplied));
        assert_eq!(everything(&url).await, before);
        other.close().await.unwrap();
        // A session ends a moment after its client.
        let repaired = loop {
            match location.repair().await {
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                }
                repaired => break repaired.unwrap(),
            }
        };
        assert_eq!(found(&PostgresDriver, &url).await.faults, []);
        let archive = std::fs::read_to_string(repaired.copy.join("1.larder")).unwrap();
        assert!(archive.contains("summary"), "{archive}");
        std::fs::remove_dir_all(&repaired.copy).unwrap();
    })
    .await;
}

pub(crate) async fn a_verification_sees_one_state_and_disturbs_no_writer() {
    with_database("verify_writers", async |url: String| {
        fill(&PostgresDriver, &url, "n").await;
        let writer = open(&url).await.unwrap();
        let (history, thread) = (writer.history(namespace()), Thread::new("a", "s").unwrap());
        let writing = tokio::spawn(async move {
            for number in 0..300 {
                history.append(&thread, ChatMessage::user("more")).await.unwrap();
                if number % 50 == 49 {
                    history.clear(&thread, None).await.unwrap();
                }
            }
        });
        let mut looks = 0;
        while !writing.is_finished() {
            assert_eq!(found(&PostgresDriver, &url).await.faults, []);
            looks += 1;
        }
        writing.await.unwrap();
        assert!(looks > 2, "{looks}");
        let absent = PostgresDriver.read(&BackendUrl::parse(&url_of("postgres")).unwrap()).unwrap();
        let error = absent.verify(&larder_capabilities::verify::Faults::default()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
    })
    .await;
}
