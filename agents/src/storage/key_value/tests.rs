use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use larder_kernel::limits::BUCKET_TOMBSTONES_MAX;
use larder_kernel::{ErrorKind, KeyValueCondition, KeyValueEventKind, KeyValueStoreExt};

use super::*;

fn bucket() -> BucketName {
    BucketName::new("bucket").unwrap()
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

#[tokio::test]
async fn a_watch_from_before_a_forgotten_deletion_is_refused_and_a_later_one_is_complete() {
    let store = InMemoryKeyValueStore::new();
    for number in 0..=BUCKET_TOMBSTONES_MAX {
        let key = key(&format!("k{number}"));
        store.set(&bucket(), &key, Bytes::new()).await.unwrap();
        assert!(store.delete(&bucket(), &key, None).await.unwrap());
    }
    // The first deletion took revision 2.
    let refused = store.watch(&bucket(), "", Revision::new(1)).await.err().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Conflict);
    let watch = store.watch(&bucket(), "", Revision::new(2)).await.unwrap();
    let seen: Vec<_> = watch.take(BUCKET_TOMBSTONES_MAX).map(std::result::Result::unwrap).collect().await;
    assert!(seen.iter().all(|event| event.kind == KeyValueEventKind::Deleted));
    assert!(seen.windows(2).all(|pair| pair[0].revision < pair[1].revision));
}

#[tokio::test]
async fn a_watcher_with_an_unused_prefix_does_not_fall_behind() {
    let store = InMemoryKeyValueStore::new();
    let mut watch = store.watch(&bucket(), "mine", Revision::ZERO).await.unwrap();
    for _ in 0..3 {
        for number in 0..BUCKET_TOMBSTONES_MAX {
            let key = key(&format!("k{number}"));
            store.set(&bucket(), &key, Bytes::new()).await.unwrap();
            store.delete(&bucket(), &key, None).await.unwrap();
        }
        assert!(watch.next().now_or_never().is_none());
    }
    store.set(&bucket(), &key("mine/1"), "v".into()).await.unwrap();
    assert_eq!(watch.next().await.unwrap().unwrap().key, key("mine/1"));
}

#[tokio::test]
async fn an_expired_key_is_absent_for_every_condition_and_its_put_stays_a_change() {
    let backend = MemoryBackend::new();
    let store = InMemoryKeyValueStore::open(&backend, default_namespace());
    let options = KeyValuePutOptions::default().with_ttl(Duration::from_millis(10));
    let first = store.put(&bucket(), &key("a"), "1".into(), options).await.unwrap();
    assert!(store.get(&bucket(), &key("a")).await.unwrap().unwrap().expires_at.is_some());
    tokio::time::sleep(Duration::from_millis(25)).await;
    assert_eq!(store.get(&bucket(), &key("a")).await.unwrap(), None);
    assert!(store.list_buckets(PageRequest::default()).await.unwrap().items.is_empty());
    assert!(!store.delete(&bucket(), &key("a"), None).await.unwrap());
    let error = store.put_at(&bucket(), &key("a"), "2".into(), first).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    let mut watch = store.watch(&bucket(), "", Revision::ZERO).await.unwrap();
    let change = watch.next().await.unwrap().unwrap();
    assert_eq!((change.revision, change.kind), (first, KeyValueEventKind::Deleted));

    let options = KeyValuePutOptions::default().with_condition(KeyValueCondition::Absent);
    assert!(store.put(&bucket(), &key("a"), "3".into(), options).await.unwrap() > first);
    store.erase().await.unwrap();
    assert_eq!(backend.bytes(), 0);
}

#[tokio::test]
async fn writes_that_cannot_succeed_hold_no_memory() {
    let backend = MemoryBackend::new();
    let store = InMemoryKeyValueStore::open(&backend, default_namespace());
    let error = store.put_at(&bucket(), &key("a"), "1".into(), Revision::new(1)).await.unwrap_err();
    assert_eq!((error.kind(), backend.bytes()), (ErrorKind::Conflict, 0));
}

