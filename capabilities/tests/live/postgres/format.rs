//! Programs and databases of different format numbers.

use std::time::Duration;

use bytes::Bytes;
use larder_capabilities::postgres::{Postgres, PostgresConfig};
use larder_kernel::{
    BoardId, BucketName, ChatMessage, CollectionName, Document, DocumentId, Embedding, Entity, EntityId,
    EntityType, ErrorKind, GraphStore, HistoryProvider, HistoryProviderExt, Key, KeyValueStore,
    KeyValueStoreExt, KeyValueWrite, Namespace, NewBoard, NewTask, Outcome, PutMode, RelationshipId, Result,
    RunId, Seq, Store, TaskId, TaskStore, Thread, Ttl, VectorStore, WorkerId,
};
use sqlx::{Connection, PgConnection};

use super::{open, with_database};

/// The schema of the next release: one migration more.
const NEXT: &[&str] = &["CREATE TABLE larder.later (namespace text PRIMARY KEY)"];

async fn open_next(url: &str) -> Postgres {
    Postgres::open_as_later(PostgresConfig::from_url(url).unwrap(), NEXT).await.unwrap()
}

fn namespace() -> Namespace {
    Namespace::new("n").unwrap()
}

fn thread(session: &str) -> Thread {
    Thread::new("agent", session).unwrap()
}

fn board() -> BoardId {
    BoardId::new("c", "a").unwrap()
}

async fn append(postgres: &Postgres, session: &str) -> Result<()> {
    postgres.history(namespace()).append(&thread(session), ChatMessage::user("text")).await.map(drop)
}

/// Writes once in each way: the fast append to an existing thread, the full one, the functions, and the
/// transactions of several statements.
async fn write_in_each_way(postgres: &Postgres) -> Vec<Result<()>> {
    let (history, values) = (postgres.history(namespace()), postgres.key_value(namespace()));
    let (graph, tasks) = (postgres.graph(namespace()), postgres.tasks(namespace()));
    let (bucket, key) = (BucketName::new("b").unwrap(), Key::new("k").unwrap());
    let entity = Entity::new(EntityId::new("e").unwrap(), EntityType::new("t").unwrap());
    let task = NewTask::new(TaskId::new("t").unwrap(), "title");
    let (worker, lease) = (WorkerId::new("w").unwrap(), Duration::from_secs(60));
    let put = KeyValueWrite::put(key.clone(), "value", Default::default());
    let mut written = vec![
        append(postgres, "first").await,
        append(postgres, "first").await,
        history.fork(&thread("first"), &thread("second"), None, None).await.map(drop),
        history.set_ttl(&thread("first"), Some(Ttl::fixed(Duration::from_secs(60))), None).await,
        history.clear_run(&thread("first"), &RunId::new("r").unwrap(), None).await.map(drop),
        history.clear(&thread("first"), None).await.map(drop),
        history.subscribe(&thread("second"), Seq::ZERO).await.map(drop),
        history.erase().await,
        values.set(&bucket, &key, Bytes::from_static(b"value")).await.map(drop),
        values.write(&bucket, vec![put]).await.map(drop),
        values.delete_prefix(&bucket, "").await.map(drop),
        values.delete(&bucket, &key, None).await.map(drop),
        values.erase().await,
        graph.upsert_entities(vec![entity]).await.map(drop),
        graph.erase().await,
        tasks.create_task_list(&board(), NewBoard::new(vec![task])).await.map(drop),
        tasks.claim(&board(), &worker, lease).await.map(drop),
        tasks.erase().await,
    ];
    let embedding = Embedding::new(vec![1.0]).unwrap();
    let document = Document::new(DocumentId::new("d").unwrap(), "text").with_embedding(embedding);
    let vectors = postgres.vectors(namespace(), None).await;
    written.push(match vectors {
        Ok(vectors) => {
            let collection = CollectionName::new("c").unwrap();
            vectors.put(&collection, vec![document], PutMode::Upsert).await.map(drop)
        }
        Err(error) => Err(error),
    });
    written
}

/// Returns the rows of the tables that the calls write.
async fn rows(url: &str) -> Vec<String> {
    let mut admin = PgConnection::connect(url).await.unwrap();
    let mut found = Vec::new();
    for table in
        ["threads", "messages", "thread_events", "kv_buckets", "kv_entries", "entities", "boards", "tasks"]
    {
        let select = format!("SELECT '{table} ' || t::text FROM larder.{table} t ORDER BY 1");
        let rows: Vec<String> =
            sqlx::query_scalar(sqlx::AssertSqlSafe(select)).fetch_all(&mut admin).await.unwrap();
        found.extend(rows);
    }
    found
}

fn assert_refused(written: Result<()>, call: usize) {
    let error = written.unwrap_err();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::Unsupported, Outcome::NotApplied),
        "{call} {error}"
    );
    assert!(
        error.message().contains("has format 21; this release supports up to format 20"),
        "{call} {error}"
    );
    assert!(error.message().contains("`larder load` into a new database"), "{error}");
}

