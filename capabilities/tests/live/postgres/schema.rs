//! The schema: its versions, its partitions, and its size on disk.

use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use larder_kernel::{
    AgentId, AppendOptions, BucketName, ChatMessage, CollectionName, Document, DocumentId, Embedding, Entity,
    EntityId, ErrorKind, GraphStore, HistoryProvider, HistoryProviderExt, Key, KeyValueStore,
    KeyValueStoreExt, MessageFilter, Namespace, PutMode, SearchRequest, Store, Thread, VectorStore,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use super::{open, with_database};

/// The statements that create the schema, file by file.
pub(crate) const BASELINE: &str = concat!(
    include_str!("../../../migrations/postgres/0012_baseline_1_threads.sql"),
    include_str!("../../../migrations/postgres/0012_baseline_2_messages.sql"),
    include_str!("../../../migrations/postgres/0012_baseline_3_key_value.sql"),
    include_str!("../../../migrations/postgres/0012_baseline_4_vectors_graph_tasks.sql"),
    include_str!("../../../migrations/postgres/0013_generations.sql"),
    include_str!("../../../migrations/postgres/0014_key_value_batches.sql"),
    include_str!("../../../migrations/postgres/0015_append_if_last.sql"),
    include_str!("../../../migrations/postgres/0016_removals.sql"),
    include_str!("../../../migrations/postgres/0017_fences.sql"),
    include_str!("../../../migrations/postgres/0018_relationship_revisions.sql"),
    include_str!("../../../migrations/postgres/0019_blobs.sql"),
    include_str!("../../../migrations/postgres/0020_message_updates.sql"),
);
const DOCS: &str = include_str!("../../../../guide/src/postgres-partitions.md");

async fn run(connection: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await.unwrap();
}

pub(crate) async fn eight_openings_of_a_new_database_migrate_it_once() {
    with_database("migrate", async |url: String| {
        let error = open(&format!("{url}?migrate=check")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
        let opened = futures_util::future::join_all((0..8).map(|_| open(&url))).await;
        for postgres in opened {
            postgres.unwrap().close().await;
        }
        open(&format!("{url}?migrate=check")).await.unwrap().close().await;
        let mut admin = PgConnection::connect(&url).await.unwrap();
        run(&mut admin, "UPDATE larder.schema_version SET version = 1000").await;
        let error = open(&url).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    })
    .await;
}

/// The variable with the database that a process started by a test opens.
pub(crate) const OPEN: &str = "LARDER_TEST_OPEN";
/// The variable with the file whose existence is the start signal.
const SIGN: &str = "LARDER_TEST_SIGN";
const PROCESSES: usize = 8;

/// Runs such a process: it reports that it is ready, waits for the signal, opens the database and writes.
pub(crate) fn open_when_told(url: &str) -> ExitCode {
    let sign = PathBuf::from(std::env::var_os(SIGN).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::fs::write(sign.with_extension(std::process::id().to_string()), []).unwrap();
    let since = Instant::now();
    while !sign.exists() {
        assert!(since.elapsed() < Duration::from_secs(60), "no sign was made");
    }
    runtime.block_on(async {
        let postgres = open(url).await.unwrap();
        let (bucket, key) =
            (BucketName::new("b").unwrap(), Key::new(std::process::id().to_string()).unwrap());
        let values = postgres.key_value(Namespace::new("n").unwrap());
        values.set(&bucket, &key, "written".into()).await.unwrap();
        postgres.vectors(Namespace::new("n").unwrap(), None).await.unwrap();
        postgres.close().await;
    });
    ExitCode::SUCCESS
}

/// Real processes with separate connections find an empty database at the same moment. The default isolation
/// level of the database is REPEATABLE READ, so its transactions see no newer data.
pub(crate) async fn eight_processes_migrate_a_new_database_once() {
    with_database("processes", async |url: String| {
        // The migration leaves a mark each time that it creates the schema.
        let mut admin = PgConnection::connect(&url).await.unwrap();
        run(
            &mut admin,
            "CREATE TABLE public.made (object text);
             CREATE FUNCTION public.mark() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
                INSERT INTO public.made SELECT object_identity FROM pg_event_trigger_ddl_commands()
                    WHERE command_tag IN ('CREATE SCHEMA', 'CREATE TABLE'); END $$;
             CREATE EVENT TRIGGER mark ON ddl_command_end EXECUTE FUNCTION public.mark();
             DO $$ BEGIN EXECUTE format(
                'ALTER DATABASE %I SET default_transaction_isolation TO ''repeatable read''', \
                current_database());
             END $$",
        )
        .await;
        let folder = tempfile::tempdir().unwrap();
        let sign = folder.path().join("sign");
        let start = || {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.env(OPEN, &url).env(SIGN, &sign).spawn().unwrap()
        };
        let mut processes: Vec<Child> = (0..PROCESSES).map(|_| start()).collect();
        while std::fs::read_dir(folder.path()).unwrap().count() < PROCESSES {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        std::fs::write(&sign, []).unwrap();
        let ended: Vec<bool> =
            processes.iter_mut().map(|process| process.wait().unwrap().success()).collect();
        assert_eq!(ended, [true; PROCESSES]);
        let twice: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM (SELECT FROM public.made GROUP BY object HAVING count(*) > 1) AS twice",
        )
        .fetch_one(&mut admin)
        .await
        .unwrap();
        let (made, versions): (i64, i64) = sqlx::query_as(
            "SELECT (SELECT count(*) FROM public.made), (SELECT count(*) FROM larder.schema_version)",
        )
        .fetch_one(&mut admin)
        .await
        .unwrap();
        assert!(made > 5 && twice == 0, "{made} made, {twice} of them more than once");
        assert_eq!(versions, 1);
        let written: i64 =
            sqlx::query_scalar("SELECT count(*) FROM larder.kv_entries").fetch_one(&mut admin).await.unwrap();
        assert_eq!(usize::try_from(written).unwrap(), PROCESSES);
        let deadlocks: i64 =
            sqlx::query_scalar("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
                .fetch_one(&mut admin)
                .await
                .unwrap();
        assert_eq!(deadlocks, 0);
    })
    .await;
}

fn by(agent: &str, text: &str) -> ChatMessage {
    ChatMessage::assistant(text).with_author(AgentId::new(agent).unwrap(), None)
}

/// A filter of one author uses the index. Any other filter scans back from the newest message, without a sort
/// of the thread.
pub(crate) async fn a_long_thread_is_read_by_author_without_reading_it_all() {
    with_database("authors", async |url: String| {
        let postgres = open(&url).await.unwrap();
        let history = postgres.history(Namespace::new("n").unwrap());
        let thread = Thread::new("agent", "s").unwrap();
        history.append(&thread, by("a", "rare")).await.unwrap();
        for _ in 0..20 {
            let often = vec![ChatMessage::user("often"); 1_000];
            history.append_many(&thread, often, AppendOptions::default()).await.unwrap();
        }
        let mut admin = PgConnection::connect(&url).await.unwrap();
        run(&mut admin, "ANALYZE larder.messages; SELECT pg_stat_force_next_flush()").await;
        let scanned = "SELECT coalesce(sum(idx_tup_fetch + seq_tup_read), 0)::bigint
             FROM pg_stat_user_tables WHERE relid = 'larder.messages'::regclass";
        postgres.close().await;
        let settled = async |admin: &mut PgConnection| -> i64 {
            tokio::time::sleep(Duration::from_millis(200)).await;
            run(admin, "SELECT pg_stat_clear_snapshot()").await;
            sqlx::query_scalar(scanned).fetch_one(admin).await.unwrap()
        };
        let before = settled(&mut admin).await;
        let postgres = open(&url).await.unwrap();
        let history = postgres.history(Namespace::new("n").unwrap());
        let only = |agent: &str| MessageFilter::new().include_agent(AgentId::new(agent).unwrap());
        let rare = history.tail_matching(&thread, &only("a"), None, 5).await.unwrap();
        assert_eq!(rare.iter().map(|stored| stored.seq.get()).collect::<Vec<_>>(), [1]);
        let newest = history.tail_matching(&thread, &only("agent"), None, 5).await.unwrap();
        assert_eq!(newest.len(), 5);
        postgres.close().await;
        let looked_at = settled(&mut admin).await - before;
        assert!(looked_at < 100, "{looked_at} messages were looked at");
    })
    .await;
}

/// The key of every table except the version's begins with the namespace, and so does every unique index.
pub(crate) async fn every_key_begins_with_the_namespace() {
    with_database("keys", async |url: String| {
        open(&url).await.unwrap().vectors(Namespace::new("n").unwrap(), None).await.unwrap();
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let others: Vec<String> = sqlx::query_scalar(
            "SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'larder'::regnamespace
                AND c.relkind IN ('r', 'p') AND c.relname <> 'schema_version'
                AND (NOT EXISTS (SELECT FROM pg_index x WHERE x.indrelid = c.oid AND x.indisprimary)
                    OR EXISTS (SELECT FROM pg_index x WHERE x.indrelid = c.oid AND x.indisunique AND \
                    'namespace' <>
                        (SELECT a.attname FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum = \
                        x.indkey[0])))",
        )
        .fetch_all(&mut admin)
        .await
        .unwrap();
        assert_eq!(others, Vec::<String>::new());
    })
    .await;
}

/// The statements of the page on partitions, run as the page shows them.
fn partitioned() -> String {
    let tables = BASELINE.lines().map(|line| match line {
        ");" | ") WITH (fillfactor = 70);" => ") PARTITION BY HASH (namespace);",
        other => other,
    });
    let tables: Vec<&str> = tables.collect();
    let (_, rest) = DOCS.split_once("```sql\n").unwrap();
    let (partitions, _) = rest.split_once("```").unwrap();
    format!("BEGIN; CREATE SCHEMA larder;\n{}\n{partitions}COMMIT;", tables.join("\n"))
}

pub(crate) async fn tables_may_be_partitioned_by_the_namespace() {
    with_database("partitioned", async |url: String| {
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let version: i32 = sqlx::query_scalar("SELECT current_setting('server_version_num')::int")
            .fetch_one(&mut admin)
            .await
            .unwrap();
        if version < 170_000 {
            // Partitioned tables have no identity columns before version 17, as the page says.
            return;
        }
        run(&mut admin, &partitioned()).await;
        open(&format!("{url}?migrate=check")).await.unwrap().close().await;
        let postgres = open(&format!("{url}?vector_index=hnsw")).await.unwrap();
        let space = CollectionName::new("space").unwrap();
        let thread = Thread::new("a", "s").unwrap();
        let (bucket, key) = (BucketName::new("b").unwrap(), Key::new("k").unwrap());
        for number in 0..12 {
            let namespace = Namespace::new(format!("n{number}")).unwrap();
            let history = postgres.history(namespace.clone());
            for text in ["one", "two"] {
                history.append(&thread, ChatMessage::user(text)).await.unwrap();
            }
            assert_eq!(history.tail(&thread, None, 10).await.unwrap().len(), 2);
            let values = postgres.key_value(namespace.clone());
            values.set(&bucket, &key, "first".into()).await.unwrap();
            values.set(&bucket, &key, "second".into()).await.unwrap();
            assert_eq!(values.get(&bucket, &key).await.unwrap().unwrap().value, "second");
            let graph = postgres.graph(namespace.clone());
            let entity =
                Entity::new(EntityId::new("e").unwrap(), larder_kernel::EntityType::new("t").unwrap());
            graph.upsert_entities(vec![entity]).await.unwrap();
            let vectors = postgres.vectors(namespace, None).await.unwrap();
            let embedding = Embedding::new(vec![1.0, 0.5]).unwrap();
            let document =
                Document::new(DocumentId::new("d").unwrap(), "text").with_embedding(embedding.clone());
            vectors.put(&space, vec![document], PutMode::Upsert).await.unwrap();
            assert!(number > 1 || vectors.build_index(&space).await.unwrap());
            assert_eq!(vectors.search(&space, &SearchRequest::new(embedding)).await.unwrap().len(), 1);
            if number % 3 == 0 {
                history.erase().await.unwrap();
                values.erase().await.unwrap();
                graph.erase().await.unwrap();
                vectors.erase().await.unwrap();
                assert_eq!(history.tail(&thread, None, 10).await.unwrap().len(), 0);
            }
        }
        let spread: i64 = sqlx::query_scalar("SELECT count(DISTINCT tableoid) FROM larder.messages")
            .fetch_one(&mut admin)
            .await
            .unwrap();
        assert!(spread > 1, "the rows are in one partition");
        postgres.close().await;
    })
    .await;
}

/// 300 messages of 9 KB, which repeat themselves, take at most 300 kB with all indexes.
pub(crate) async fn large_histories_are_stored_compressed() {
    with_database("histories", async |url: String| {
        let postgres = open(&url).await.unwrap();
        let history = postgres.history(Namespace::new("n").unwrap());
        let thread = Thread::new("a", "s").unwrap();
        let text = |number: usize| format!("{number}: {}", "The weather is the same again. ".repeat(290));
        for first in (0..300).step_by(100) {
            let batch = (first..first + 100).map(|number| by("a", &text(number)));
            history.append_many(&thread, batch.collect(), AppendOptions::default()).await.unwrap();
        }
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let stored: i64 = sqlx::query_scalar("SELECT pg_total_relation_size('larder.messages')")
            .fetch_one(&mut admin)
            .await
            .unwrap();
        assert!(stored <= 300_000, "{stored} bytes");
        assert!(history.thread_info(&thread).await.unwrap().bytes > 300 * 8_990);
        let only = MessageFilter::new().include_agent(AgentId::new("a").unwrap());
        let found = history.tail_matching(&thread, &only, None, 2).await.unwrap();
        let found: Vec<&str> = found.iter().map(|stored| &*stored.message.text).collect();
        assert_eq!(found, [text(298), text(299)]);
        postgres.close().await;
    })
    .await;
}

/// 64 KiB of JSON in a message, a value and a document.
pub(crate) async fn large_texts_are_stored_compressed() {
    with_database("compressed", async |url: String| {
        let postgres = open(&url).await.unwrap();
        let namespace = Namespace::new("n").unwrap();
        let mut text = String::new();
        for number in 0_u32.. {
            if text.len() >= 64 * 1024 {
                break;
            }
            let celsius = number.wrapping_mul(2_654_435_761) % 400;
            text +=
                &format!("{{\"city\":\"c{number}\",\"celsius\":{celsius},\"sky\":\"clear\",\"wind\":null}},");
        }
        let history = postgres.history(namespace.clone());
        history.append(&Thread::new("a", "s").unwrap(), ChatMessage::user(&*text)).await.unwrap();
        let (bucket, key) = (BucketName::new("b").unwrap(), Key::new("k").unwrap());
        let values = postgres.key_value(namespace.clone());
        values.set(&bucket, &key, text.clone().into()).await.unwrap();
        let vectors = postgres.vectors(namespace, None).await.unwrap();
        let document = Document::new(DocumentId::new("d").unwrap(), text.clone())
            .with_embedding(Embedding::new(vec![1.0]).unwrap());
        vectors.put(&CollectionName::new("c").unwrap(), vec![document], PutMode::Upsert).await.unwrap();
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let row = sqlx::query(
            "SELECT (SELECT max(pg_column_size(body)) FROM larder.messages),
                    (SELECT max(pg_column_size(value)) FROM larder.kv_entries),
                    (SELECT max(pg_column_size(content)) FROM larder.documents)",
        )
        .fetch_one(&mut admin)
        .await
        .unwrap();
        for (column, what) in ["message", "value", "document"].into_iter().enumerate() {
            let stored = usize::try_from(row.get::<i32, _>(column)).unwrap();
            assert!(stored * 2 < text.len(), "{what}: {} bytes stored in {stored}", text.len());
        }
    })
    .await;
}
