//! Partitioned tables, and a replica.

use std::time::Duration;

use larder::Registry;
use larder_cli::durable::during;
use larder_cli::url;
use larder_conformance::runner::{probe, run};
use larder_conformance::{CaseOutcome, RunOptions, suites};
use larder_kernel::{
    BucketName, ChatMessage, ErrorKind, HistoryProviderExt, Key, KeyValueStoreExt, Seq, Thread,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::server::Server;
use super::{assert_holds, open, pause};

/// The number of the suite's cases that run on partitions, spread over all cases.
const CASES_MAX: usize = 250;
/// More than a case takes on a machine that runs other tests.
const CASE_TIME_MAX: Duration = Duration::from_secs(180);
const CALL_TIME_MAX: Duration = Duration::from_secs(30);
const MIGRATIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../capabilities/migrations/postgres");
const DOCS: &str = include_str!("../../../../guide/src/postgres-partitions.md");

async fn connect(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

async fn execute(connection: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(connection).await.unwrap();
}

/// Returns the statements of the page on partitions, as the page generates them.
fn partitioned() -> String {
    let mut files: Vec<_> =
        std::fs::read_dir(MIGRATIONS).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut sql = "BEGIN; CREATE SCHEMA larder;\n".to_owned();
    for file in files {
        for line in std::fs::read_to_string(file).unwrap().lines() {
            let end = matches!(line, ");" | ") WITH (fillfactor = 70);");
            sql.push_str(if end { ") PARTITION BY HASH (namespace);" } else { line });
            sql.push('\n');
        }
    }
    let (_, rest) = DOCS.split_once("```sql\n").unwrap();
    sql + rest.split_once("```").unwrap().0 + "COMMIT;"
}

pub(crate) async fn the_suite_holds_on_partitions() {
    let server = Server::start("postgres", "scale-partitions", "LARDER_PG_PORT", 1);
    let address = server.url();
    let mut admin = connect(&address).await;
    execute(&mut admin, &partitioned()).await;
    let scratch = tempfile::tempdir().unwrap();
    let harness = url::named(&Registry::default(), "postgres", &address, scratch.path()).await.unwrap();

    let options = RunOptions { timeout: CASE_TIME_MAX, ..RunOptions::default() };
    let probed = probe(&*harness, options.timeout).await.unwrap();
    let served: Vec<_> = suites::all().into_iter().filter(|case| probed.serves(case)).collect();
    let cases_max = CASES_MAX / crate::sample::every();
    let step = served.len().div_ceil(cases_max);
    let cases: Vec<_> = served.into_iter().step_by(step).collect();
    let reports = run(&harness, &probed, &cases, &options, &|_| {}).await;
    assert!(reports.len() > cases_max / 2);
    let (slow, judged): (Vec<_>, Vec<_>) =
        reports.into_iter().partition(|report| report.outcome == CaseOutcome::Error);
    // Some cases measure times, which fail on a machine that is busy with other tests.
    let again: Vec<_> = cases.into_iter().filter(|case| slow.iter().any(|it| it.case == case.name)).collect();
    let alone = RunOptions { jobs: 1, ..options };
    let again = run(&harness, &probed, &again, &alone, &|_| {}).await;
    for report in judged.into_iter().chain(again) {
        assert!(matches!(report.outcome, CaseOutcome::Passed | CaseOutcome::Unsupported), "{report:?}");
    }

    let (stores, other) = (open(&*harness, 0).await, open(&*harness, 1).await);
    let work = during(&stores, &other, (2, 1, CALL_TIME_MAX), async |_| pause(3_000).await);
    assert_holds(&work.await.unwrap().1);

    let rows = "SELECT count(DISTINCT inhparent), count(*) FROM pg_inherits JOIN pg_class ON oid = inhparent
                WHERE relkind = 'p'";
    let (tables, partitions): (i64, i64) = sqlx::query_as(rows).fetch_one(&mut admin).await.unwrap();
    assert_eq!(partitions, tables * 8);
    // A statement with a namespace reads one partition.
    let plan = "EXPLAIN SELECT * FROM larder.messages WHERE namespace = 'scale'";
    let plan: Vec<String> = sqlx::query_scalar(plan).fetch_all(&mut admin).await.unwrap();
    let partition = |number: &u32| plan.iter().any(|line| line.contains(&format!(" messages_{number} ")));
    assert_eq!((0..8).filter(partition).count(), 1, "{plan:#?}");
}

pub(crate) async fn a_replica_shows_what_was() {
    let primary = Server::start("postgres", "scale-replica", "LARDER_PG_PORT", 1);
    let address = primary.url();
    let scratch = tempfile::tempdir().unwrap();
    let writing = url::named(&Registry::default(), "postgres", &address, scratch.path()).await.unwrap();
    let stores = open(&*writing, 0).await;
    let replica = Server::start("postgres-replica", "scale-replica", "LARDER_PG_REPLICA_PORT", 1);
    let reading = url::named(&Registry::default(), "postgres", &replica.url(), scratch.path()).await.unwrap();
    let behind = open(&*reading, 0).await;
    let (history, values) = (stores.history().unwrap(), stores.key_value().unwrap());
    let (old_history, old_values) = (behind.history().unwrap(), behind.key_value().unwrap());
    let thread = Thread::new("agent", "session").unwrap();
    let (bucket, key) = (BucketName::new("b").unwrap(), Key::new("k").unwrap());

    let mut admin = connect(&replica.url()).await;
    execute(&mut admin, "SELECT pg_wal_replay_pause()").await;
    let seq = history.append(&thread, ChatMessage::user("Hello")).await.unwrap();
    values.set(&bucket, &key, "new".into()).await.unwrap();
    // The primary returns every acknowledged write on every handle. The replica does not, which HIST and KV
    // forbid.
    assert_eq!(
        open(&*writing, 1).await.history().unwrap().tail(&thread, None, 10).await.unwrap().messages.len(),
        1
    );
    assert_eq!(old_history.tail(&thread, None, 10).await.unwrap().messages.len(), 0);
    assert!(old_values.get(&bucket, &key).await.unwrap().is_none());

    // It never returns half of a write, and accepts no write.
    execute(&mut admin, "SELECT pg_wal_replay_resume()").await;
    until(async || old_history.count_messages(&thread).await.unwrap() == 1).await;
    assert_eq!(old_history.page_after(&thread, Seq::ZERO, 10).await.unwrap().messages[0].seq, seq);
    let refused = old_history.append(&thread, ChatMessage::user("lost?")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    assert_eq!(history.count_messages(&thread).await.unwrap(), 1);

    // If each commit waits until the replica has applied it, the replica is as current as the primary.
    let mut primary_admin = connect(&address).await;
    execute(&mut primary_admin, "ALTER SYSTEM SET synchronous_standby_names = 'replica'").await;
    execute(&mut primary_admin, "ALTER SYSTEM SET synchronous_commit = 'remote_apply'").await;
    execute(&mut primary_admin, "SELECT pg_reload_conf()").await;
    let sync = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
    until(async || {
        sqlx::query_scalar::<_, i64>(sync).fetch_one(&mut connect(&address).await).await.unwrap() == 1
    })
    .await;
    let waiting = url::named(&Registry::default(), "postgres", &address, scratch.path()).await.unwrap();
    let history = open(&*waiting, 0).await.history().unwrap();
    for number in 2..40 {
        history.append(&thread, ChatMessage::user("Hello")).await.unwrap();
        assert_eq!(old_history.count_messages(&thread).await.unwrap(), number);
    }
}

async fn until(holds: impl AsyncFn() -> bool) {
    for _ in 0..200 {
        if holds().await {
            return;
        }
        pause(50).await;
    }
    panic!("it never came");
}
