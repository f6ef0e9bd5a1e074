//! Sizes of streams: blobs at the sizes of buffers, parts and pages, each one byte less and one byte more.

use bytes::Bytes;
use futures_util::{TryStreamExt, stream};
use larder_kernel::{
    BlobBody, BlobGetOptions, BlobKey, BlobPutOptions, BlobStore, BlobStoreExt, ByteRange, Contract,
};

use super::{key, noise};
use crate::case::{Case, CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;

/// The sizes at which stores and servers begin another buffer, page or part.
const EDGES: [usize; 5] = [64 << 10, 1 << 20, 8 << 20, 16 << 20, 64 << 20];
/// The length of the pieces of a stream: no edge is a multiple of it.
const PIECE: usize = (1 << 20) - 7;

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(Blobs, "BLOB-001", bytes_at_every_edge_read_back),
        case!(Blobs, "BLOB-005", streams_at_every_edge_read_back),
        case!(Blobs, "BLOB-021", ranges_at_every_edge_are_exact),
        case!(Blobs, "BLOB-023", suffixes_at_every_edge_are_exact),
        case!(Blobs, "BLOB-036", copies_at_every_edge_are_exact),
        case!(Blobs, "BLOB-039", copies_onto_themselves_at_every_edge_change_nothing),
    ]
}

/// Returns the edges that the backend's harness allows.
fn edges(context: &Context) -> impl Iterator<Item = usize> + use<> {
    let largest = context.harness.largest_stream().max(EDGES[1]);
    EDGES.into_iter().filter(move |edge| *edge <= largest)
}

/// Returns the sizes around an edge.
fn around(edge: usize) -> [usize; 3] {
    [edge - 1, edge, edge + 1]
}

fn name(size: usize) -> CaseResult<BlobKey> {
    key(&format!("size-{size}"))
}

/// Returns the bytes of the longest blob around an edge. The others are their beginnings.
fn longest(edge: usize) -> Bytes {
    Bytes::from(noise(edge + 1, 7))
}

fn pieces(bytes: &Bytes) -> BlobBody {
    let starts = (0..bytes.len()).step_by(PIECE);
    let pieces: Vec<_> = starts.map(|start| Ok(bytes.slice(start..bytes.len().min(start + PIECE)))).collect();
    BlobBody::stream(stream::iter(pieces))
}

/// A blob of each size, written as a stream.
async fn large(context: &Context) -> CaseResult<Handles<dyn BlobStore>> {
    let load = |context: Context| async move {
        let store = context.blobs().await?.a;
        for edge in edges(&context) {
            let bytes = longest(edge);
            for size in around(edge) {
                let body = pieces(&bytes.slice(..size));
                let info = store.put(&name(size)?, body, BlobPutOptions::default()).await?;
                expect::equal(
                    "the size of the written stream",
                    &usize::try_from(info.size).ok(),
                    &Some(size),
                )?;
            }
        }
        Ok(())
    };
    context.large(Contract::Blobs, "sizes", load).await?.blobs().await
}

/// Checks that the blob has these bytes. Reads it as a stream, so that two blobs are never in memory.
async fn holds(what: &str, store: &dyn BlobStore, key: &BlobKey, expected: &Bytes) -> CaseResult {
    let read = store.get(key, BlobGetOptions::default()).await?;
    expect::equal(
        &format!("{what}: the size"),
        &usize::try_from(read.info.size).ok(),
        &Some(expected.len()),
    )?;
    let (mut at, mut pieces) = (0, read.bytes);
    while let Some(piece) = pieces.try_next().await? {
        let end = at + piece.len();
        let equal = expected.get(at..end).is_some_and(|expected| expected == piece);
        expect::that(equal, format!("{what}: bytes {at} to {end} as written"), "other bytes")?;
        at = end;
    }
    expect::equal(&format!("{what}: the number of bytes"), &at, &expected.len())
}

async fn bytes_at_every_edge_read_back(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    for edge in edges(&context).filter(|edge| *edge <= 16 << 20) {
        let bytes = longest(edge);
        for size in around(edge) {
            let (key, bytes) = (key("bytes")?, bytes.slice(..size));
            a.put_bytes(&key, bytes.clone()).await?;
            holds(&format!("{size} bytes"), &*b, &key, &bytes).await?;
        }
    }
    Ok(())
}

async fn streams_at_every_edge_read_back(context: Context) -> CaseResult {
    let stores = large(&context).await?;
    for edge in edges(&context) {
        let bytes = longest(edge);
        for size in around(edge) {
            holds(&format!("a stream of {size}"), &*stores.b, &name(size)?, &bytes.slice(..size)).await?;
        }
    }
    Ok(())
}

async fn ranges_at_every_edge_are_exact(context: Context) -> CaseResult {
    let stores = large(&context).await?;
    for edge in edges(&context) {
        let bytes = longest(edge);
        for size in around(edge) {
            let inner = EDGES.into_iter().filter(|inner| *inner < size);
            let crossing = inner.map(|inner| (inner - 1, (inner + 1).min(size)));
            let ends = [(0, 1), (size - 1, size), (size - 1, size + 10), (size / 2, size / 2 + 70_000)];
            for (start, end) in crossing.chain(ends) {
                let range = ByteRange::Bounded { start: start as u64, end: end as u64 };
                let options = BlobGetOptions::default().with_range(range);
                let found = stores.b.get_range(&name(size)?, options).await?;
                let expected = bytes.slice(start..end.min(size));
                let what = format!("bytes {start} to {end} of {size}");
                expect::equal(&format!("{what}: their number"), &found.len(), &expected.len())?;
                expect::that(found == expected, what, "other bytes")?;
            }
        }
    }
    Ok(())
}

async fn suffixes_at_every_edge_are_exact(context: Context) -> CaseResult {
    let stores = large(&context).await?;
    for edge in edges(&context) {
        let bytes = longest(edge);
        for size in around(edge) {
            let longest = if size > 16 << 20 { vec![] } else { vec![size, size + 1] };
            for suffix in [1, 65_537].into_iter().chain(longest) {
                let options = BlobGetOptions::default().with_range(ByteRange::Suffix(suffix as u64));
                let found = stores.b.get_range(&name(size)?, options).await?;
                let expected = bytes.slice(size.saturating_sub(suffix)..size);
                let what = format!("the last {suffix} bytes of {size}");
                expect::equal(&format!("{what}: their number"), &found.len(), &expected.len())?;
                expect::that(found == expected, what, "other bytes")?;
            }
        }
    }
    Ok(())
}

async fn copies_at_every_edge_are_exact(context: Context) -> CaseResult {
    let stores = large(&context).await?;
    for edge in edges(&context) {
        let bytes = longest(edge);
        for size in around(edge) {
            let target = key("copy")?;
            let copied = stores.a.copy(&name(size)?, &target).await?;
            expect::equal("the size of the copy", &usize::try_from(copied.size).ok(), &Some(size))?;
            holds(&format!("a copy of {size}"), &*stores.b, &target, &bytes.slice(..size)).await?;
        }
    }
    Ok(())
}

async fn copies_onto_themselves_at_every_edge_change_nothing(context: Context) -> CaseResult {
    let stores = large(&context).await?;
    for edge in edges(&context) {
        let bytes = longest(edge);
        for size in around(edge) {
            let own = key("own")?;
            stores.a.copy(&name(size)?, &own).await?;
            stores.a.copy(&own, &own).await?;
            holds(&format!("{size} bytes copied onto themselves"), &*stores.b, &own, &bytes.slice(..size))
                .await?;
        }
    }
    Ok(())
}
