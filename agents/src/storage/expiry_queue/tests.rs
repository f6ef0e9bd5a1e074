use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use larder_kernel::{
    AppendOptions, BucketName, ChatMessage, HistoryProvider, HistoryProviderExt, Key, KeyValueEventKind,
    KeyValuePutOptions, KeyValueStore, Revision, Thread, Ttl,
};

use crate::storage::backend::{MemoryBackend, default_namespace};
use crate::storage::{InMemoryHistoryProvider, InMemoryKeyValueStore};

fn thread(session: u32) -> Thread {
    Thread::new("agent", session.to_string()).unwrap()
}

fn brief() -> Ttl {
    Ttl::fixed(Duration::from_millis(1))
}

async fn fill(history: &InMemoryHistoryProvider, session: u32, ttl: Ttl) -> larder_kernel::Result<()> {
    let options = AppendOptions::default().with_ttl(ttl);
    let messages = vec![ChatMessage::user("x".repeat(10_000))];
    history.append_many(&thread(session), messages, options).await.map(drop)
}

/// Regression test: a backend full of expired data once rejected all further writes.
#[tokio::test]
async fn expired_data_makes_room_for_writes() {
    let backend = MemoryBackend::with_bytes_max(1_000_000);
    let history = InMemoryHistoryProvider::open(&backend, default_namespace());
    let hour = Ttl::sliding(Duration::from_secs(3_600));
    for session in 0..80 {
        fill(&history, session, hour).await.unwrap();
    }
    let mut session = 80;
    while fill(&history, session, hour).await.is_ok() {
        session += 1;
    }
    for session in 0..50 {
        history.set_ttl(&thread(session), Some(brief()), None).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(5)).await;
    // This is more than one write removes.
    let much = vec![ChatMessage::user("x".repeat(400_000))];
    history.append_many(&thread(1_000), much, AppendOptions::default()).await.unwrap();
    assert_eq!(history.thread_info(&thread(60)).await.unwrap().messages, 1);
}

#[tokio::test]
async fn an_unused_expired_thread_is_removed_by_other_writes() {
    let backend = MemoryBackend::new();
    let history = InMemoryHistoryProvider::open(&backend, default_namespace());
    for session in 0..100 {
        fill(&history, session, brief()).await.unwrap();
    }
    let other = thread(1_000);
    for _ in 0..40 {
        tokio::time::sleep(Duration::from_millis(1)).await;
        history.append(&other, ChatMessage::user("text")).await.unwrap();
    }
    let left = backend.bytes();
    assert!(left < 200_000, "{left} bytes are left");
    assert!(backend.bytes() > 0);
    // The positions continue.
    let next = history.append(&thread(7), ChatMessage::user("again")).await.unwrap();
    assert_eq!(next.get(), 3);
}

/// A record is in the backend's queue once, however often its time to live is extended, removed and set.
#[tokio::test]
async fn a_record_is_expected_once() {
    let backend = MemoryBackend::new();
    let history = InMemoryHistoryProvider::open(&backend, default_namespace());
    for round in 0..200_u64 {
        fill(&history, 1, Ttl::sliding(Duration::from_millis(5 + round % 3))).await.unwrap();
        if round % 10 == 0 {
            tokio::time::sleep(Duration::from_millis(8)).await;
        }
    }
    let waiting = backend.scheduled_expiries();
    assert!(waiting <= 4, "{waiting} wait");
}

#[tokio::test]
async fn an_expired_value_is_removed_after_a_minute_and_watchers_receive_a_deletion() {
    let backend = MemoryBackend::new();
    let values = InMemoryKeyValueStore::open(&backend, default_namespace());
    let bucket = BucketName::new("bucket").unwrap();
    let key = |name: &str| Key::new(name).unwrap();
    let brief = KeyValuePutOptions::default().with_ttl(Duration::from_millis(1));
    let put = values.put(&bucket, &key("gone"), Bytes::from(vec![0; 100_000]), brief).await.unwrap();
    values.put(&bucket, &key("kept"), Bytes::from_static(b"1"), KeyValuePutOptions::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert!(backend.bytes() > 100_000);
    backend.sweep_at(crate::storage::backend::now_ms());
    assert!(backend.bytes() > 100_000, "watchers in progress may not have read it");
    backend.sweep_at(crate::storage::backend::now_ms() + 61_000);
    assert!(backend.bytes() < 10_000, "{}", backend.bytes());
    let told: Vec<_> = values.watch(&bucket, "", Revision::ZERO).await.unwrap().take(2).collect().await;
    let told: Vec<_> = told.into_iter().map(Result::unwrap).collect();
    assert_eq!((told[0].revision, &told[0].kind), (put, &KeyValueEventKind::Deleted));
    assert_eq!(told[1].key, key("kept"));
    // A key that is written again exists, and no data of the old one comes back.
    values.put(&bucket, &key("gone"), Bytes::from_static(b"2"), brief).await.unwrap();
    backend.sweep_at(crate::storage::backend::now_ms() + 200_000);
    assert!(backend.bytes() < 10_000);
}
