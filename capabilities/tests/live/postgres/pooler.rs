//! A pooler in transaction mode: PgBouncer at `LARDER_PGBOUNCER_URL`, in front of the server of the other
//! tests. It has no support for prepared statements and refuses startup options.
#![allow(clippy::large_futures)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use larder_capabilities::postgres::{PostgresConfig, PostgresDriver};
use larder_kernel::{
    BucketName, ChatMessage, ErrorKind, HistoryProvider, HistoryProviderExt, Key, KeyValueStore,
    KeyValueStoreExt, Revision, Seq, Thread,
};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection, Row};
use tokio::task::JoinSet;

use super::outage::{CANARY, namespace, says};
use super::settings::exercise;
use super::{open, with_database};

/// Returns the pooler's URL of the database that a URL names.
fn pooled(url: &str) -> String {
    let pooler = std::env::var("LARDER_PGBOUNCER_URL").unwrap();
    format!("{}/{}", pooler.rsplit_once('/').unwrap().0, url.rsplit_once('/').unwrap().1)
}

/// The traces of other clients on a server connection: settings, channels, locks and statements.
const TRACES: &str = "SELECT current_setting('statement_timeout') || ' ' || current_setting('lock_timeout')
        || ' ' || current_setting('synchronous_commit') || ' ' || current_setting('search_path')
        || ' ' || current_setting('idle_session_timeout')
        || ' ' || (SELECT count(*) FROM pg_listening_channels())
        || ' ' || (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())
        || ' ' || (SELECT count(*) FROM pg_prepared_statements WHERE NOT starts_with(name, 'PGBOUNCER_'))";
const NO_TRACES: &str = "0 0 on \"$user\", public 0 0 0 0";

/// A stranger on the same pooler: looks at its session again and again, and counts its errors.
struct Stranger {
    ended: Arc<AtomicBool>,
    looks: Arc<AtomicU32>,
    tasks: JoinSet<Vec<String>>,
}

impl Stranger {
    fn start(url: &str) -> Self {
        let (ended, looks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let mut tasks = JoinSet::new();
        for _ in 0..3 {
            let options: PgConnectOptions = url.parse().unwrap();
            let options = options.extra_float_digits(None).disable_statement_logging();
            let (ended, looks) = (Arc::clone(&ended), Arc::clone(&looks));
            tasks.spawn(async move {
                let mut errors = Vec::new();
                let mut connection = options.connect().await.unwrap();
                while !ended.load(Ordering::SeqCst) {
                    match sqlx::raw_sql(TRACES).fetch_one(&mut connection).await {
                        Ok(row) if row.get::<String, _>(0) == NO_TRACES => {}
                        Ok(row) => errors.push(row.get::<String, _>(0)),
                        Err(error) => errors.push(error.to_string()),
                    }
                    looks.fetch_add(1, Ordering::SeqCst);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                errors
            });
        }
        Self { ended, looks, tasks }
    }

    async fn end(self) -> u32 {
        self.ended.store(true, Ordering::SeqCst);
        let errors = self.tasks.join_all().await.concat();
        assert!(errors.is_empty(), "{} errors, such as {:?}", errors.len(), errors.first());
        self.looks.load(Ordering::SeqCst)
    }
}

pub(crate) async fn every_contract_works_through_a_pooler_and_disturbs_no_other_client() {
    with_database("pooler", async |url: String| {
        let pooled = pooled(&url);
        let stranger = Stranger::start(&pooled);
        // The first one creates the schema.
        let expected = exercise(&pooled, "first").await.unwrap();
        assert_eq!(exercise(&url, "direct").await.unwrap(), expected);
        let mut calls = JoinSet::new();
        for caller in 0..8 {
            let url = if caller % 2 == 0 { pooled.clone() } else { format!("{pooled}?pgbouncer=true") };
            calls.spawn(async move { exercise(&url, &format!("n{caller}")).await.unwrap() });
        }
        for said in calls.join_all().await {
            assert_eq!(said, expected);
        }
        let looks = stranger.end().await;
        assert!(looks > 50, "{looks}");
        // The server connections keep nothing either.
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let locks: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        )
        .fetch_one(&mut admin)
        .await
        .unwrap();
        assert_eq!(locks, 0);
    })
    .await;
}

pub(crate) async fn changes_are_found_through_a_pooler_within_two_seconds() {
    with_database("pooler_events", async |url: String| {
        let pooled = pooled(&url);
        let stranger = Stranger::start(&pooled);
        let (reader, writer) = (open(&pooled).await.unwrap(), open(&url).await.unwrap());
        let (thread, bucket) = (Thread::new("a", "s").unwrap(), BucketName::new("b").unwrap());
        let history = writer.history(namespace());
        history.append(&thread, ChatMessage::user("first")).await.unwrap();
        let mut events = reader.history(namespace()).subscribe(&thread, Seq::ZERO).await.unwrap();
        assert_eq!(events.next().await.unwrap().unwrap().seq, Seq::new(1));
        let mut changes = reader.key_value(namespace()).watch(&bucket, "", Revision::ZERO).await.unwrap();
        for number in 2..5 {
            let began = Instant::now();
            history.append(&thread, ChatMessage::user("more")).await.unwrap();
            let key = Key::new(format!("{number}")).unwrap();
            writer.key_value(namespace()).set(&bucket, &key, "v".into()).await.unwrap();
            assert_eq!(events.next().await.unwrap().unwrap().seq, Seq::new(number));
            assert_eq!(changes.next().await.unwrap().unwrap().key, key);
            assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        }
        stranger.end().await;
    })
    .await;
}

pub(crate) async fn a_pooler_is_diagnosed_and_its_refusals_are_named() {
    use larder_capabilities::diagnose::{CheckStatus, Findings};
    use larder_capabilities::driver::{BackendUrl, Driver};
    with_database("pooler_doctor", async |url: String| {
        open(&url).await.unwrap().close().await;
        for (url, status) in [(url.clone(), CheckStatus::Ok), (pooled(&url), CheckStatus::Warn)] {
            let findings = Findings::default();
            let location = PostgresDriver.read(&BackendUrl::parse(&url).unwrap()).unwrap();
            location.diagnose(&findings).await;
            let checks = findings.take();
            let pooler = checks.iter().find(|check| check.name == "pooler").unwrap();
            assert_eq!(pooler.status, status, "{checks:?}");
            for name in ["writable", "schema", "rights", "durability", "clock"] {
                let check = checks.iter().find(|check| check.name == name).unwrap();
                assert_eq!(check.status, CheckStatus::Ok, "{check:?}");
            }
        }
        let pooled = pooled(&url);
        let (scheme, host) = pooled.split_once("://").unwrap();
        let host = host.rsplit_once('@').unwrap().1;
        let wrong = format!("{scheme}://larder:{CANARY}@{host}");
        says(&open(&wrong).await.unwrap_err(), ErrorKind::PermissionDenied, &["password"]);
        let nobody = format!("{scheme}://nobody:{CANARY}@{host}");
        says(&open(&nobody).await.unwrap_err(), ErrorKind::PermissionDenied, &["user"]);
        let config = PostgresConfig::from_url(&format!("{pooled}?vector_index=hnsw")).unwrap();
        let postgres = larder_capabilities::postgres::Postgres::open(config).await.unwrap();
        let vectors = postgres.vectors(namespace(), None).await.unwrap();
        let space = larder_kernel::CollectionName::new("space").unwrap();
        let error = vectors.build_index(&space).await.unwrap_err();
        says(&error, ErrorKind::Unsupported, &["pooler", "the server itself"]);
    })
    .await;
}
