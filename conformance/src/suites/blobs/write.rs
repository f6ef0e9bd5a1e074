//! Writes.

use bytes::Bytes;
use futures_util::StreamExt;
use larder_kernel::{BlobBody, BlobPutOptions, BlobStoreExt, Error, ErrorKind};
use tokio::task::JoinSet;

use super::{dump::dump, key, noise};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::background::BackgroundTask;

pub(super) async fn bytes_of_many_sizes_read_back(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    for len in [0, 1, 255, 4_096, 65_537, 1 << 20, 5 * (1 << 20) + 7] {
        let (key, bytes) = (key(&format!("size/{len}"))?, Bytes::from(noise(len, context.random(0))));
        let info = a.put_bytes(&key, bytes.clone()).await?;
        expect::equal("the size answered", &info.size, &(len as u64))?;
        let read = b.get_bytes(&key).await?;
        expect::that(
            read == bytes,
            format!("the {len} bytes written"),
            format!("{} bytes, different", read.len()),
        )?;
    }
    Ok(())
}

pub(super) async fn content_type_and_metadata_read_back(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let (full, bare) = (key("full")?, key("bare")?);
    let options = BlobPutOptions::default()
        .with_content_type("text/plain; charset=utf-8")
        .with_metadata("owner", "Ada L. (42%)")
        .with_metadata("x-2_y", "a=b;c");
    a.put(&full, "1".into(), options.clone()).await?;
    a.put(&bare, "2".into(), BlobPutOptions::default()).await?;
    let info = b.head(&full).await?;
    expect::equal("content type", &info.content_type, &options.content_type)?;
    expect::equal("user metadata", &info.metadata, &options.metadata)?;
    let info = b.get(&full, Default::default()).await?.info;
    expect::equal("content type with the bytes", &info.content_type, &options.content_type)?;
    expect::equal("user metadata with the bytes", &info.metadata, &options.metadata)?;
    let info = b.head(&bare).await?;
    expect::equal("content type of a blob written without", &info.content_type, &None)?;
    expect::that(info.metadata.is_empty(), "no user metadata where none was given", info.metadata)
}

pub(super) async fn overwriting_replaces_everything(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let key = key("k")?;
    let options = BlobPutOptions::default().with_content_type("image/png").with_metadata("old", "1");
    a.put(&key, noise(9_000, 1).into(), options).await?;
    a.put(&key, "new".into(), BlobPutOptions::default().with_metadata("new", "2")).await?;
    expect::equal("bytes", &b.get_bytes(&key).await?, &Bytes::from_static(b"new"))?;
    let info = b.head(&key).await?;
    expect::equal("size", &info.size, &3)?;
    expect::equal("content type", &info.content_type, &None)?;
    expect::equal("metadata names", &info.metadata.keys().map(String::as_str).collect(), &vec!["new"])
}

pub(super) async fn readers_never_see_a_mixture(context: Context) -> CaseResult {
    const LEN: usize = 300_000;
    let Handles { a, b } = context.blobs().await?;
    let key = key("swapped")?;
    a.put_bytes(&key, vec![0; LEN].into()).await?;
    let writer_key = key.clone();
    let writer = BackgroundTask::start(async move {
        for round in 1..=12_u8 {
            a.put_bytes(&writer_key, vec![round; LEN].into()).await?;
        }
        Ok::<_, Error>(())
    });
    let mut rounds = 0;
    while rounds == 0 || !writer.is_finished() {
        rounds += 1;
        let bytes = b.get_bytes(&key).await?;
        let whole = bytes.len() == LEN && bytes.iter().all(|byte| *byte == bytes[0]);
        expect::that(whole, "one version, whole", format!("{} bytes of several versions", bytes.len()))?;
        // Otherwise a store that never waits would block the writer.
        tokio::task::yield_now().await;
    }
    writer.end().await??;
    expect::equal("the last version", &b.get_bytes(&key).await?[0], &12)
}

