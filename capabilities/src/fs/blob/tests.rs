mod format;
mod locks;
mod mode;
mod rename;
mod versions;

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};
use larder_kernel::random::Random;
use larder_kernel::{BlobCondition, BlobStoreExt, ByteRange, ETag, Outcome, Store};
use sha2::{Digest, Sha256};
use tempfile::TempDir;

use super::*;
use crate::fs::CHUNK_BYTES;
use crate::fs::layout;
use crate::fs::locks::{Lock, LockMode};
use larder_agents::internal::hex;

fn key(text: &str) -> BlobKey {
    BlobKey::new(text).unwrap()
}

async fn open(root: &Path) -> FsBlobStore {
    FsBlobStore::open(FsConfig::new(root), Namespace::new("n").unwrap()).await.unwrap()
}

async fn keys(store: &FsBlobStore, prefix: &str, after: Option<&BlobKey>) -> Vec<String> {
    let entries = store.list(prefix, after).await.unwrap();
    entries.map_ok(|entry| entry.key.as_str().to_owned()).try_collect().await.unwrap()
}

fn temporary_files(root: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(root.join(".larder/tmp")).unwrap();
    files.map(|file| file.unwrap().path()).collect()
}

/// A small generator with a fixed seed, so that every run uses the same keys.
struct Dice(Random);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0.below(sides)
    }

    fn key(&mut self) -> String {
        const PARTS: [&str; 12] = ["a", "A", "/", "-", ".", "0", "~", "é", "%", "=", "@", "🦀"];
        loop {
            let mut text = String::new();
            if self.roll(4) == 0 {
                text.push_str(&"a".repeat(76 + self.roll(8)));
            }
            for _ in 0..=self.roll(6) {
                text.push_str(PARTS[self.roll(PARTS.len())]);
            }
            if BlobKey::new(&text).is_ok() {
                return text;
            }
        }
    }
}

#[tokio::test]
async fn listings_follow_the_order_of_bytes_for_any_keys_prefixes_and_starts() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let mut dice = Dice(Random::new(7));
    let mut model = BTreeMap::new();
    for number in 0..250 {
        let text = dice.key();
        store.put_bytes(&key(&text), Bytes::from(format!("{number}"))).await.unwrap();
        model.insert(text, number);
    }
    for (text, number) in &model {
        assert_eq!(store.get_bytes(&key(text)).await.unwrap(), format!("{number}"));
    }
    assert_eq!(keys(&store, "", None).await, model.keys().cloned().collect::<Vec<_>>());
    for _ in 0..150 {
        let (prefix, after) = (dice.key(), key(&dice.key()));
        let cut = (0..=prefix.len() / 2).rev().find(|&at| prefix.is_char_boundary(at)).unwrap();
        for prefix in [&prefix[..], &prefix[..cut]] {
            let all: Vec<_> = model.keys().filter(|text| text.starts_with(prefix)).cloned().collect();
            assert_eq!(keys(&store, prefix, None).await, all, "{prefix}");
            let later: Vec<_> = all.into_iter().filter(|text| text.as_str() > after.as_str()).collect();
            assert_eq!(keys(&store, prefix, Some(&after)).await, later, "{prefix} after {after}");
        }
    }
    for prefix in ["/", "a//", "../", "./"] {
        assert!(keys(&store, prefix, None).await.is_empty());
    }
    for text in model.keys() {
        assert!(store.delete(&key(text)).await.unwrap());
    }
    assert!(std::fs::read_dir(folder.path().join("n=")).unwrap().next().is_none(), "empty folders stay");
}

