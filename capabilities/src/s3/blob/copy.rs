//! Copying on the server.

use std::sync::Arc;

use larder_kernel::{BlobInfo, BlobKey, Error, ErrorKind, Outcome, Result, Timestamp};

use super::condition::{Attributes, Condition};
use super::read;
use super::upload::Upload;
use super::value::{etag_out, time_in};
use super::write::written_tag;
use crate::s3::engine::Engine;
use crate::s3::failure::{Effect, failed, status};
use crate::s3::key::Layout;

const OPERATION: &str = "blobs.copy";
/// The maximum size that S3 copies in one request.
const AT_ONCE_BYTES_MAX: u64 = 5 << 30;
/// The size of a part of a larger copy: 10,000 parts hold 9.7 TiB.
const PART_BYTES: u64 = 1 << 30;
/// The maximum number of attempts of a copy whose source changes between two requests.
const ROUNDS: u32 = 4;

pub(crate) async fn copy(
    engine: &Arc<Engine>,
    layout: &Layout,
    source: &BlobKey,
    target: &BlobKey,
) -> Result<BlobInfo> {
    for _ in 0..ROUNDS {
        let info = read::head(engine, layout, OPERATION, source).await?;
        // S3 rejects a copy of an object onto itself, and nothing would change.
        if source == target {
            return Ok(info);
        }
        let copied = if info.size <= AT_ONCE_BYTES_MAX {
            at_once(engine, layout, target, info).await?
        } else {
            in_parts(engine, layout, target, info, PART_BYTES).await?
        };
        if let Some(copied) = copied {
            return Ok(copied);
        }
    }
    Err(Error::new(
        ErrorKind::Conflict,
        OPERATION,
        "the source changed during every attempt to copy it; try again later",
    ))
}

/// Copies the known version; `None` if the source has another version by now.
async fn at_once(
    engine: &Engine,
    layout: &Layout,
    target: &BlobKey,
    info: BlobInfo,
) -> Result<Option<BlobInfo>> {
    let request = engine
        .client
        .copy_object()
        .bucket(&engine.bucket)
        .key(layout.object(target))
        .copy_source(source_of(engine, layout, &info.key))
        .set_copy_source_if_match(etag_out(&info.etag));
    let answer = match request.customize().config_override(engine.server_work(info.size)).send().await {
        Ok(answer) => answer,
        Err(error) if status(&error) == Some(412) => return Ok(None),
        Err(error) => return Err(failed(OPERATION, Effect::Repeatable, &error)),
    };
    let result = answer.copy_object_result();
    let modified_at = time_in(OPERATION, result.and_then(|result| result.last_modified()));
    let tag = result.and_then(|result| result.e_tag());
    Ok(Some(BlobInfo {
        key: target.clone(),
        etag: written_tag(engine, layout, target, OPERATION, tag).await.map_err(copied)?,
        modified_at: modified_at.unwrap_or_else(|_| Timestamp::now()),
        ..info
    }))
}

/// Marks an error that occurred after the copy was made.
fn copied(error: Error) -> Error {
    error.with_outcome(Outcome::Unknown).with_idempotent(true)
}

/// Copies a version that is too large for one request.
async fn in_parts(
    engine: &Arc<Engine>,
    layout: &Layout,
    target: &BlobKey,
    info: BlobInfo,
    part_bytes: u64,
) -> Result<Option<BlobInfo>> {
    let in_operation = |error: Error| error.in_operation(OPERATION);
    let attributes = Attributes::new(info.content_type.as_deref(), &info.metadata);
    let (source, tag) = (source_of(engine, layout, &info.key), etag_out(&info.etag).unwrap_or_default());
    let mut upload =
        Upload::begin(engine, &layout.object(target), &attributes).await.map_err(in_operation)?;
    let tag = match send(&mut upload, &source, &tag, info.size, part_bytes).await {
        Ok(tag) => tag,
        Err(error) => {
            upload.remove().await;
            let changed = error.kind() == ErrorKind::Conflict;
            return if changed { Ok(None) } else { Err(in_operation(error)) };
        }
    };
    Ok(Some(BlobInfo {
        key: target.clone(),
        etag: written_tag(engine, layout, target, OPERATION, tag.as_deref()).await.map_err(copied)?,
        modified_at: Timestamp::now(),
        ..info
    }))
}

async fn send(
    upload: &mut Upload,
    source: &str,
    tag: &str,
    bytes: u64,
    part_bytes: u64,
) -> Result<Option<String>> {
    let mut start = 0;
    while start < bytes {
        let end = bytes.min(start + part_bytes);
        upload.push_copy(source, tag, &(start..end)).await?;
        start = end;
    }
    upload.complete(&Condition::None).await
}

/// Returns the source in the form of the header, with escapes for all characters that are special in a URL.
fn source_of(engine: &Engine, layout: &Layout, key: &BlobKey) -> String {
    let mut source = format!("{}/", engine.bucket);
    for character in layout.object(key).chars() {
        match character {
            '!' => source.push_str("%21"),
            '=' => source.push_str("%3D"),
            '@' => source.push_str("%40"),
            plain => source.push(plain),
        }
    }
    source
}
