use std::time::Duration;

use futures_util::StreamExt;
use larder_kernel::limits::BUCKET_TOMBSTONES_MAX;
use larder_kernel::{ErrorKind, KeyValueEventKind, KeyValueStoreExt};
use tempfile::TempDir;

use super::super::{Sqlite, SqliteConfig, Synchronous};
use super::*;

async fn open(folder: &TempDir) -> SqliteKeyValueStore {
    let config = SqliteConfig::new(folder.path().join("larder.db")).with_synchronous(Synchronous::Normal);
    Sqlite::open(config).await.unwrap().key_value(Namespace::new("test").unwrap())
}

fn bucket() -> BucketName {
    BucketName::new("bucket").unwrap()
}

fn key(text: &str) -> Key {
    Key::new(text).unwrap()
}

async fn set(store: &SqliteKeyValueStore, name: &str) -> Revision {
    store.set(&bucket(), &key(name), Bytes::copy_from_slice(name.as_bytes())).await.unwrap()
}

async fn take(events: &mut KeyValueEvents, count: usize) -> Vec<(u64, String, bool)> {
    let taken = events.take(count).map(|event| {
        let event = event.unwrap();
        let there = matches!(event.kind, KeyValueEventKind::Put { .. });
        (event.revision.get(), event.key.as_str().to_owned(), there)
    });
    tokio::time::timeout(Duration::from_secs(5), taken.collect()).await.expect("events in time")
}

#[tokio::test]
async fn conditions_compare_with_the_stored_blob() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let first = store.create(&bucket(), &key("a"), Bytes::new()).await.unwrap();
    let again = store.create(&bucket(), &key("a"), Bytes::new()).await.unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Conflict);
    let second = store.put_at(&bucket(), &key("a"), Bytes::from_static(b"\0\xff"), first).await.unwrap();
    assert!(second > first);
    let lost = store.put_at(&bucket(), &key("a"), Bytes::new(), first).await.unwrap_err();
    assert_eq!(lost.kind(), ErrorKind::Conflict);
    let entry = store.get(&bucket(), &key("a")).await.unwrap().unwrap();
    assert_eq!((&entry.value[..], entry.revision), (&b"\0\xff"[..], second));
    assert_eq!(
        store.delete(&bucket(), &key("a"), Some(first)).await.unwrap_err().kind(),
        ErrorKind::Conflict
    );
    assert!(store.delete(&bucket(), &key("a"), Some(second)).await.unwrap());
    assert!(!store.delete(&bucket(), &key("a"), None).await.unwrap());
    assert!(set(&store, "a").await.get() > second.get() + 1);
}

#[tokio::test]
async fn a_prefix_is_bytes_and_pages_visit_each_key_once() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    for name in ["a", "a%", "a%b", "aé", "a\u{10ffff}", "b", "A"] {
        set(&store, name).await;
    }
    let mut found = Vec::new();
    let mut page = PageRequest::first(2);
    loop {
        let listed = store.list(&bucket(), "a", page).await.unwrap();
        found.extend(listed.items.into_iter().map(|item| item.key));
        match listed.next {
            Some(next) => page = PageRequest::after(next, 2),
            None => break,
        }
    }
    assert_eq!(found, ["a", "a%", "a%b", "aé", "a\u{10ffff}"].map(key));
    assert_eq!(store.list(&bucket(), "a%", PageRequest::default()).await.unwrap().items.len(), 2);
    let listed = store.list_buckets(PageRequest::default()).await.unwrap();
    assert_eq!(listed.items, [BucketInfo { bucket: bucket(), keys: 7 }]);
}

#[tokio::test]
async fn a_watch_receives_changes_and_deletions_of_other_handles() {
    let folder = TempDir::new().unwrap();
    let (ours, theirs) = (open(&folder).await, open(&folder).await);
    for name in ["a1", "b", "a2", "a1"] {
        set(&ours, name).await;
    }
    let mut events = ours.watch(&bucket(), "a", Revision::ZERO).await.unwrap();
    let seen = take(&mut events, 2).await;
    assert_eq!(seen, [(3, "a2".to_owned(), true), (4, "a1".to_owned(), true)]);
    theirs.delete(&bucket(), &key("a2"), None).await.unwrap();
    assert_eq!(take(&mut events, 1).await, [(5, "a2".to_owned(), false)]);
    let mut later = theirs.watch(&bucket(), "", Revision::new(4)).await.unwrap();
    assert_eq!(take(&mut later, 1).await, [(5, "a2".to_owned(), false)]);
}

#[tokio::test]
async fn a_bucket_remembers_its_last_deletions_and_refuses_older_watches() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let deletions = BUCKET_TOMBSTONES_MAX + 300;
    for n in 0..deletions {
        let name = n.to_string();
        set(&store, &name).await;
        store.delete(&bucket(), &key(&name), None).await.unwrap();
    }
    let error = store.watch(&bucket(), "", Revision::new(1)).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    // Each put and each deletion takes one revision, so the last ones begin after this.
    let after = Revision::new(2 * (deletions - BUCKET_TOMBSTONES_MAX) as u64);
    let mut events = store.watch(&bucket(), "", after).await.unwrap();
    assert_eq!(take(&mut events, BUCKET_TOMBSTONES_MAX).await.len(), BUCKET_TOMBSTONES_MAX);
}

#[tokio::test]
async fn a_page_may_begin_before_or_within_the_prefix() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    for name in ["a", "b1", "b2", "c"] {
        set(&store, name).await;
    }
    for (after, expected) in [("a", vec!["b1", "b2"]), ("b1", vec!["b2"]), ("c", vec![])] {
        let listed = store.list(&bucket(), "b", PageRequest::after(key(after), 9)).await.unwrap();
        assert_eq!(listed.items.iter().map(|item| item.key.as_str()).collect::<Vec<_>>(), expected);
    }
}

#[tokio::test]
async fn an_expired_key_is_absent_for_reads_and_conditions() {
    let folder = TempDir::new().unwrap();
    let store = open(&folder).await;
    let brief = KeyValuePutOptions::default().with_ttl(Duration::from_millis(30));
    let first = store.put(&bucket(), &key("a"), Bytes::new(), brief).await.unwrap();
    tokio::time::sleep(Duration::from_millis(40)).await;
    assert_eq!(store.get(&bucket(), &key("a")).await.unwrap(), None);
    assert!(store.list_buckets(PageRequest::default()).await.unwrap().items.is_empty());
    assert!(!store.delete(&bucket(), &key("a"), None).await.unwrap());
    assert!(store.create(&bucket(), &key("a"), Bytes::new()).await.unwrap() > first);
    assert_eq!(store.get(&bucket(), &key("a")).await.unwrap().unwrap().expires_at, None);
}
