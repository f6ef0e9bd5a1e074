//! The memory and the connections of a large blob in transit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use larder_kernel::check::size;
use larder_kernel::{BlobBody, BlobGetOptions, BlobPutOptions, BlobStore, BlobStoreExt, ErrorKind};

use super::{CHUNK, body, key, rest, setup, until_idle};
use crate::held::Held;
use crate::postgres::connections::run;
use crate::postgres::outage::namespace;
use crate::postgres::{open, with_database};

/// The bytes that one statement reads or writes.
const STEP: usize = 4 * CHUNK;

pub(crate) async fn a_write_keeps_few_pieces_of_its_body() {
    with_database("blob_write_memory", async |url: String| {
        let (postgres, blobs, _admin) = setup(&url).await;
        for piece in [10_000, CHUNK / 2, CHUNK, STEP] {
            let (held, total) = (Arc::new(Held::default()), 64 * STEP);
            let giver = Arc::clone(&held);
            let pieces = stream::iter((0..total / piece).map(move |_| Ok(giver.piece(size(piece)))));
            let options = BlobPutOptions::default();
            let info = blobs.put(&key("large"), BlobBody::stream(pieces), options).await.unwrap();
            assert_eq!(info.size, size(total / piece * piece));
            let most = held.most.load(Ordering::SeqCst);
            // One step on its way and one that is being read.
            assert!(most <= size(2 * (STEP + piece)), "{most} bytes in pieces of {piece}");
            assert_eq!(held.now.load(Ordering::SeqCst), 0);
        }
        postgres.close().await;
    })
    .await;
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
        until_idle(&mut admin, Duration::from_secs(10)).await;
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