#[tokio::test]
async fn a_full_backend_refuses_the_complete_write() {
    let backend = MemoryBackend::with_bytes_max(2_000);
    let store = InMemoryKeyValueStore::open(&backend, default_namespace());
    store.set(&bucket(), &key("a"), "1".into()).await.unwrap();
    let error = store.set(&bucket(), &key("a"), vec![0; 2_000].into()).await.unwrap_err();
    assert_eq!((error.kind(), error.limit()), (ErrorKind::ResourceExhausted, Some(2_000)));
    assert_eq!(store.get(&bucket(), &key("a")).await.unwrap().unwrap().value, "1");
}

#[tokio::test]
async fn a_prefix_lists_its_keys_in_byte_order_page_by_page() {
    let store = InMemoryKeyValueStore::new();
    for text in ["a%b", "a", "a%", "a%c", "b", "a&"] {
        store.set(&bucket(), &key(text), Bytes::new()).await.unwrap();
    }
    let page = store.list(&bucket(), "a%", PageRequest::first(2)).await.unwrap();
    let names: Vec<_> = page.items.iter().map(|item| item.key.as_str()).collect();
    assert_eq!(names, ["a%", "a%b"]);
    let page = store.list(&bucket(), "a%", PageRequest::after(page.next.unwrap(), 2)).await.unwrap();
    assert_eq!((page.items[0].key.as_str(), page.items.len(), page.next), ("a%c", 1, None));
}

#[tokio::test]
async fn a_watch_from_0_is_not_refused_for_keys_that_expire_before_it_reads() {
    let store = InMemoryKeyValueStore::new();
    for number in 0..=BUCKET_TOMBSTONES_MAX {
        let options = KeyValuePutOptions::default().with_ttl(Duration::from_millis(1));
        store.put(&bucket(), &key(&format!("k{number}")), Bytes::new(), options).await.unwrap();
    }
    let mut watch = store.watch(&bucket(), "", Revision::ZERO).await.unwrap();
    tokio::time::sleep(Duration::from_millis(5)).await;
    // The watch continues, whether the changes are still remembered or already dropped.
    let last = store.set(&bucket(), &key("last"), Bytes::new()).await.unwrap();
    while watch.next().await.unwrap().unwrap().revision < last {}
}

#[tokio::test]
async fn a_refused_put_leaves_no_bucket_and_one_over_another_value_needs_the_difference() {
    let backend = MemoryBackend::with_bytes_max(2_000);
    let store = InMemoryKeyValueStore::open(&backend, default_namespace());
    let put = |bucket: &str, bytes: usize| {
        let (store, bucket) = (store.clone(), BucketName::new(bucket).unwrap());
        async move { store.set(&bucket, &key("a"), vec![0; bytes].into()).await }
    };
    for bucket in ["one", "two", "three", "four"] {
        let refused = put(bucket, 3_000).await.unwrap_err();
        assert_eq!((refused.kind(), backend.bytes()), (ErrorKind::ResourceExhausted, 0));
    }
    put("one", 1_000).await.unwrap();
    put("one", 900).await.unwrap();
    let held = backend.bytes();
    put("one", 1_100).await.unwrap();
    assert_eq!(backend.bytes(), held + 200);
    assert_eq!(put("one", 2_000).await.unwrap_err().kind(), ErrorKind::ResourceExhausted);
    assert_eq!(backend.bytes(), held + 200);
    store.erase().await.unwrap();
    assert_eq!(backend.bytes(), 0);
}

#[tokio::test]
async fn a_bucket_without_revisions_is_dropped_with_its_last_watcher() {
    let backend = MemoryBackend::new();
    let store = InMemoryKeyValueStore::open(&backend, default_namespace());
    let waited = store.watch(&bucket(), "", Revision::ZERO).await.unwrap();
    assert!(backend.bytes() > 0);
    drop(waited);
    assert_eq!(backend.bytes(), 0);
    let watched = store.watch(&bucket(), "", Revision::ZERO).await.unwrap();
    let first = store.set(&bucket(), &key("a"), Bytes::new()).await.unwrap();
    store.delete(&bucket(), &key("a"), None).await.unwrap();
    drop(watched);
    assert!(store.set(&bucket(), &key("a"), Bytes::new()).await.unwrap() > first);
}
