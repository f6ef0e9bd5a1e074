//! A standby: the server behind `LARDER_POSTGRES_REPLICA_URL`, which follows the one of the other tests.

use std::time::{Duration, Instant};

use larder_kernel::{
    BoardId, BucketName, ChatMessage, ErrorKind, HistoryProvider, HistoryProviderExt, Key, KeyValueStore,
    KeyValueStoreExt, NewBoard, Outcome, Revision, Seq, Store, TaskStore, Thread,
};

use super::outage::{CANARY, namespace, says};
use super::{open, with_database};

/// Once, a write on a standby failed with `PermissionDenied`, which a caller does not retry, though a
/// failover was under way.
pub(crate) async fn a_standby_is_unavailable_and_not_forbidden() {
    let replica = std::env::var("LARDER_POSTGRES_REPLICA_URL").unwrap();
    with_database("standby", async |url: String| {
        let bucket = BucketName::new("b").unwrap();
        let (thread, key) = (Thread::new("a", "s").unwrap(), Key::new("k").unwrap());
        let primary = open(&url).await.unwrap();
        primary.history(namespace()).append(&thread, ChatMessage::user("Hello")).await.unwrap();
        let database = url.rsplit_once('/').unwrap().1;
        let replica = format!("{}/{database}", replica.rsplit_once('/').unwrap().0);
        let began = Instant::now();
        let standby = loop {
            match open(&replica).await {
                Ok(standby) => match standby.history(namespace()).tail(&thread, None, 1).await {
                    Ok(seen) if seen.messages.len() == 1 => break standby,
                    _ => {}
                },
                // The database or its schema does not exist yet.
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Unavailable), "{error}");
                }
            }
            assert!(began.elapsed() < Duration::from_secs(30), "the standby does not follow");
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        let standby_says = |error: larder_kernel::Error| {
            says(&error, ErrorKind::Unavailable, &["standby", "failover"]);
            assert!(error.is_retryable() && error.outcome() == Outcome::NotApplied, "{error}");
        };
        let history = standby.history(namespace());
        standby_says(history.append(&thread, ChatMessage::user(CANARY)).await.unwrap_err());
        standby_says(history.clear(&thread, None).await.unwrap_err());
        let values = standby.key_value(namespace());
        standby_says(values.set(&bucket, &key, "v".into()).await.unwrap_err());
        standby_says(values.erase().await.unwrap_err());
        let tasks = standby.tasks(namespace());
        let board = BoardId::new("c", "a").unwrap();
        standby_says(tasks.create_task_list(&board, NewBoard::default()).await.unwrap_err());
        assert_eq!(history.tail(&thread, None, 1).await.unwrap().messages.len(), 1);
        // A position that the standby has not received may still arrive.
        let last = history.tail(&thread, None, 1).await.unwrap().messages[0].seq;
        let ahead = Seq::new(last.get() + 1).in_generation(last.generation());
        let lags =
            |error: larder_kernel::Error| says(&error, ErrorKind::Unavailable, &["standby", "position"]);
        lags(history.page_after(&thread, ahead, 10).await.unwrap_err());
        lags(history.subscribe(&thread, ahead).await.map(drop).unwrap_err());
        lags(values.watch(&bucket, "", Revision::new(1)).await.map(drop).unwrap_err());
        let writable = format!("{replica}?target_session_attrs=read-write");
        let error = open(&writable).await.unwrap_err();
        says(&error, ErrorKind::Unavailable, &["`target_session_attrs`"]);
        standby.close().await;
        primary.close().await;
    })
    .await;
}
