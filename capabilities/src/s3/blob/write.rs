//! Writing: one request for a small blob, a multipart upload for a larger one.

use std::sync::Arc;

use larder_kernel::{BlobBody, BlobInfo, BlobKey, BlobPutOptions, ETag, Outcome, Result, Timestamp};

use super::body::{Chunk, Chunks};
use super::condition::{Attributes, Condition};
use super::progress_timeout::Progress;
use super::read;
use super::upload::{PART_BYTES, Upload};
use super::value::etag_in;
use crate::s3::engine::Engine;
use crate::s3::failure::Effect;
use crate::s3::key::Layout;

const OPERATION: &str = "blobs.put";
/// The maximum size for one request if all bytes are in memory. Below it, parts would only cost requests.
const SINGLE_BYTES_MAX: u64 = 2 * PART_BYTES;

pub(crate) async fn put(
    engine: &Arc<Engine>,
    layout: &Layout,
    key: &BlobKey,
    body: BlobBody,
    options: BlobPutOptions,
) -> Result<BlobInfo> {
    let condition = Condition::new(&options.condition)?;
    let attributes = Attributes::new(options.content_type.as_deref(), &options.metadata);
    let object = layout.object(key);
    // A stream is buffered up to one part.
    let first_bytes = match body.known_len().map(larder_kernel::check::size) {
        Some(bytes) if bytes <= SINGLE_BYTES_MAX => SINGLE_BYTES_MAX,
        _ => PART_BYTES,
    };
    let mut chunks = Chunks::new(body);
    let first = chunks.next(first_bytes).await?;
    let (size, tag) = if chunks.ended() {
        (first.bytes(), put_at_once(engine, &object, first, &attributes, &condition).await?)
    } else {
        put_in_parts(engine, &object, first, chunks, &attributes, &condition).await?
    };
    let modified_at = Timestamp::now();
    // The blob is already written.
    let repeatable = matches!(condition, Condition::None);
    let etag = written_tag(engine, layout, key, OPERATION, tag.as_deref())
        .await
        .map_err(|error| error.with_outcome(Outcome::Unknown).with_idempotent(repeatable))?;
    let BlobPutOptions { content_type, metadata, .. } = options;
    Ok(BlobInfo::new(key.clone(), size, etag, modified_at)
        .with_content_type(content_type)
        .with_metadata(metadata))
}

/// Returns the tag of a blob that was just written. If the write's response has none, requests it.
pub(crate) async fn written_tag(
    engine: &Engine,
    layout: &Layout,
    key: &BlobKey,
    operation: &'static str,
    reported: Option<&str>,
) -> Result<ETag> {
    match reported.filter(|tag| !tag.is_empty()) {
        Some(tag) => etag_in(operation, Some(tag)),
        None => Ok(read::head(engine, layout, operation, key).await?.etag),
    }
}

pub(crate) async fn put_at_once(
    engine: &Engine,
    object: &str,
    chunk: Chunk,
    attributes: &Attributes,
    condition: &Condition,
) -> Result<Option<String>> {
    let (bytes, chunk, progress) = (chunk.bytes(), Arc::new(chunk), Progress::new());
    let effect = match condition {
        Condition::None => Effect::Repeatable,
        Condition::Absent | Condition::Matches(_) => Effect::Once,
    };
    let sent = condition.attempt(|| {
        let request = condition
            .client(engine)
            .put_object()
            .bucket(&engine.bucket)
            .key(object)
            .content_type(&attributes.content_type)
            .set_metadata(Some(attributes.metadata.clone()))
            .set_if_none_match(condition.if_none_match())
            .set_if_match(condition.if_match())
            .content_length(i64::try_from(bytes).unwrap_or(i64::MAX))
            .body(Chunk::body(&chunk, &progress));
        request.customize().config_override(engine.sending(bytes)).send()
    });
    let answer = progress.watch(engine, (OPERATION, effect), bytes, sent).await??;
    Ok(answer.e_tag)
}

/// Sends the parts as they arrive. Returns the total bytes and the blob's tag.
async fn put_in_parts(
    engine: &Arc<Engine>,
    object: &str,
    first: Chunk,
    mut chunks: Chunks,
    attributes: &Attributes,
    condition: &Condition,
) -> Result<(u64, Option<String>)> {
    let mut upload = Upload::begin(engine, object, attributes).await?;
    let sent = send(&mut upload, first, &mut chunks, condition).await;
    if sent.is_err() {
        upload.remove().await;
    }
    sent
}

async fn send(
    upload: &mut Upload,
    first: Chunk,
    chunks: &mut Chunks,
    condition: &Condition,
) -> Result<(u64, Option<String>)> {
    let mut size = first.bytes();
    upload.push(first).await?;
    while !chunks.ended() {
        let chunk = chunks.next(upload.next_bytes()).await?;
        size += chunk.bytes();
        upload.push(chunk).await?;
    }
    Ok((size, upload.complete(condition).await?))
}