#[tokio::test]
async fn a_symbolic_link_is_neither_read_nor_written_nor_listed() {
    let (folder, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let store = open(folder.path()).await;
    store.put_bytes(&key("real"), "bytes".into()).await.unwrap();
    let namespace = folder.path().join("n=");
    std::fs::copy(namespace.join("real"), outside.path().join("x")).unwrap();
    symlink(outside.path(), namespace.join("dir=")).unwrap();
    symlink(outside.path().join("x"), namespace.join("link")).unwrap();
    for name in ["dir/x", "link"] {
        assert_eq!(store.get_bytes(&key(name)).await.unwrap_err().kind(), ErrorKind::Corrupt, "{name}");
        assert_eq!(store.delete(&key(name)).await.unwrap_err().kind(), ErrorKind::Corrupt, "{name}");
    }
    let refused = store.put_bytes(&key("dir/y"), "leak".into()).await.unwrap_err();
    assert_eq!((refused.kind(), refused.outcome()), (ErrorKind::Corrupt, Outcome::NotApplied));
    assert_eq!(keys(&store, "", None).await, ["real"]);
    // A write replaces the link itself, not what it points to.
    store.put_bytes(&key("link"), "mine".into()).await.unwrap();
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 1);
    assert_ne!(std::fs::read(outside.path().join("x")).unwrap()[..4], *b"mine");
    store.erase().await.unwrap();
    assert!(outside.path().join("x").exists(), "an erasure followed a link");
}

#[tokio::test]
async fn a_damaged_file_is_corrupt_and_can_be_overwritten() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let path = folder.path().join("n=/a");
    let whole = {
        store.put_bytes(&key("a"), "some bytes".into()).await.unwrap();
        std::fs::read(&path).unwrap()
    };
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let error = store.get_bytes(&key("a")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at}");
    }
    for length in [0, 1, 51, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert_eq!(store.head(&key("a")).await.unwrap_err().kind(), ErrorKind::Corrupt);
        let listed: Vec<_> = store.list("", None).await.unwrap().collect().await;
        assert!(matches!(&listed[..], [Err(error)] if error.kind() == ErrorKind::Corrupt));
    }
    store.put_bytes(&key("a"), "again".into()).await.unwrap();
    assert_eq!(store.get_bytes(&key("a")).await.unwrap(), "again");
}

#[tokio::test]
async fn damage_in_a_large_blob_is_found_before_its_last_chunk() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let length = 3 * CHUNK_BYTES + 1;
    store.put_bytes(&key("a"), vec![7; length].into()).await.unwrap();
    let path = folder.path().join("n=/a");
    let whole = std::fs::read(&path).unwrap();
    for at in [0, CHUNK_BYTES - 1, CHUNK_BYTES, 2 * CHUNK_BYTES + 9, length - 1] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        std::fs::write(&path, &damaged).unwrap();
        let bytes = store.get(&key("a"), BlobGetOptions::default()).await.unwrap().bytes;
        let pieces: Vec<Result<Bytes>> = bytes.collect().await;
        let (last, before) = pieces.split_last().unwrap();
        assert_eq!(last.as_ref().unwrap_err().kind(), ErrorKind::Corrupt, "byte {at}");
        assert_eq!(before.iter().map(|piece| piece.as_ref().unwrap().len()).sum::<usize>(), 3 * CHUNK_BYTES);
        let part = BlobGetOptions::default().with_range(ByteRange::Suffix(2 * CHUNK_BYTES as u64));
        assert_eq!(store.get_range(&key("a"), part).await.unwrap().len(), 2 * CHUNK_BYTES);
    }
}

