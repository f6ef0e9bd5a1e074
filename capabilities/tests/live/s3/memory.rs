//! The memory of a large blob in transit, counted byte by byte. The server holds its replies back until the
//! store has reached its maximum of bytes in flight.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use larder_capabilities::s3::{S3BlobStore, S3Config};
use larder_kernel::{BlobBody, BlobGetOptions, BlobKey, BlobPutOptions, BlobStore, Namespace};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufStream};
use tokio::net::{TcpListener, TcpStream};

use crate::held::Held;

const MIB: u64 = 1024 * 1024;
const BLOB_BYTES: u64 = 256 * MIB;
const PART_BYTES: u64 = 8 * MIB;
/// Concurrent parts, in either direction.
const IN_FLIGHT: u64 = 8;
/// Bytes of a chunk of a stream. A part ends where a chunk ends; otherwise two parts would each hold the
/// shared chunk.
const PIECE_BYTES: u64 = MIB;

/// The messages between the server and the test.
#[derive(Debug, Default)]
struct Counts {
    /// For a write: the bytes that the store holds.
    held: Arc<Held>,
    received: AtomicU64,
    /// For a read: the requested bytes, the bytes from the stream, and the maximum difference between them.
    asked: AtomicU64,
    delivered: AtomicU64,
    between: AtomicU64,
}

/// A server that has one large blob, accepts any other, and refuses probes.
async fn serve(counts: Arc<Counts>) -> S3BlobStore {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("s3://KEY:SECRET@files?endpoint=http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(converse(BufStream::new(stream), Arc::clone(&counts)));
        }
    });
    let config = S3Config::from_url(&url).unwrap();
    S3BlobStore::open(&config, Namespace::new("n").unwrap()).await.unwrap()
}

async fn converse(mut stream: BufStream<TcpStream>, counts: Arc<Counts>) {
    let mut line = String::new();
    while stream.read_line(&mut line).await.is_ok_and(|bytes| bytes > 0) {
        let request = std::mem::take(&mut line);
        let mut headers = HashMap::new();
        while stream.read_line(&mut line).await.is_ok_and(|bytes| bytes > 2) {
            let (name, value) = line.trim_end().split_once(':').unwrap();
            headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
            line.clear();
        }
        line.clear();
        if headers.contains_key("expect") {
            stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
            stream.flush().await.unwrap();
        }
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        // The test notices a store that gives up.
        if drain(&mut stream, length).await.is_err() {
            return;
        }
        let answered = match headers.get("range") {
            Some(range) => send_range(&mut stream, range, &counts).await,
            None => send_answer(&mut stream, &request, length, &counts).await,
        };
        if answered.is_err() || stream.flush().await.is_err() {
            return;
        }
    }
}

async fn drain(stream: &mut BufStream<TcpStream>, mut left: u64) -> std::io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    while left > 0 {
        let room = buffer.len().min(usize::try_from(left).unwrap());
        left -= stream.read_exact(&mut buffer[..room]).await? as u64;
    }
    Ok(())
}

/// Waits until the maximum is in flight, and a while longer for requests that must not arrive.
async fn until_full(under_way: &AtomicU64) {
    let mut last = 0;
    loop {
        let most = under_way.load(Ordering::SeqCst);
        if most >= IN_FLIGHT * PART_BYTES && most == last {
            return;
        }
        last = most;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn send_answer(
    stream: &mut BufStream<TcpStream>,
    request: &str,
    length: u64,
    counts: &Counts,
) -> std::io::Result<()> {
    let (status, body) = if request.contains("/probe/") {
        ("403 Forbidden", "<Error><Code>AccessDenied</Code></Error>")
    } else if request.contains("list-type=2") {
        ("200 OK", "<ListBucketResult></ListBucketResult>")
    } else if request.contains("partNumber=") {
        // No part completes before the maximum number of parts is in flight.
        until_full(&counts.held.most).await;
        counts.received.fetch_add(length, Ordering::SeqCst);
        ("200 OK", "")
    } else if request.contains("uploads") {
        ("200 OK", "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
    } else {
        ("200 OK", "<CompleteMultipartUploadResult><ETag>\"e\"</ETag></CompleteMultipartUploadResult>")
    };
    let answer = format!("HTTP/1.1 {status}\r\netag: \"e\"\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).await
}

async fn send_range(stream: &mut BufStream<TcpStream>, range: &str, counts: &Counts) -> std::io::Result<()> {
    let (start, end) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
    let (start, end) = (start.parse::<u64>().unwrap(), end.parse::<u64>().unwrap().min(BLOB_BYTES - 1));
    let length = end + 1 - start;
    let asked = counts.asked.fetch_add(length, Ordering::SeqCst) + length;
    counts.between.fetch_max(asked - counts.delivered.load(Ordering::SeqCst), Ordering::SeqCst);
    if start > 0 {
        // After the first part, none is delivered before the maximum number of parts is requested.
        until_full(&counts.between).await;
    }
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\netag: \"e\"\r\nlast-modified: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
         content-range: bytes {start}-{end}/{BLOB_BYTES}\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&vec![7; usize::try_from(length).unwrap()]).await
}

/// The parts in flight, the part that is filled, and the chunk after it.
pub(super) async fn a_large_write_holds_the_parts_in_flight_and_no_more() {
    let counts = Arc::new(Counts::default());
    let store = serve(Arc::clone(&counts)).await;
    let held = Arc::clone(&counts.held);
    let pieces = (0..BLOB_BYTES / PIECE_BYTES).map(move |_| Ok(held.piece(PIECE_BYTES)));
    let body = BlobBody::stream(futures_util::stream::iter(pieces));
    let key = BlobKey::new("large").unwrap();
    let written = store.put(&key, body, BlobPutOptions::default()).await.unwrap();
    assert_eq!(written.size, BLOB_BYTES);
    assert_eq!(counts.received.load(Ordering::SeqCst), BLOB_BYTES);
    let most = counts.held.most.load(Ordering::SeqCst);
    let bound = (IN_FLIGHT + 1) * PART_BYTES + PIECE_BYTES;
    assert!(most <= bound, "{most} bytes were held, and {bound} may be");
    assert_eq!(counts.held.now.load(Ordering::SeqCst), 0, "bytes are held after the end");
}

/// The parts in flight, and the part that is delivered.
pub(super) async fn a_large_read_holds_the_parts_in_flight_and_no_more() {
    let counts = Arc::new(Counts::default());
    let store = serve(Arc::clone(&counts)).await;
    let key = BlobKey::new("large").unwrap();
    let mut read = store.get(&key, BlobGetOptions::default()).await.unwrap();
    assert_eq!(read.info.size, BLOB_BYTES);
    while let Some(piece) = read.bytes.next().await {
        let piece = piece.unwrap();
        assert!(piece.iter().all(|byte| *byte == 7));
        counts.delivered.fetch_add(piece.len() as u64, Ordering::SeqCst);
    }
    assert_eq!(counts.delivered.load(Ordering::SeqCst), BLOB_BYTES);
    assert_eq!(counts.asked.load(Ordering::SeqCst), BLOB_BYTES);
    let most = counts.between.load(Ordering::SeqCst);
    let bound = (IN_FLIGHT + 1) * PART_BYTES;
    assert!(most <= bound, "{most} bytes were asked for and not yet delivered, and {bound} may be");
}
