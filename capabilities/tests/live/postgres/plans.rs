//! The server's query plans: reads use indexes and no more rows than necessary. The tests examine the
//! statements that the stores prepared, in their session, with known values and with the generic plan that a
//! session ends up with.

use std::fmt::Write as _;
use std::time::Duration;

use futures_util::StreamExt;
use larder_capabilities::postgres::Postgres;
use larder_capabilities::postgres::sqlx_interop::{config_of, open_with_pool};
use larder_kernel::{
    AgentId, BoardId, BucketName, ChatMessage, HistoryProvider, HistoryProviderExt, Key, KeyValueStore,
    KeyValueStoreExt, Namespace, NewBoard, NewTask, PageRequest, Seq, TaskId, TaskStore, Thread, WorkerId,
};
use sqlx::{AssertSqlSafe, PgPool, Row};

use super::with_database;

/// Messages of the thread that is read.
const MESSAGES: i64 = 100_000;

/// Opens the database over one connection, whose session keeps the statements, with a long thread among many
/// short ones.
async fn open_with_long_thread(url: &str) -> (PgPool, Postgres, Thread) {
    let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1).connect(url).await.unwrap();
    let postgres = open_with_pool(pool.clone(), config_of(&pool)).await.unwrap();
    let history = postgres.history(namespace());
    let thread = Thread::new("a", "s").unwrap();
    history.append(&thread, ChatMessage::user("Hello")).await.unwrap();
    let (bucket, key) = (BucketName::new("b").unwrap(), Key::new("k").unwrap());
    postgres.key_value(namespace()).set(&bucket, &key, "v".into()).await.unwrap();
    for number in 0..20 {
        let other = Thread::new("a", format!("other-{number}")).unwrap();
        history.append(&other, ChatMessage::user("Hello")).await.unwrap();
    }
    let copies = format!(
        "INSERT INTO larder.messages (namespace, thread, seq, bytes, thread_bytes, author, author_role, body)
            SELECT m.namespace, m.thread, n, m.bytes, m.bytes * n, m.author, m.author_role, m.body
            FROM larder.messages m JOIN larder.threads t ON t.id = m.thread, generate_series(2, {MESSAGES}) n
            WHERE t.session = 's';
         UPDATE larder.threads SET last_seq = {MESSAGES}, messages = {MESSAGES}, bytes = bytes * {MESSAGES}
            WHERE session = 's';
         INSERT INTO larder.kv_entries (namespace, bucket, key, revision, value)
            SELECT e.namespace, e.bucket, 'k' || n, n, e.value FROM larder.kv_entries e, generate_series(2, \
            20000) n;
         ANALYZE larder.messages, larder.threads, larder.kv_entries"
    );
    sqlx::raw_sql(AssertSqlSafe(copies)).execute(&pool).await.unwrap();
    (pool, postgres, thread)
}

fn namespace() -> Namespace {
    Namespace::new("n").unwrap()
}

/// Returns the session's prepared statements: name, text, number of parameters.
async fn prepared(pool: &PgPool) -> Vec<(String, String, i32)> {
    sqlx::raw_sql("SELECT name, statement, cardinality(parameter_types) FROM pg_prepared_statements")
        .fetch_all(pool)
        .await
        .unwrap()
        .iter()
        .map(|row| (row.get(0), row.get(1), row.get(2)))
        .collect()
}

/// Returns the server's plan for a prepared statement.
async fn plan(pool: &PgPool, mode: &str, name: &str, values: &str) -> String {
    let explain = format!(
        "SET plan_cache_mode = {mode}; EXPLAIN (COSTS OFF) EXECUTE \"{name}\" ({values}); RESET \
         plan_cache_mode"
    );
    let rows = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(pool).await.unwrap();
    let mut plan = String::new();
    for row in rows {
        writeln!(plan, "{}", row.get::<String, _>(0)).unwrap();
    }
    plan
}

pub(crate) async fn the_last_messages_are_read_backwards_and_no_others() {
    with_database("plan", async |url: String| {
        let (pool, postgres, thread) = open_with_long_thread(&url).await;
        let history = postgres.history(namespace());
        // The number of executions after which the server chooses between the plans.
        for _ in 0..12 {
            assert_eq!(history.tail(&thread, None, 50).await.unwrap().messages.len(), 50);
        }
        let all = prepared(&pool).await;
        let (name, _, _) = all.iter().find(|(_, text, _)| text.contains("ORDER BY seq DESC")).unwrap();
        let values = format!("'n', 'a', 's', {}, 50", i64::MAX);
        for mode in ["force_custom_plan", "force_generic_plan", "auto"] {
            let plan = plan(&pool, mode, name, &values).await;
            assert!(plan.contains("Index Scan Backward using messages_pkey"), "{mode}: {plan}");
            assert!(!plan.contains("Sort") && !plan.contains("Seq Scan on messages"), "{mode}: {plan}");
        }
        // The server keeps the plan instead of planning each read.
        let generic: i64 =
            sqlx::query_scalar("SELECT generic_plans FROM pg_prepared_statements WHERE name = $1")
                .bind(name)
                .fetch_one(&pool)
                .await
                .unwrap();
        assert!(generic >= 5, "{generic}");
        pool.close().await;
    })
    .await;
}