#[tokio::test]
async fn a_blob_of_an_earlier_version_proves_its_sha_256() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let body = vec![7; CHUNK_BYTES + 1];
    let info = store.put_bytes(&key("a"), body.clone().into()).await.unwrap();
    let earlier = format!(
        r#"{{"etag":"{}","sha256":"{}","modified_at":"2026-01-01T00:00:00Z"}}"#,
        info.etag.as_str(),
        hex(&Sha256::digest(&body)),
    );
    let trailer = |body: &[u8]| {
        let (size, length) = (body.len() as u64, u32::try_from(earlier.len()).unwrap());
        let checksum = Sha256::digest(&earlier);
        [body, earlier.as_bytes(), &size.to_le_bytes(), &length.to_le_bytes(), &checksum, b"LARDERB1"]
            .concat()
    };
    let path = folder.path().join("n=/a");
    std::fs::write(&path, trailer(&body)).unwrap();
    assert_eq!(store.get_bytes(&key("a")).await.unwrap(), body);
    let copied = store.copy(&key("a"), &key("b")).await.unwrap();
    assert_eq!(store.get_bytes(&copied.key).await.unwrap(), body);
    let damaged: Vec<u8> = body.iter().rev().enumerate().map(|(at, byte)| byte ^ u8::from(at == 0)).collect();
    std::fs::write(&path, trailer(&damaged)).unwrap();
    assert_eq!(store.get_bytes(&key("a")).await.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn the_info_of_a_blob_is_that_of_its_last_write() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let options = BlobPutOptions::default().with_content_type("text/plain").with_metadata("owner", "me you");
    let pieces = ["ab", "", "c"].map(|piece| Ok(Bytes::from_static(piece.as_bytes())));
    let put = store.put(&key("a"), BlobBody::stream(stream::iter(pieces)), options).await.unwrap();
    assert_eq!(store.head(&key("a")).await.unwrap(), put);
    let range = BlobGetOptions::default().with_range(ByteRange::Suffix(2));
    assert_eq!(store.get_range(&key("a"), range).await.unwrap(), "bc");
    let copied = store.copy(&key("a"), &key("b/c")).await.unwrap();
    assert_eq!((copied.size, &copied.content_type, &copied.metadata), (3, &put.content_type, &put.metadata));
    assert_eq!(store.get_bytes(&key("b/c")).await.unwrap(), "abc");
    let copied = store.copy(&key("a"), &key("a")).await.unwrap();
    assert_eq!(store.get_bytes(&key("a")).await.unwrap(), "abc");
    assert_ne!(copied.etag, put.etag);
    assert_eq!(store.copy(&key("none"), &key("a")).await.unwrap_err().kind(), ErrorKind::NotFound);
    let plain = store.put_bytes(&key("a"), Bytes::new()).await.unwrap();
    assert_eq!((plain.size, plain.content_type, plain.metadata.len()), (0, None, 0));
    let read = store.get(&key("a"), BlobGetOptions::default()).await.unwrap();
    assert_eq!(read.range, 0..0);
    let get = PresignRequest::get(Duration::from_secs(60));
    assert_eq!(store.presign(&key("a"), &get).await.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test]
async fn a_large_blob_streams_in_chunks_and_a_reader_keeps_its_version() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let piece = Bytes::from((0..=250).cycle().take(100_003).collect::<Vec<u8>>());
    let body = BlobBody::stream(stream::iter(vec![piece.clone(); 40]).map(Ok));
    let info = store.put(&key("big"), body, BlobPutOptions::default()).await.unwrap();
    assert_eq!(info.size, 4_000_120);
    let mut read = store.get(&key("big"), BlobGetOptions::default()).await.unwrap();
    let first = read.bytes.try_next().await.unwrap().unwrap();
    assert!(first.len() <= CHUNK_BYTES);
    store.put_bytes(&key("big"), "new".into()).await.unwrap();
    store.delete(&key("big")).await.unwrap();
    let rest: Vec<Bytes> = read.bytes.try_collect().await.unwrap();
    assert_eq!([vec![first], rest].concat().concat(), vec![piece; 40].concat());
}

