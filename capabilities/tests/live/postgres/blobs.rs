//! Blobs: readers during overwrites, the sweep, dropped writes, bounded memory, and damage.

mod memory;

use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use larder_capabilities::postgres::{Postgres, PostgresBlobStore};
use larder_kernel::{
    BlobBody, BlobCondition, BlobGetOptions, BlobKey, BlobPutOptions, BlobRead, BlobStore, BlobStoreExt,
    ByteRange, Error, ErrorKind, Outcome, RenameMode, Store,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::connections::run;
use super::outage::namespace;
use super::{drop_after, open, with_database};

pub(crate) use memory::{
    a_blob_goes_through_one_connection_in_both_directions,
    a_read_keeps_few_chunks_and_no_transaction_between_polls, a_write_keeps_few_pieces_of_its_body,
};

const CHUNK: usize = 256 * 1024;

fn key(text: &str) -> BlobKey {
    BlobKey::new(text).unwrap()
}

/// Returns bytes of which no two chunks are equal.
fn body(seed: u8, bytes: usize) -> Bytes {
    (0..bytes).map(|at| u8::try_from((at / CHUNK * 7 + at % 251) % 256).unwrap() ^ seed).collect()
}

async fn count(admin: &mut PgConnection, what: &str) -> i64 {
    let select = format!("SELECT count(*) FROM larder.{what}");
    sqlx::query_scalar(AssertSqlSafe(select)).fetch_one(admin).await.unwrap()
}

async fn rest(read: BlobRead) -> Result<Vec<u8>, Error> {
    let chunks: Vec<Bytes> = read.bytes.try_collect().await?;
    Ok(chunks.concat())
}

/// Starts a read and takes its first chunk.
async fn begun(blobs: &PostgresBlobStore, name: &str) -> (Vec<u8>, BlobRead) {
    let mut read = blobs.get(&key(name), BlobGetOptions::default()).await.unwrap();
    let first = read.bytes.next().await.unwrap().unwrap();
    (first.to_vec(), read)
}

async fn setup(url: &str) -> (Postgres, PostgresBlobStore, PgConnection) {
    let postgres = open(url).await.unwrap();
    let blobs = postgres.blobs(namespace());
    (postgres, blobs, PgConnection::connect(url).await.unwrap())
}

pub(crate) async fn a_reader_gets_the_old_bytes_for_ten_minutes_after_an_overwrite() {
    with_database("blob_readers", async |url: String| {
        let (postgres, blobs, mut admin) = setup(&url).await;
        let old = body(1, 20 * CHUNK + 5);
        for name in ["replaced", "deleted", "target", "source", "late"] {
            blobs.put_bytes(&key(name), old.clone()).await.unwrap();
        }
        let mut reads = Vec::new();
        for name in ["replaced", "deleted", "target", "source"] {
            reads.push(begun(&blobs, name).await);
        }
        blobs.put_bytes(&key("replaced"), body(2, 3 * CHUNK)).await.unwrap();
        blobs.put_bytes(&key("replaced"), Bytes::from_static(b"small")).await.unwrap();
        assert!(blobs.delete(&key("deleted")).await.unwrap());
        blobs.rename(&key("source"), &key("target"), RenameMode::Replace).await.unwrap();
        assert_eq!(count(&mut admin, "blob_leftovers").await, 4);
        assert_eq!(postgres.sweep().await.unwrap(), 0);
        let due =
            "blob_leftovers WHERE sweep_ms BETWEEN larder.now_ms() + 590000 AND larder.now_ms() + 600000";
        assert_eq!(count(&mut admin, due).await, 4);
        for (mut first, read) in reads {
            first.extend(rest(read).await.unwrap());
            assert!(first == old);
        }
        let (_, late) = begun(&blobs, "late").await;
        blobs.copy(&key("late"), &key("copy")).await.unwrap();
        let (_, of_copy) = begun(&blobs, "copy").await;
        blobs.delete(&key("late")).await.unwrap();
        run(&mut admin, "UPDATE larder.blob_leftovers SET sweep_ms = 1").await;
        postgres.sweep().await.unwrap();
        // The copy has the content of the deleted blob.
        assert_eq!(rest(late).await.unwrap().len() + CHUNK, old.len());
        assert_eq!(count(&mut admin, "blob_leftovers").await, 0);
        assert_eq!(count(&mut admin, "blob_chunks").await, 2 * 21);
        blobs.delete(&key("copy")).await.unwrap();
        run(&mut admin, "UPDATE larder.blob_leftovers SET sweep_ms = 1").await;
        postgres.sweep().await.unwrap();
        let error = rest(of_copy).await.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Conflict, Outcome::NotApplied), "{error}");
        assert!(error.message().contains("read it again"), "{error}");
        assert_eq!(count(&mut admin, "blob_chunks").await, 21);
        assert!(blobs.get_bytes(&key("target")).await.unwrap() == old);
        postgres.close().await;
    })
    .await;
}