pub(crate) async fn a_database_of_a_newer_format_is_refused_by_number_and_not_changed() {
    with_database("newer", async |url: String| {
        let newer = open_next(&url).await;
        write_in_each_way(&newer).await.into_iter().for_each(Result::unwrap);
        append(&newer, "first").await.unwrap();
        newer.close().await;
        let before = rows(&url).await;
        for parameters in ["", "?migrate=check"] {
            let opened = open(&format!("{url}{parameters}")).await;
            assert_refused(opened.map(drop), 0);
        }
        assert_eq!(rows(&url).await, before);
    })
    .await;
}

pub(crate) async fn a_running_program_does_not_write_after_a_newer_one_upgraded_the_database() {
    with_database("upgraded", async |url: String| {
        let older = open(&url).await.unwrap();
        write_in_each_way(&older).await.into_iter().for_each(Result::unwrap);
        append(&older, "first").await.unwrap();
        append(&older, "first").await.unwrap();
        let newer = open_next(&url).await;
        append(&newer, "first").await.unwrap();
        let before = rows(&url).await;
        for (call, written) in write_in_each_way(&older).await.into_iter().enumerate() {
            assert_refused(written, call);
        }
        // Concurrent appends share a statement, which is refused for all of them.
        let sessions: Vec<String> = (0..40).map(|number| format!("s{}", number % 4)).collect();
        let together = sessions.iter().map(|session| append(&older, session));
        for written in futures_util::future::join_all(together).await {
            assert_refused(written, 100);
        }
        assert_eq!(rows(&url).await, before);
        // No refused connection returns to the pool inside its transaction.
        assert_eq!(newer.history(namespace()).tail(&thread("first"), None, 10).await.unwrap().len(), 3);
        let tasks = newer.tasks(namespace());
        let task = NewTask::new(TaskId::new("t").unwrap(), "title");
        tasks.create_task_list(&board(), NewBoard::new(vec![task])).await.unwrap();
    })
    .await;
}

/// A newer schema may have other functions and columns, so that a statement of a running program fails before
/// it compares the formats.
pub(crate) async fn a_running_program_is_refused_by_number_where_the_newer_schema_lacks_a_function() {
    with_database("lacking", async |url: String| {
        let older = open(&url).await.unwrap();
        append(&older, "first").await.unwrap();
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let newer =
            "DROP FUNCTION larder.clear_thread; ALTER TABLE larder.relationships RENAME COLUMN revision TO r";
        sqlx::raw_sql(newer).execute(&mut admin).await.unwrap();
        // A schema of the same format is damaged.
        let history = older.history(namespace());
        let damaged = history.clear(&thread("first"), None).await.unwrap_err();
        assert_eq!(damaged.kind(), ErrorKind::Unexpected, "{damaged}");
        let raise = "UPDATE larder.schema_version SET version = version + 1";
        sqlx::raw_sql(raise).execute(&mut admin).await.unwrap();
        assert_refused(history.clear(&thread("first"), None).await.map(drop), 0);
        let read =
            older.graph(namespace()).get_stored_relationships(&[RelationshipId::new("r").unwrap()]).await;
        assert_refused(read.map(drop), 1);
        assert_eq!(history.tail(&thread("first"), None, 10).await.unwrap().len(), 1);
    })
    .await;
}

/// Writers and an upgrade meet: each write is either whole before the upgrade, or refused.
pub(crate) async fn an_upgrade_waits_for_the_writes_that_have_begun() {
    with_database("meeting", async |url: String| {
        let older = open(&url).await.unwrap();
        append(&older, "first").await.unwrap();
        let writers = (0..8).map(|writer| {
            let older = older.clone();
            async move {
                let mut acknowledged = 0_u64;
                loop {
                    let session = if writer % 2 == 0 { "first".to_owned() } else { format!("s{writer}") };
                    match append(&older, &session).await {
                        Ok(()) => acknowledged += 1,
                        Err(error) => {
                            assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
                            return acknowledged;
                        }
                    }
                }
            }
        });
        let upgrade = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let newer = open_next(&url).await;
            let mut admin = PgConnection::connect(&url).await.unwrap();
            let count = "SELECT count(*) FROM larder.messages";
            let at_upgrade: i64 = sqlx::query_scalar(count).fetch_one(&mut admin).await.unwrap();
            (newer, at_upgrade)
        };
        let (acknowledged, (newer, at_upgrade)) =
            futures_util::future::join(futures_util::future::join_all(writers), upgrade).await;
        let acknowledged: u64 = acknowledged.into_iter().sum();
        assert_eq!(u64::try_from(at_upgrade).unwrap(), acknowledged + 1);
        assert!(acknowledged > 0);
        append(&newer, "first").await.unwrap();
    })
    .await;
}