#[tokio::test(flavor = "multi_thread")]
async fn of_concurrent_conditional_writes_through_two_handles_one_wins() {
    let folder = TempDir::new().unwrap();
    let (one, two) = (open(folder.path()).await, open(folder.path()).await);
    let mut condition = BlobCondition::Absent;
    for _ in 0..5 {
        let writes = (0..8).map(|number| {
            let store = if number % 2 == 0 { one.clone() } else { two.clone() };
            let options = BlobPutOptions::default().with_condition(condition.clone());
            tokio::spawn(async move { store.put(&key("a/b"), "same".into(), options).await })
        });
        let results: Vec<_> = futures_util::future::join_all(writes).await;
        let (won, failed): (Vec<_>, Vec<_>) =
            results.into_iter().map(|r| r.unwrap()).partition(Result::is_ok);
        assert_eq!(won.len(), 1);
        assert!(
            failed.iter().all(|result| matches!(result, Err(error) if error.kind() == ErrorKind::Conflict))
        );
        condition = BlobCondition::Matches(won.into_iter().next().unwrap().unwrap().etag);
    }
    let gone = BlobPutOptions::default().with_condition(BlobCondition::Matches(ETag::new("x").unwrap()));
    assert_eq!(one.put(&key("z"), "".into(), gone).await.unwrap_err().kind(), ErrorKind::Conflict);
    assert!(temporary_files(folder.path()).is_empty());
}

#[tokio::test]
async fn a_failed_or_dropped_write_leaves_nothing_and_old_leftovers_go_at_open() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let broken = Error::new(ErrorKind::Timeout, "body", "late");
    let pieces = stream::iter([Ok(Bytes::from(vec![1; 600_000])), Err(broken)]);
    let error = store.put(&key("a"), BlobBody::stream(pieces), BlobPutOptions::default()).await.unwrap_err();
    assert_eq!((error.kind(), error.operation()), (ErrorKind::Timeout, "body"));
    assert!(temporary_files(folder.path()).is_empty());

    let endless = stream::iter([Ok(Bytes::from(vec![1; 600_000]))]).chain(stream::pending());
    let key_a = key("a");
    let put = store.put(&key_a, BlobBody::stream(endless), BlobPutOptions::default());
    assert!(tokio::time::timeout(Duration::from_millis(300), put).await.is_err());
    assert!(temporary_files(folder.path()).is_empty());
    assert!(keys(&store, "", None).await.is_empty());

    let (young, old) = (folder.path().join(".larder/tmp/young"), folder.path().join(".larder/tmp/old"));
    for path in [&young, &old] {
        std::fs::File::create(path).unwrap().write_all(b"x").unwrap();
    }
    let past = SystemTime::now() - Duration::from_secs(2 * 3600);
    std::fs::File::options().write(true).open(&old).unwrap().set_modified(past).unwrap();
    open(folder.path()).await;
    assert_eq!(temporary_files(folder.path()), [young]);
}

#[tokio::test]
async fn a_cancelled_wait_for_a_lock_does_not_write_later() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let namespace = Namespace::new("n").unwrap();
    store.put_bytes(&key("kept"), "kept".into()).await.unwrap();
    let folders = layout::namespace_folders(&namespace);
    let locked = locks::lock_as_another_process(&store, Lock::folder(&folders, LockMode::Exclusive));
    let given_up = async {
        let (new, kept, copy, moved) = (key("new"), key("kept"), key("copy"), key("moved"));
        let (put, delete) = (store.put_bytes(&new, "late".into()), store.delete(&kept));
        let rename = store.rename(&kept, &moved, RenameMode::Refuse);
        let _ = tokio::join!(put, delete, store.copy(&kept, &copy), rename);
    };
    assert!(tokio::time::timeout(Duration::from_millis(300), given_up).await.is_err());
    drop(locked);
    let others = locks::lock_as_another_process(&store, Lock::namespace(&namespace, LockMode::Shared));
    assert!(tokio::time::timeout(Duration::from_millis(300), store.erase()).await.is_err());
    drop(others);
    // They end once they have the lock.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(temporary_files(folder.path()).is_empty());
    assert_eq!(keys(&store, "", None).await, ["kept"]);
}