/// Waits until no session of the store is in a transaction or a statement.
async fn until_idle(admin: &mut PgConnection, at_most: Duration) {
    let busy = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
            AND (xact_start IS NOT NULL OR state <> 'idle')";
    let idle = async {
        while sqlx::query_scalar::<_, i64>(busy).fetch_one(&mut *admin).await.unwrap() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(at_most, idle).await.expect("a session stays busy");
}

/// Waits until no chunk and no content is left. A dropped beginning has no chunks, and its row stays for the
/// sweep; the server may create it after the drop.
async fn without_leftovers(admin: &mut PgConnection) -> bool {
    for _ in 0..6_000 {
        let begun = "DELETE FROM larder.blob_leftovers l WHERE sweep_ms > 0 AND NOT EXISTS (
            SELECT FROM larder.blob_chunks c WHERE c.content = l.content)";
        run(admin, begun).await;
        if count(admin, "blob_chunks").await + count(admin, "blob_leftovers").await == 0 {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    false
}

pub(crate) async fn a_dropped_or_failed_write_leaves_no_chunks() {
    with_database("blob_dropped", async |url: String| {
        let (postgres, blobs, mut admin) = setup(&url).await;
        let full = body(3, 40 * CHUNK);
        let (dropped, silent_key, failing_key) = (key("dropped"), key("silent"), key("failing"));
        for polls in 0..30 {
            let put = blobs.put(&dropped, full.clone().into(), BlobPutOptions::default());
            drop_after(polls, put).await;
            if let Ok(found) = blobs.get_bytes(&dropped).await {
                assert!(found == full);
                blobs.delete(&dropped).await.unwrap();
                run(&mut admin, "UPDATE larder.blob_leftovers SET sweep_ms = 1").await;
                postgres.sweep().await.unwrap();
            }
        }
        // The server may run the last dropped statement late.
        until_idle(&mut admin, Duration::from_secs(60)).await;
        if blobs.delete(&dropped).await.unwrap() {
            run(&mut admin, "UPDATE larder.blob_leftovers SET sweep_ms = 1").await;
            postgres.sweep().await.unwrap();
        }
        let pieces: Vec<_> = (0..20).map(|_| Ok(full.slice(..CHUNK))).collect();
        let silent = stream::iter(pieces.clone()).chain(stream::pending());
        let put = blobs.put(&silent_key, BlobBody::stream(silent), BlobPutOptions::default());
        assert!(tokio::time::timeout(Duration::from_millis(500), put).await.is_err());
        let broken = Error::new(ErrorKind::Unexpected, "test", "the source failed");
        let failing = stream::iter(pieces.clone()).chain(stream::iter([Err(broken)]));
        let put = blobs.put(&failing_key, BlobBody::stream(failing), BlobPutOptions::default());
        assert_eq!(put.await.unwrap_err().message(), "the source failed");
        let absent = BlobPutOptions::default().with_condition(BlobCondition::Absent);
        blobs.put_bytes(&key("there"), Bytes::from_static(b"small")).await.unwrap();
        let refused = blobs.put(&key("there"), full.clone().into(), absent).await.unwrap_err();
        assert_eq!((refused.kind(), refused.outcome()), (ErrorKind::Conflict, Outcome::NotApplied));
        assert!(without_leftovers(&mut admin).await);
        assert_eq!(count(&mut admin, "blobs").await, 1);
        postgres.close().await;
    })
    .await;
}

/// A process that was killed cannot remove its chunks.
pub(crate) async fn an_abandoned_write_is_swept_after_an_hour_and_not_before() {
    with_database("blob_abandoned", async |url: String| {
        let (postgres, blobs, mut admin) = setup(&url).await;
        run(
            &mut admin,
            "DO $$ DECLARE c bigint := larder.blob_begin('n', 3600000); BEGIN
                FOR i IN 0..150 LOOP
                    PERFORM larder.blob_push('n', c, i, '{0}', '{\\x00}', 3600000);
                END LOOP;
            END $$",
        )
        .await;
        assert_eq!(postgres.sweep().await.unwrap(), 0);
        assert_eq!(count(&mut admin, "blob_chunks").await, 151);
        // A push without chunks says that a slow write goes on.
        run(
            &mut admin,
            "UPDATE larder.blob_leftovers SET sweep_ms = larder.now_ms() + 9000;
            SELECT larder.blob_push('n', content, 151, '{}', '{}', 3600000) FROM larder.blob_leftovers",
        )
        .await;
        assert_eq!(count(&mut admin, "blob_leftovers WHERE sweep_ms > larder.now_ms() + 3500000").await, 1);
        assert_eq!(count(&mut admin, "blob_chunks").await, 151);
        run(&mut admin, "UPDATE larder.blob_leftovers SET sweep_ms = sweep_ms - 3600000").await;
        // Another sweep uses the content.
        run(&mut admin, "BEGIN; SELECT FROM larder.blob_leftovers FOR UPDATE").await;
        assert_eq!(postgres.sweep().await.unwrap(), 0);
        run(&mut admin, "COMMIT").await;
        assert_eq!(count(&mut admin, "blob_chunks").await, 151);
        assert_eq!(postgres.sweep().await.unwrap(), 0);
        assert_eq!(count(&mut admin, "blob_chunks").await, 0);
        assert_eq!(count(&mut admin, "blob_leftovers").await, 0);
        blobs.put_bytes(&key("large"), body(1, 9 * CHUNK)).await.unwrap();
        blobs.put_bytes(&key("large"), body(2, 9 * CHUNK)).await.unwrap();
        blobs.erase().await.unwrap();
        for table in ["blobs", "blob_chunks", "blob_leftovers"] {
            assert_eq!(count(&mut admin, table).await, 0, "{table}");
        }
        postgres.close().await;
    })
    .await;
}

/// The chunks are written without a flush of each, so a crash of the server can lose them before the end.
pub(crate) async fn a_write_whose_chunks_are_lost_fails_and_changes_nothing() {
    with_database("blob_lost", async |url: String| {
        let (postgres, blobs, mut admin) = setup(&url).await;
        let old = body(9, 2 * CHUNK);
        let full = body(4, 12 * CHUNK);
        let k = key("k");
        blobs.put_bytes(&k, old.clone()).await.unwrap();
        for loss in [
            "DELETE FROM larder.blob_chunks WHERE chunk = 2",
            "UPDATE larder.blob_leftovers SET sweep_ms = 1",
        ] {
            let (sender, body) = sent();
            let put = blobs.put(&k, body, BlobPutOptions::default());
            let (put, ()) = futures_util::join!(put, async {
                for chunk in 0..8 {
                    sender.send(full.slice(chunk * CHUNK..(chunk + 1) * CHUNK)).unwrap();
                }
                until_chunks(&mut admin, 2 + 8).await;
                run(&mut admin, loss).await;
                postgres.sweep().await.unwrap();
                sender.send(full.slice(8 * CHUNK..)).unwrap();
                drop(sender);
            });
            let error = put.unwrap_err();
            assert_eq!(
                (error.kind(), error.outcome()),
                (ErrorKind::Unavailable, Outcome::NotApplied),
                "{loss}"
            );
            assert!(error.message().contains("write the blob again"), "{error}");
            assert!(blobs.get_bytes(&k).await.unwrap() == old);
            run(
                &mut admin,
                "DELETE FROM larder.blob_chunks WHERE content <> (SELECT content FROM larder.blobs)",
            )
            .await;
        }
        postgres.close().await;
    })
    .await;
}

/// A body whose pieces a test sends one by one.
fn sent() -> (tokio::sync::mpsc::UnboundedSender<Bytes>, BlobBody) {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    let pieces = stream::unfold(receiver, |mut receiver| async move {
        let piece: Bytes = receiver.recv().await?;
        Some((Ok(piece), receiver))
    });
    (sender, BlobBody::stream(pieces))
}

async fn until_chunks(admin: &mut PgConnection, chunks: i64) {
    while count(admin, "blob_chunks").await < chunks {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A server that crashes also forgets the numbers that it drew for commits that were not flushed.
pub(crate) async fn a_write_from_before_a_crash_never_gets_the_content_of_a_later_one() {
    with_database("blob_crashed", async |url: String| {
        let (postgres, blobs, mut admin) = setup(&url).await;
        let (before, after) = (body(1, 12 * CHUNK), body(2, 12 * CHUNK));
        let ((old_sender, old_body), (new_sender, new_body)) = (sent(), sent());
        let (old_key, new_key) = (key("before"), key("after"));
        let old = blobs.put(&old_key, old_body, BlobPutOptions::default());
        let new = blobs.put(&new_key, new_body, BlobPutOptions::default());
        let sending = async {
            old_sender.send(before.slice(..4 * CHUNK)).unwrap();
            until_chunks(&mut admin, 4).await;
            run(
                &mut admin,
                "DELETE FROM larder.blob_chunks; DELETE FROM larder.blob_leftovers;
                SELECT setval('larder.blob_numbers', 1, false)",
            )
            .await;
            // The later write begins now, because its body was empty before.
            new_sender.send(after.slice(..4 * CHUNK)).unwrap();
            until_chunks(&mut admin, 4).await;
            old_sender.send(before.slice(4 * CHUNK..)).unwrap();
            drop(old_sender);
            tokio::time::sleep(Duration::from_millis(300)).await;
            new_sender.send(after.slice(4 * CHUNK..)).unwrap();
            drop(new_sender);
        };
        let (old, new, ()) = futures_util::join!(old, new, sending);
        let error = old.unwrap_err();
        assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unavailable, Outcome::NotApplied), "{error}");
        new.unwrap();
        assert!(blobs.get_bytes(&new_key).await.unwrap() == after);
        postgres.close().await;
    })
    .await;
}

pub(crate) async fn an_erasure_removes_the_bytes_that_a_sweep_uses() {
    with_database("blob_erased", async |url: String| {
        let (postgres, blobs, mut admin) = setup(&url).await;
        blobs.put_bytes(&key("large"), body(1, 9 * CHUNK)).await.unwrap();
        blobs.delete(&key("large")).await.unwrap();
        run(&mut admin, "UPDATE larder.blob_leftovers SET sweep_ms = 0").await;
        run(&mut admin, "BEGIN; SELECT FROM larder.blob_leftovers FOR UPDATE").await;
        let (erased, ()) = futures_util::join!(blobs.erase(), async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            run(&mut admin, "COMMIT").await;
        });
        erased.unwrap();
        assert_eq!(count(&mut admin, "blob_chunks").await, 0);
        postgres.close().await;
    })
    .await;
}

/// Each damage, and a range that meets it; `None` if only a read of the whole blob can find it.
const DAMAGE: &[(&str, &str, Option<ByteRange>)] = &[
    ("DELETE FROM larder.blob_chunks WHERE chunk = 5", "large", Some(byte_range(5, 6))),
    ("DELETE FROM larder.blob_chunks WHERE chunk = 9", "large", Some(byte_range(0, 1))),
    ("DELETE FROM larder.blob_chunks", "large", Some(byte_range(0, 1))),
    (
        "UPDATE larder.blob_chunks SET bytes = set_byte(bytes, 9, 255 - get_byte(bytes, 9)) WHERE chunk = 5",
        "large",
        Some(byte_range(5, 6)),
    ),
    ("UPDATE larder.blob_chunks SET crc = crc + 1 WHERE chunk = 5", "large", Some(byte_range(5, 6))),
    (
        "UPDATE larder.blob_chunks SET bytes = substr(bytes, 2) WHERE chunk = 5",
        "large",
        Some(byte_range(5, 6)),
    ),
    (
        "UPDATE larder.blob_chunks c SET bytes = o.bytes, crc = o.crc FROM larder.blob_chunks o
         WHERE c.chunk = 5 AND o.chunk = 4 AND o.content = c.content",
        "large",
        Some(byte_range(5, 6)),
    ),
    ("UPDATE larder.blobs SET size = size - 262144 WHERE key = 'large'", "large", Some(byte_range(0, 99))),
    ("UPDATE larder.blobs SET size = 0 WHERE key = 'large'", "large", None),
    (
        "UPDATE larder.blobs SET content = (SELECT content FROM larder.blobs WHERE key = 'other')
         WHERE key = 'large'",
        "large",
        None,
    ),
    ("UPDATE larder.blobs SET content = NULL WHERE key = 'large'", "large", Some(byte_range(0, 1))),
    ("UPDATE larder.blobs SET metadata = '[' WHERE key = 'large'", "large", Some(byte_range(0, 1))),
    ("UPDATE larder.blobs SET bytes = 'smalL' WHERE key = 'small'", "small", Some(ByteRange::From(1))),
    ("UPDATE larder.blobs SET bytes = 'smal' WHERE key = 'small'", "small", Some(ByteRange::From(1))),
    ("UPDATE larder.blobs SET size = 4 WHERE key = 'small'", "small", Some(ByteRange::From(1))),
    ("UPDATE larder.blobs SET crc = 0 WHERE key = 'small'", "small", Some(ByteRange::From(1))),
    ("UPDATE larder.blobs SET bytes = NULL WHERE key = 'small'", "small", Some(ByteRange::From(1))),
];

/// Returns the bytes of these chunks.
const fn byte_range(from: u64, to: u64) -> ByteRange {
    ByteRange::Bounded { start: from * CHUNK as u64 + 3, end: to * CHUNK as u64 }
}

pub(crate) async fn missing_and_altered_chunks_are_corrupt_and_never_short_data() {
    with_database("blob_damage", async |url: String| {
        let (postgres, blobs, mut admin) = setup(&url).await;
        let (large, other) = (body(5, 10 * CHUNK), body(6, 10 * CHUNK));
        for (damage, name, range) in DAMAGE {
            blobs.erase().await.unwrap();
            blobs.put_bytes(&key("large"), large.clone()).await.unwrap();
            blobs.put_bytes(&key("other"), other.clone()).await.unwrap();
            blobs.put_bytes(&key("small"), Bytes::from_static(b"small")).await.unwrap();
            run(&mut admin, damage).await;
            let read = async |range: Option<ByteRange>| {
                let options = BlobGetOptions::default().with_range(range);
                rest(blobs.get(&key(name), options).await?).await
            };
            for range in [None, *range].into_iter().skip(usize::from(range.is_some())).chain([None]) {
                let error = read(range).await.map(|bytes| bytes.len()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{damage} {range:?}: {error}");
            }
        }
        // A listing goes on behind a damaged row.
        run(&mut admin, "UPDATE larder.blobs SET size = -1 WHERE key = 'large'").await;
        let listed: Vec<_> = blobs.list("", None).await.unwrap().collect().await;
        let kinds: Vec<_> = listed.iter().map(|item| item.as_ref().map_err(Error::kind).is_ok()).collect();
        assert_eq!(kinds, [false, true, true]);
        assert_eq!(listed[0].as_ref().unwrap_err().kind(), ErrorKind::Corrupt);
        postgres.close().await;
    })
    .await;
}
