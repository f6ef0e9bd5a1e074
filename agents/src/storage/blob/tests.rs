use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{BlobStoreExt, ByteRange};

use super::*;

fn key(text: &str) -> BlobKey {
    BlobKey::new(text).unwrap()
}

fn pieces(pieces: impl IntoIterator<Item = Bytes>) -> BlobBody {
    BlobBody::stream(stream::iter(pieces.into_iter().map(Ok).collect::<Vec<_>>()))
}

#[tokio::test]
async fn streams_read_back_completely_and_by_range_across_chunks() {
    let store = InMemoryBlobStore::new();
    let bytes: Vec<u8> = (0..700_001_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let parts = [0..1, 1..1, 1..300_000, 300_000..700_001].map(|range| Bytes::copy_from_slice(&bytes[range]));
    let info = store.put(&key("k"), pieces(parts), BlobPutOptions::default()).await.unwrap();
    assert_eq!(info.size, 700_001);
    assert_eq!(store.get_bytes(&key("k")).await.unwrap(), bytes);
    for (range, expected) in [
        (ByteRange::Bounded { start: 262_143, end: 262_145 }, 262_143..262_145),
        (ByteRange::Bounded { start: 5, end: u64::MAX }, 5..700_001),
        (ByteRange::From(524_288), 524_288..700_001),
        (ByteRange::Suffix(1), 700_000..700_001),
    ] {
        let read = store.get_range(&key("k"), BlobGetOptions::default().with_range(range)).await.unwrap();
        assert_eq!(read, bytes[expected]);
    }
    store.put_bytes(&key("empty"), Bytes::new()).await.unwrap();
    assert_eq!(store.get_bytes(&key("empty")).await.unwrap(), "");
}

#[tokio::test]
async fn conditions_compare_and_write_in_one_step() {
    let store = InMemoryBlobStore::new();
    let put = async |text: &'static str, condition| {
        store.put(&key("k"), text.into(), BlobPutOptions::default().with_condition(condition)).await
    };
    let first = put("1", BlobCondition::Absent).await.unwrap();
    assert_eq!(put("2", BlobCondition::Absent).await.unwrap_err().kind(), ErrorKind::Conflict);
    let second = put("2", BlobCondition::Matches(first.etag.clone())).await.unwrap();
    assert_ne!(first.etag, second.etag);
    assert_eq!(put("3", BlobCondition::Matches(first.etag)).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert_eq!(store.head(&key("k")).await.unwrap(), second);

    // Another write happens while the body is still arriving, so the condition is checked again.
    let other = store.clone();
    let overtaken = BlobBody::stream(stream::once(async move {
        other.put_bytes(&key("late"), Bytes::from_static(b"won")).await?;
        Ok(Bytes::from_static(b"lost"))
    }));
    let options = BlobPutOptions::default().with_condition(BlobCondition::Absent);
    let error = store.put(&key("late"), overtaken, options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert_eq!(store.get_bytes(&key("late")).await.unwrap(), "won");
}

#[tokio::test]
async fn a_body_past_the_cap_or_broken_or_dropped_leaves_nothing() {
    let backend = MemoryBackend::with_bytes_max(1_000);
    let store = InMemoryBlobStore::open(&backend, Namespace::new("n").unwrap());
    store.put_bytes(&key("k"), Bytes::from_static(b"old")).await.unwrap();
    let held = backend.bytes();
    let endless = BlobBody::stream(stream::repeat_with(|| Ok(Bytes::from_static(&[7; 100]))));
    let error = store.put(&key("k"), endless, BlobPutOptions::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    let broken = Error::new(ErrorKind::Unavailable, "test", "gone");
    let failing = BlobBody::stream(stream::iter([Ok(Bytes::from_static(b"x")), Err(broken)]));
    let error = store.put(&key("k"), failing, BlobPutOptions::default()).await.unwrap_err();
    assert_eq!(error.operation(), "test");
    let begun = stream::iter([Ok(Bytes::from_static(b"x"))]);
    let stuck = BlobBody::stream(futures_util::StreamExt::chain(begun, stream::pending()));
    let (waited_for, options) = (key("k"), BlobPutOptions::default());
    let put = store.put(&waited_for, stuck, options);
    assert!(tokio::time::timeout(Duration::from_millis(5), put).await.is_err());
    assert_eq!(backend.bytes(), held);
    assert_eq!(store.get_bytes(&key("k")).await.unwrap(), "old");
    assert!(store.delete(&key("k")).await.unwrap());
    assert_eq!(backend.bytes(), 0);
}

#[tokio::test]
async fn listings_page_by_key_under_writes_and_prefixes_are_bytes() {
    let store = InMemoryBlobStore::new();
    for n in 0..600 {
        store.put_bytes(&key(&format!("a/{n:03}")), Bytes::new()).await.unwrap();
    }
    for text in ["a", "a0", "b/1"] {
        store.put_bytes(&key(text), Bytes::new()).await.unwrap();
    }
    let mut listing = store.list("a/", None).await.unwrap();
    let mut listed = 0;
    while let Some(entry) = listing.try_next().await.unwrap() {
        assert_eq!(entry.key, key(&format!("a/{listed:03}")));
        assert_eq!(entry.etag, store.head(&entry.key).await.unwrap().etag);
        store.delete(&entry.key).await.unwrap();
        listed += 1;
    }
    assert_eq!(listed, 600);
    let list = async |prefix: &str, after: Option<&str>| {
        let after = after.map(key);
        let entries = store.list(prefix, after.as_ref()).await.unwrap();
        entries.map_ok(|entry| entry.key.to_string()).try_collect::<Vec<_>>().await.unwrap()
    };
    assert_eq!(list("", None).await, ["a", "a0", "b/1"]);
    assert_eq!(list("a", Some("a")).await, ["a0"]);
    assert_eq!(list("a", Some("A")).await, ["a", "a0"]);
    assert!(list("a", Some("b")).await.is_empty());
}

#[tokio::test]
async fn readers_keep_their_version_and_copies_are_independent() {
    let store = InMemoryBlobStore::new();
    store.put_bytes(&key("k"), Bytes::from_static(b"old")).await.unwrap();
    let read = store.get(&key("k"), BlobGetOptions::default()).await.unwrap();
    let copy = store.copy(&key("k"), &key("k/copy")).await.unwrap();
    assert_eq!(store.copy(&key("k"), &key("k")).await.unwrap(), store.head(&key("k")).await.unwrap());
    store.put_bytes(&key("k"), Bytes::from_static(b"new")).await.unwrap();
    assert!(store.delete(&key("k")).await.unwrap());
    assert_eq!(read.bytes.try_collect::<Vec<_>>().await.unwrap(), ["old"]);
    assert_eq!(store.head(&key("k/copy")).await.unwrap(), copy);
    assert_eq!(store.get_bytes(&key("k/copy")).await.unwrap(), "old");
    let request = PresignRequest::get(Duration::from_secs(60));
    assert_eq!(store.presign(&key("k/copy"), &request).await.unwrap().url, "memory://k/copy");
}

#[tokio::test]
async fn a_rename_counts_the_new_key_and_no_longer_the_replaced_blob() {
    let backend = MemoryBackend::with_bytes_max(2_000);
    let store = InMemoryBlobStore::open(&backend, Namespace::new("n").unwrap());
    let (short, long) = (key("k"), key(&"k".repeat(100)));
    store.put_bytes(&short, vec![7; 1_400].into()).await.unwrap();
    let held = backend.bytes();
    // The bytes need no second place.
    store.rename(&short, &long, RenameMode::Refuse).await.unwrap();
    assert_eq!(backend.bytes(), held + 99);
    store.rename(&long, &short, RenameMode::Refuse).await.unwrap();
    assert_eq!(backend.bytes(), held);
    store.put_bytes(&key("o"), "other".into()).await.unwrap();
    store.rename(&short, &key("o"), RenameMode::Replace).await.unwrap();
    assert_eq!(backend.bytes(), held);
    let too_long = key(&"k".repeat(512));
    let error = store.rename(&key("o"), &too_long, RenameMode::Refuse).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ResourceExhausted);
    assert_eq!((backend.bytes(), store.get_bytes(&key("o")).await.unwrap().len()), (held, 1_400));
    store.erase().await.unwrap();
    assert_eq!(backend.bytes(), 0);
}

#[tokio::test]
async fn earlier_versions_count_until_they_are_deleted() {
    let backend = MemoryBackend::with_bytes_max(10_000).with_blob_versions();
    let store = InMemoryBlobStore::open(&backend, Namespace::new("n").unwrap());
    for _ in 0..3 {
        store.put_bytes(&key("k"), vec![7; 1_000].into()).await.unwrap();
    }
    let one = backend.bytes() / 3;
    assert!(store.delete(&key("k")).await.unwrap());
    assert_eq!(backend.bytes(), 3 * one);
    let versions: Vec<_> = store.list_versions(&key("k")).await.unwrap().try_collect().await.unwrap();
    assert!(store.delete_version(&key("k"), &versions[1].id).await.unwrap());
    assert_eq!((versions.len(), backend.bytes()), (3, 2 * one));
    store.erase().await.unwrap();
    assert_eq!(backend.bytes(), 0);
    let error = InMemoryBlobStore::new().list_versions(&key("k")).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}