#[tokio::test]
async fn an_unreadable_blob_does_not_hide_later_blobs() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    for name in ["a", "b", "c"] {
        store.put_bytes(&key(name), name.into()).await.unwrap();
    }
    std::fs::write(folder.path().join("n=/b"), "damaged").unwrap();
    let listed: Vec<_> = store.list("", None).await.unwrap().collect().await;
    let listed = listed.into_iter().map(|entry| entry.map(|entry| entry.key).map_err(|error| error.kind()));
    assert_eq!(listed.collect::<Vec<_>>(), [Ok(key("a")), Err(ErrorKind::Corrupt), Ok(key("c"))]);
}

#[tokio::test]
async fn a_write_that_is_refused_leaves_no_folders() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let options =
        BlobPutOptions::default().with_condition(BlobCondition::Matches(ETag::new("other").unwrap()));
    let error = store.put(&key("a/b/c"), BlobBody::Bytes("x".into()), options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(std::fs::read_dir(folder.path().join("n=")).unwrap().next().is_none());
    assert!(temporary_files(folder.path()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_erasure_during_writes_leaves_complete_blobs_and_other_namespaces() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let other = store.in_namespace(Namespace::new("n2").unwrap());
    other.put_bytes(&key("a/b"), "kept".into()).await.unwrap();
    store.erase().await.unwrap();
    let writer = tokio::spawn({
        let store = store.clone();
        async move {
            for number in 0..60 {
                let name = key(&format!("{}/{number}", number % 3));
                store.put_bytes(&name, "x".into()).await.unwrap();
                store.delete(&name).await.unwrap();
                store.put_bytes(&name, "y".into()).await.unwrap();
            }
        }
    });
    for _ in 0..10 {
        store.erase().await.unwrap();
        for name in keys(&store, "", None).await {
            let read = store.get_bytes(&key(&name)).await;
            assert!(read.is_ok_and(|bytes| bytes.len() == 1) || !writer.is_finished());
        }
    }
    writer.await.unwrap();
    store.erase().await.unwrap();
    assert!(keys(&store, "", None).await.is_empty());
    assert_eq!(other.get_bytes(&key("a/b")).await.unwrap(), "kept");
    assert!(std::fs::read_dir(folder.path().join(".larder/trash")).unwrap().next().is_none());
    assert_eq!(format!("{store:?}"), "FsBlobStore { .. }");
}

#[tokio::test]
async fn a_write_dropped_at_any_poll_is_complete_or_absent() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    for polls in 0..40 {
        let name = key(&format!("a/{polls}"));
        let body = BlobBody::stream(stream::iter(vec![Bytes::from(vec![7; 300_000]); 3]).map(Ok));
        let mut put = Box::pin(store.put(&name, body, BlobPutOptions::default()));
        for _ in 0..polls {
            if (&mut put).now_or_never().is_some() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop(put);
        match store.get_bytes(&name).await {
            Ok(bytes) => assert_eq!(bytes, vec![7; 900_000]),
            Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
        }
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(temporary_files(folder.path()).is_empty());
    store.put_bytes(&key("a/0"), "again".into()).await.unwrap();
    assert_eq!(store.get_bytes(&key("a/0")).await.unwrap(), "again");
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_that_stay_are_in_every_listing_while_they_are_overwritten() {
    let folder = TempDir::new().unwrap();
    let store = open(folder.path()).await;
    let names: Vec<String> = (10..40).map(|number| format!("a/{number}")).collect();
    for name in &names {
        store.put_bytes(&key(name), "x".into()).await.unwrap();
    }
    let writer = tokio::spawn({
        let (store, names) = (store.clone(), names.clone());
        async move {
            for name in names.iter().cycle().take(150) {
                store.put_bytes(&key(name), "y".into()).await.unwrap();
                store.put_bytes(&key("a/b/c"), "z".into()).await.unwrap();
                store.delete(&key("a/b/c")).await.unwrap();
            }
        }
    });
    while !writer.is_finished() {
        let listed: Vec<_> = keys(&store, "a/", None).await.into_iter().filter(|k| k != "a/b/c").collect();
        assert_eq!(listed, names);
    }
    writer.await.unwrap();
}
