//! The memory and the connections of a large blob in transit.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use larder_kernel::{BlobBody, BlobGetOptions, BlobPutOptions, BlobStore, BlobStoreExt, ErrorKind};
use sqlx::PgConnection;

use super::{CHUNK, body, key, rest, setup};
use crate::postgres::connections::run;
use crate::postgres::outage::namespace;
use crate::postgres::{open, with_database};

/// The bytes that one statement reads or writes.
const STEP: usize = 4 * CHUNK;

/// The bytes that the store received and still holds.
#[derive(Default)]
struct Held {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// A piece that reports when its last reference is dropped.
struct Piece {
    bytes: Vec<u8>,
    held: Arc<Held>,
}

impl Piece {
    fn given(bytes: usize, held: &Arc<Held>) -> Bytes {
        let now = held.now.fetch_add(bytes, Ordering::SeqCst) + bytes;
        held.most.fetch_max(now, Ordering::SeqCst);
        Bytes::from_owner(Self { bytes: vec![7; bytes], held: Arc::clone(held) })
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.held.now.fetch_sub(self.bytes.len(), Ordering::SeqCst);
    }
}

pub(crate) async fn a_write_keeps_few_pieces_of_its_body() {
    with_database("blob_write_memory", async |url: String| {
        let (postgres, blobs, _admin) = setup(&url).await;
        for piece in [10_000, CHUNK / 2, CHUNK, STEP] {
            let (held, total) = (Arc::new(Held::default()), 64 * STEP);
            let giver = Arc::clone(&held);
            let pieces = stream::iter((0..total / piece).map(move |_| Ok(Piece::given(piece, &giver))));
            let options = BlobPutOptions::default();
            let info = blobs.put(&key("large"), BlobBody::stream(pieces), options).await.unwrap();
            assert_eq!(usize::try_from(info.size).unwrap(), total / piece * piece);
            let most = held.most.load(Ordering::SeqCst);
            // One step on its way and one that is being read.
            assert!(most <= 2 * (STEP + piece), "{most} bytes in pieces of {piece}");
            assert_eq!(held.now.load(Ordering::SeqCst), 0);
        }
        postgres.close().await;
    })
    .await;
}

/// Returns the number of the store's sessions that are in a transaction or a statement.
async fn busy_sessions(admin: &mut PgConnection) -> i64 {
    sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
            AND (xact_start IS NOT NULL OR state <> 'idle')",
    )
    .fetch_one(admin)
    .await
    .unwrap()
}

pub(crate) async fn a_read_keeps_few_chunks_and_no_transaction_between_polls() {
    with_database("blob_read_memory", async |url: String| {
        let (postgres, blobs, mut admin) = setup(&url).await;
        let chunks = 64;
        blobs.put_bytes(&key("large"), body(1, chunks * CHUNK)).await.unwrap();
        let mut read = blobs.get(&key("large"), BlobGetOptions::default()).await.unwrap();
        read.bytes.next().await.unwrap().unwrap();
        let mut listing = blobs.list("", None).await.unwrap();
        // A poll that begins a statement and is not repeated.
        super::drop_after(1, listing.next()).await;
        let mut unpolled = blobs.get(&key("large"), BlobGetOptions::default()).await.unwrap();
        super::drop_after(1, unpolled.bytes.next()).await;
        let idle = async {
            while busy_sessions(&mut admin).await > 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), idle).await.expect("a session stays busy");
        // The store has read at most three steps, so it meets a damage after them.
        run(&mut admin, "UPDATE larder.blob_chunks SET crc = 0 WHERE chunk = 12").await;
        assert_eq!(rest(read).await.unwrap_err().kind(), ErrorKind::Corrupt);
        postgres.close().await;
    })
    .await;
}

/// Reads and writes share the only connection.
pub(crate) async fn a_blob_goes_through_one_connection_in_both_directions() {
    with_database("blob_one_connection", async |url: String| {
        let postgres = open(&format!("{url}?pool_size=1")).await.unwrap();
        let blobs = postgres.blobs(namespace());
        let bytes = body(1, 40 * CHUNK + 1);
        blobs.put_bytes(&key("a"), bytes.clone()).await.unwrap();
        let both = futures_util::future::join_all(["b", "c", "d"].map(async |to: &'static str| {
            let read = blobs.get(&key("a"), BlobGetOptions::default()).await.unwrap();
            blobs.put(&key(to), BlobBody::stream(read.bytes), BlobPutOptions::default()).await.unwrap();
        }));
        tokio::time::timeout(Duration::from_secs(60), both).await.unwrap();
        for to in ["b", "c", "d"] {
            assert!(blobs.get_bytes(&key(to)).await.unwrap() == bytes);
        }
        postgres.close().await;
    })
    .await;
}