pub(super) async fn a_stream_is_written_as_the_concatenation_of_its_chunks(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let whole = noise(3 * (1 << 20), context.random(1));
    let mut pieces = vec![Ok(Bytes::new())];
    for chunk in whole.chunks(99_991) {
        pieces.push(Ok(Bytes::copy_from_slice(chunk)));
        pieces.push(Ok(Bytes::new()));
    }
    let streamed = key("streamed")?;
    let body = BlobBody::stream(futures_util::stream::iter(pieces));
    let info = a.put(&streamed, body, BlobPutOptions::default()).await?;
    expect::equal("size", &info.size, &(whole.len() as u64))?;
    expect::that(b.get_bytes(&streamed).await? == whole, "the pieces in order", "other bytes")?;
    let empty = key("empty")?;
    a.put(&empty, BlobBody::stream(futures_util::stream::empty()), BlobPutOptions::default()).await?;
    expect::equal("a stream without pieces", &b.get_bytes(&empty).await?, &Bytes::new())
}

pub(super) async fn a_failing_stream_leaves_the_store_unchanged(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let (old, new) = (key("old")?, key("new")?);
    a.put_bytes(&old, Bytes::from_static(b"kept")).await?;
    let before = dump(&*b).await?;
    for target in [&old, &new] {
        let pieces = (0..40_u8).map(|piece| Ok(Bytes::from(vec![piece; 100_000]))).chain([Err(Error::new(
            ErrorKind::PermissionDenied,
            "case.stream",
            "the source broke off",
        ))]);
        let body = BlobBody::stream(futures_util::stream::iter(pieces.collect::<Vec<_>>()).boxed());
        let result = a.put(target, body, BlobPutOptions::default()).await;
        let error = expect::error("a stream that fails", result, ErrorKind::PermissionDenied)?;
        expect::equal("the returned error", &error.operation(), &"case.stream")?;
    }
    expect::equal("everything stored", &dump(&*b).await?, &before)
}

pub(super) async fn the_etag_changes_with_the_bytes(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let key = key("versioned")?;
    let mut seen = Vec::new();
    // Equal lengths and equal ends, so that a tag from the size or from a part of the bytes would repeat.
    for middle in [b'a', b'b', b'c'] {
        let mut bytes = vec![b'x'; 70_000];
        bytes[35_000] = middle;
        let etag = a.put_bytes(&key, bytes.into()).await?.etag;
        expect::equal("the returned tag and the read tag", &b.head(&key).await?.etag, &etag)?;
        expect::that(!seen.contains(&etag), "a tag not seen before", &etag)?;
        seen.push(etag);
    }
    Ok(())
}

pub(super) async fn a_key_may_be_a_prefix_of_another(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let names = ["a", "a/b", "a/b/c", "ab", "a.b", "a/b.c"];
    for name in names {
        a.put_bytes(&key(name)?, Bytes::from(name)).await?;
    }
    for name in names.iter().rev() {
        expect::equal("the blob's own bytes", &b.get_bytes(&key(name)?).await?, &Bytes::from(*name))?;
    }
    Ok(())
}

pub(super) async fn concurrent_writes_leave_one_complete_blob(context: Context) -> CaseResult {
    const LEN: usize = 120_000;
    let Handles { a, b } = context.blobs().await?;
    let key = key("contended")?;
    let mut writers = JoinSet::new();
    for writer in 0..8_u8 {
        let (store, key) = (if writer % 2 == 0 { a.clone() } else { b.clone() }, key.clone());
        writers.spawn(async move { store.put_bytes(&key, vec![writer; LEN].into()).await });
    }
    for written in writers.join_all().await {
        written?;
    }
    let bytes = b.get_bytes(&key).await?;
    let whole = bytes.len() == LEN && bytes.iter().all(|byte| *byte == bytes[0]);
    expect::that(whole, "one of the writes, whole", format!("{} bytes of several", bytes.len()))?;
    expect::equal("the data read by the other handle", &a.get_bytes(&key).await?, &bytes)
}
