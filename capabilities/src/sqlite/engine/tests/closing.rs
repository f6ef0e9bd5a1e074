//! Closing a database, and dropping its last handle.

use super::*;
use crate::sqlite::engine::closing::DROP_WAIT_MAX;

/// Returns the bytes of the write-ahead log; `None` if it does not exist.
fn wal_bytes(folder: &TempDir) -> Option<u64> {
    Some(std::fs::metadata(folder.path().join("larder.db-wal")).ok()?.len())
}

/// Regression test: `close` waited for as long as another clone existed.
#[tokio::test]
async fn closing_ends_every_clone_and_loses_no_write_that_was_sent() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    let clone = engine.clone();
    let sent: Vec<_> = (1..=50).map(|number| tokio::spawn(add(engine.clone(), number))).collect();
    tokio::task::yield_now().await;
    engine.close().await;
    assert_eq!(wal_bytes(&folder), None);
    let mut kept = 0;
    for write in sent {
        kept += i64::from(write.await.unwrap().is_ok());
    }
    let refused = add(clone.clone(), 51).await.unwrap_err();
    assert_eq!((refused.kind(), refused.outcome()), (ErrorKind::Unavailable, Outcome::NotApplied));
    let refused = clone.read("test.read", |_| Ok(())).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable);
    assert!(clone.is_closed());
    let again = open(&folder).await;
    assert_eq!(i64::try_from(numbers(&again).await.len()).unwrap(), kept);
}

/// Regression test: of two connections that closed at the same moment, each left the log to the other.
#[tokio::test]
async fn no_closing_of_many_leaves_the_log() {
    let folder = TempDir::new().unwrap();
    for number in 0..200 {
        let engine = open(&folder).await;
        add(engine.clone(), number).await.unwrap();
        engine.close().await;
        assert_eq!(wal_bytes(&folder), None, "closing {number}");
    }
}

/// Regression test: a program that returned from `main` left everything in the write-ahead log.
#[tokio::test]
async fn dropping_the_last_handle_waits_until_the_file_is_complete() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    add(engine.clone(), 1).await.unwrap();
    assert!(wal_bytes(&folder).is_some());
    drop(engine);
    assert_eq!(wal_bytes(&folder), None);
}

#[tokio::test]
async fn dropping_the_last_handle_waits_no_longer_than_its_limit() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    let (release, held) = mpsc::channel::<()>();
    let running = engine.write("test.write", move |_| {
        let _ = held.recv();
        Ok(())
    });
    let abandoned = tokio::time::timeout(Duration::from_millis(50), running).await;
    assert!(abandoned.is_err());
    let begun = Instant::now();
    drop(engine);
    let waited = begun.elapsed();
    assert!(waited >= DROP_WAIT_MAX && waited < DROP_WAIT_MAX * 4, "{waited:?}");
    drop(release);
}