pub(crate) async fn no_statement_reads_a_whole_thread_for_a_few_rows() {
    with_database("plans", async |url: String| {
        let (pool, postgres, thread) = open_with_long_thread(&url).await;
        let history = postgres.history(namespace());
        let middle = Seq::new(MESSAGES / 2);
        for limit in [50, 500] {
            history.tail(&thread, Some(middle), limit).await.unwrap();
            history.page_after(&thread, middle, limit).await.unwrap();
            history.get_messages(&thread, 0, limit).await.unwrap();
            history.get_messages(&thread, 10, limit).await.unwrap();
        }
        history.thread_info(&thread).await.unwrap();
        let mut events = history.subscribe(&thread, middle).await.unwrap();
        events.next().await.unwrap().unwrap();
        drop(events);
        history.list_threads(None, PageRequest::first(50)).await.unwrap();
        history.list_threads(Some(&AgentId::new("a").unwrap()), PageRequest::first(50)).await.unwrap();
        let values = postgres.key_value(namespace());
        let bucket = BucketName::new("b").unwrap();
        values.list(&bucket, "k", PageRequest::first(50)).await.unwrap();
        let mut read = 0;
        for (name, text, parameters) in prepared(&pool).await {
            if !text.contains("larder.messages") && !text.contains("larder.kv_entries") {
                continue;
            }
            let nulls = vec!["NULL"; usize::try_from(parameters).unwrap()].join(", ");
            let plan = plan(&pool, "force_generic_plan", &name, &nulls).await;
            for table in ["messages", "kv_entries"] {
                assert!(!plan.contains(&format!("Seq Scan on {table}")), "{text}\n{plan}");
            }
            // For events that are out of order, the statement looks up the messages that such an event
            // inserted.
            assert!(!plan.contains("Bitmap Heap Scan on messages\n"), "{text}\n{plan}");
            read += 1;
        }
        assert!(read >= 5, "{read}");
        pool.close().await;
    })
    .await;
}

/// Returns the blocks that a claim reads in the session that claimed from the small board.
async fn blocks_of_a_claim(pool: &PgPool, postgres: &Postgres) -> i64 {
    let (board, worker) = (BoardId::new("c", "a").unwrap(), WorkerId::new("w").unwrap());
    let lease = Duration::from_secs(3_600);
    postgres.tasks(namespace()).claim(&board, &worker, lease).await.unwrap().unwrap();
    let row = sqlx::raw_sql(
        "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON)
            SELECT * FROM larder.claim_tasks('n', 'c', 'a', '{w,x}', '{60000,60000}')",
    )
    .fetch_one(pool)
    .await
    .unwrap();
    let plan: serde_json::Value = serde_json::from_str(row.get_unchecked(0)).unwrap();
    let count = |name: &str| plan[0]["Plan"][name].as_i64().unwrap();
    count("Shared Hit Blocks") + count("Shared Read Blocks")
}

pub(crate) async fn a_task_is_claimed_and_found_without_reading_the_board() {
    with_database("claims", async |url: String| {
        let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
        let postgres = open_with_pool(pool.clone(), config_of(&pool)).await.unwrap();
        let (tasks, board) = (postgres.tasks(namespace()), BoardId::new("c", "a").unwrap());
        tasks.create_task_list(&board, NewBoard::default()).await.unwrap();
        let new = |number: u32| NewTask::new(TaskId::new(format!("t{number}")).unwrap(), "a task");
        tasks.add_tasks(&board, (0..100).map(new).collect()).await.unwrap();
        // The number of executions after which a session keeps its plans.
        for _ in 0..10 {
            blocks_of_a_claim(&pool, &postgres).await;
        }
        let few = blocks_of_a_claim(&pool, &postgres).await;
        // The server's statistics of the table are not updated.
        let more = "INSERT INTO larder.tasks (namespace, conversation, agent, id, position, revision, \
                    status, retries,
                retries_max, title, metadata)
            SELECT 'n', 'c', 'a', 'more' || n, n, n, CASE WHEN n % 2 = 0 THEN 'planned' ELSE 'succeeded' \
            END, 0, 0, 'x', '{}'
            FROM generate_series(1000, 40000) n";
        sqlx::raw_sql(more).execute(&pool).await.unwrap();
        let many = blocks_of_a_claim(&pool, &postgres).await;
        assert!(many <= few + 50, "{few} blocks among 100 tasks, {many} among 40,000");
        tasks.get_task(&board, &TaskId::new("t5").unwrap()).await.unwrap().unwrap();
        let all = prepared(&pool).await;
        let (name, _, _) = all.iter().find(|(_, text, _)| text.contains("id <= $4")).unwrap();
        for mode in ["force_custom_plan", "force_generic_plan"] {
            let plan = plan(&pool, mode, name, "'n', 'c', 'a', 't5'").await;
            assert!(plan.contains("Index Scan using tasks_pkey"), "{mode}: {plan}");
        }
        pool.close().await;
    })
    .await;
}
