//! Subscriptions that nothing happens to.
#![allow(clippy::print_stderr, clippy::large_futures)]

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use larder_kernel::{
    BucketName, ChatMessage, HistoryProvider, HistoryProviderExt, Key, KeyValueStore, KeyValueStoreExt,
    Revision, Seq, Thread,
};
use sqlx::{Connection, PgConnection};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::connections::run;
use super::outage::namespace;
use super::{open, with_database};

/// The time over which the transactions of the database are counted.
const WHILE: Duration = Duration::from_secs(8);

/// Returns the number of transactions of the database.
async fn transactions(admin: &mut PgConnection) -> i64 {
    let read = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()";
    sqlx::query_scalar(read).fetch_one(admin).await.unwrap()
}

/// The longest time until the subscriptions have read everything and marked their threads.
const SETTLE_MAX: Duration = Duration::from_secs(180);

/// Waits until the subscriptions have begun: each reads its log, marks its thread and reads again, which is
/// three transactions. Returns how long that took.
async fn settle(admin: &mut PgConnection) -> Duration {
    let began = Instant::now();
    loop {
        let before = transactions(admin).await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let made = transactions(admin).await - before;
        if made <= 30 {
            return began.elapsed();
        }
        assert!(began.elapsed() < SETTLE_MAX, "still {made} transactions in 3 s");
    }
}

async fn rate(admin: &mut PgConnection) -> f64 {
    // An idle session reports its transactions after up to 10 s.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let (before, began) = (transactions(admin).await, Instant::now());
    tokio::time::sleep(WHILE).await;
    let made = i32::try_from(transactions(admin).await - before).unwrap();
    f64::from(made) / began.elapsed().as_secs_f64()
}

/// Once, each subscription polled about once a second: 300 cost 544 transactions a second.
pub(crate) async fn idle_subscriptions_cost_one_statement_a_second() {
    let count: usize =
        std::env::var("LARDER_SUBSCRIPTIONS").map_or(600, |count| count.parse().expect("a number"));
    with_database("idle", async |url: String| {
        let postgres = open(&url).await.unwrap();
        let writer = open(&url).await.unwrap();
        let mut admin = PgConnection::connect(&url).await.unwrap();
        let (history, values) = (postgres.history(namespace()), postgres.key_value(namespace()));
        let thread = |number: usize| Thread::new("a", format!("{number}")).unwrap();
        let bucket = |number: usize| BucketName::new(format!("{number}")).unwrap();
        let (mut events, turns) = (JoinSet::new(), Arc::new(Semaphore::new(64)));
        for number in 0..count {
            let (history, values) = (postgres.history(namespace()), postgres.key_value(namespace()));
            let (thread, bucket, turns) = (thread(number), bucket(number), Arc::clone(&turns));
            events.spawn(async move {
                let _turn = turns.acquire().await.unwrap();
                if number % 2 == 0 {
                    history.append(&thread, ChatMessage::user("first")).await.unwrap();
                    let mut events = history.subscribe(&thread, Seq::ZERO).await.unwrap();
                    events.next().await.unwrap().unwrap();
                    events.map(|event| event.map(drop)).boxed()
                } else {
                    values.set(&bucket, &Key::new("k").unwrap(), "v".into()).await.unwrap();
                    let mut changes = values.watch(&bucket, "", Revision::ZERO).await.unwrap();
                    changes.next().await.unwrap().unwrap();
                    changes.map(|change| change.map(drop)).boxed()
                }
            });
        }
        let (woken, mut wakes) = tokio::sync::mpsc::unbounded_channel();
        for (place, mut events) in events.join_all().await.into_iter().enumerate() {
            let woken = woken.clone();
            tokio::spawn(async move {
                while let Some(event) = events.next().await {
                    let _ = woken.send((place, event.is_ok()));
                }
            });
        }
        let settled = settle(&mut admin).await;
        let while_idle = rate(&mut admin).await;
        assert!(while_idle <= 10.0, "{while_idle} transactions a second");
        let mut change = async |admin: &mut PgConnection, lost: bool| {
            if lost {
                let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT \
                           pg_advisory%' AND datname = current_database() AND pid <> pg_backend_pid()";
                run(admin, end).await;
            }
            let began = Instant::now();
            writer.history(namespace()).append(&thread(0), ChatMessage::user("more")).await.unwrap();
            assert!(wakes.recv().await.unwrap().1);
            let key = Key::new("k").unwrap();
            writer.key_value(namespace()).set(&bucket(1), &key, "w".into()).await.unwrap();
            assert!(wakes.recv().await.unwrap().1);
            began.elapsed()
        };
        let notified = change(&mut admin, false).await;
        assert!(notified < Duration::from_secs(2), "{notified:?}");
        let lost = change(&mut admin, true).await;
        assert!(lost < Duration::from_secs(4), "{lost:?}");
        let after = rate(&mut admin).await;
        assert!(after <= 10.0, "{after} transactions a second");
        eprintln!("{count} subscriptions began within {settled:?}");
        eprintln!("{count} subscriptions: {while_idle:.1} and {after:.1} transactions a second");
        eprintln!("woken in {notified:?}, and {lost:?} after the channel was lost");
        drop((history, values));
        postgres.close().await;
        writer.close().await;
    })
    .await;
}
