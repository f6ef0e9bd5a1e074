//! Connections that a server refuses or leaves unanswered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use larder_kernel::{
    BoardId, BucketName, ChatMessage, ErrorKind, HistoryProviderExt, Key, KeyValueStoreExt, NewBoard,
    Outcome, TaskStore, Thread,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::outage::{drop_role, namespace, role, says};
use super::{open, with_database};

pub(super) async fn run(admin: &mut PgConnection, statements: &str) {
    sqlx::raw_sql(AssertSqlSafe(statements.to_owned())).execute(admin).await.unwrap();
}

/// Returns the URL of a role with all rights on the schema.
pub(super) async fn user(url: &str, name: &str) -> String {
    let rights = "GRANT USAGE ON SCHEMA larder TO ROLE; GRANT ALL ON ALL TABLES IN SCHEMA larder TO ROLE;
         GRANT ALL ON ALL SEQUENCES IN SCHEMA larder TO ROLE";
    role(url, name, rights).await
}

fn role_name(name: &str) -> String {
    format!("larder_test_{name}_{}", std::process::id())
}

/// Once, the callers without a connection repeated the refused attempt, and never took a connection that came
/// back: key-value and tasks made no call in 30 s.
pub(crate) async fn callers_share_the_connections_that_a_role_may_have() {
    with_database("granted", async |url: String| {
        let mut admin = PgConnection::connect(&url).await.unwrap();
        open(&url).await.unwrap().close().await;
        let user = user(&url, "granted").await;
        run(&mut admin, &format!("ALTER ROLE {} CONNECTION LIMIT 2", role_name("granted"))).await;
        let postgres = open(&format!("{user}?pool_size=10")).await.unwrap();
        let (board, bucket) = (BoardId::new("c", "a").unwrap(), BucketName::new("b").unwrap());
        postgres.tasks(namespace()).create_task_list(&board, NewBoard::default()).await.unwrap();
        let mut calls = JoinSet::new();
        let until = Instant::now() + Duration::from_secs(3);
        for caller in 0..30 {
            let (postgres, board, bucket) = (postgres.clone(), board.clone(), bucket.clone());
            calls.spawn(async move {
                let thread = Thread::new("a", format!("{caller}")).unwrap();
                let key = Key::new(format!("{caller}")).unwrap();
                let mut made = 0_u32;
                while Instant::now() < until {
                    match caller % 3 {
                        0 => {
                            let history = postgres.history(namespace());
                            history.append(&thread, ChatMessage::user("Hello")).await.map(drop)
                        }
                        1 => postgres.key_value(namespace()).set(&bucket, &key, "v".into()).await.map(drop),
                        _ => postgres.tasks(namespace()).get_board(&board).await.map(drop),
                    }
                    .unwrap();
                    made += 1;
                }
                (caller % 3, made)
            });
        }
        let made = calls.join_all().await;
        for contract in 0..3 {
            let least = made.iter().filter(|(of, _)| *of == contract).map(|(_, made)| *made).min();
            assert!(least.unwrap() >= 5, "{contract}: {made:?}");
        }
        // A further handle says what the server said.
        let error = open(&format!("{user}?acquire_timeout_ms=500")).await.unwrap_err();
        says(&error, ErrorKind::ResourceExhausted, &["refused a new connection", "limit of the role"]);
        postgres.close().await;
        open(&user).await.unwrap().close().await;
        drop_role(&mut admin, "granted").await;
    })
    .await;
}

/// A relay that can stop forwarding, as a server does that is frozen.
struct Relay {
    frozen: Arc<AtomicBool>,
    port: u16,
}

impl Relay {
    async fn start(to: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let frozen = Arc::new(AtomicBool::new(false));
        let state = Arc::clone(&frozen);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(&to).await else { continue };
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                tokio::spawn(forward(from_client, to_server, Arc::clone(&state)));
                tokio::spawn(forward(from_server, to_client, Arc::clone(&state)));
            }
        });
        Self { frozen, port }
    }
}

async fn forward(
    from: tokio::net::tcp::OwnedReadHalf,
    to: tokio::net::tcp::OwnedWriteHalf,
    frozen: Arc<AtomicBool>,
) {
    let mut buffer = vec![0; 65_536];
    loop {
        if from.readable().await.is_err() {
            return;
        }
        let length = match from.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => length,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => return,
        };
        while frozen.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let mut sent = 0;
        while sent < length {
            if to.writable().await.is_err() {
                return;
            }
            match to.try_write(&buffer[sent..length]) {
                Ok(more) => sent += more,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    }
}

/// Once, the callers that got no connection of a silent server failed with `ResourceExhausted`, which is not
/// retryable, and the advice to raise `pool_size`.
pub(crate) async fn more_callers_than_connections_of_a_silent_server_report_the_server() {
    with_database("silent", async |url: String| {
        let (place, database) = url.rsplit_once('/').unwrap();
        let (login, server) = place.rsplit_once('@').unwrap();
        let relay = Relay::start(server.to_owned()).await;
        let times = "pool_size=2&acquire_timeout_ms=1000&statement_timeout_ms=1500";
        let relayed = format!("{login}@127.0.0.1:{}/{database}?{times}", relay.port);
        let postgres = open(&relayed).await.unwrap();
        let (bucket, key) = (BucketName::new("b").unwrap(), Key::new("k").unwrap());
        postgres.key_value(namespace()).set(&bucket, &key, "v".into()).await.unwrap();
        relay.frozen.store(true, Ordering::SeqCst);
        let mut calls = JoinSet::new();
        for _ in 0..12 {
            let (values, bucket, key) = (postgres.key_value(namespace()), bucket.clone(), key.clone());
            calls.spawn(async move { values.set(&bucket, &key, "v".into()).await.map(drop) });
        }
        let began = Instant::now();
        let mut retryable = 0;
        for error in calls.join_all().await {
            let error = error.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout), "{error}");
            // Calls that were sent may have happened.
            assert_eq!(error.is_retryable(), error.outcome() == Outcome::NotApplied, "{error}");
            retryable += usize::from(error.is_retryable());
        }
        assert!(retryable >= 10, "{retryable}");
        assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
        relay.frozen.store(false, Ordering::SeqCst);
        let thawed = Instant::now();
        while let Err(error) = postgres.key_value(namespace()).set(&bucket, &key, "again".into()).await {
            assert!(thawed.elapsed() < Duration::from_secs(20), "{error}");
        }
        postgres.close().await;
    })
    .await;
}
