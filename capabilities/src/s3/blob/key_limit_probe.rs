//! Probes the length limit of object names.
//!
//! S3 stores names of 1,024 bytes. A server that stores objects as files may support fewer, because it
//! encodes the name into the name of one file next to the object. Such a server fails after it has stored the
//! object. So the probe writes objects in the same way as blobs, in one request and in parts, and removes the
//! remains of a failure.

use std::time::Duration;

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_s3::primitives::ByteStream;
use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use larder_kernel::{Error, Result};

use super::erase::{abort_uploads, delete_object};
use crate::s3::engine::{Engine, OPEN};
use crate::s3::failure::{Effect, failed, status};
use crate::s3::key::{SEGMENT_BYTES_MAX, longest_name, longest_short_name};

/// The number of attempts with a name whose failure decides about a capability. A single failure may be
/// chance, and so may several at the same moment.
const ATTEMPTS: u32 = 3;
/// The number of attempts with a name that only narrows the limit.
const ATTEMPTS_BETWEEN: u32 = 2;
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);
/// The precision of the search: the server may keep remains of each failure that no client can remove.
const NEAR_BYTES: usize = 8;

/// Returns the longest name that the server stores, or a little less, up to the longest name of a key. The
/// names of the probe begin with `folder`.
pub(crate) async fn longest_name_kept(engine: &Engine, folder: &str) -> Result<usize> {
    let most = longest_name(&engine.prefix);
    if fits(engine, folder, most, ATTEMPTS).await? {
        return Ok(most);
    }
    let found = search(engine, folder, most).await;
    // The server may have failed after it began an upload without returning its id. A server that lists no
    // uploads keeps none.
    abort_uploads(engine, folder).await.ok();
    found
}

/// Bisects between a length that works and one that does not.
async fn search(engine: &Engine, folder: &str, most: usize) -> Result<usize> {
    let (mut kept, mut refused) = (longest_short_name(&engine.prefix), most);
    if !fits(engine, folder, kept, ATTEMPTS).await? {
        return Err(Error::invalid(
            OPEN,
            "url",
            "has a prefix that makes the names of short keys too long for the server; use a shorter prefix, \
             or a bucket with a shorter name",
        ));
    }
    while refused - kept > NEAR_BYTES {
        let middle = kept.midpoint(refused);
        if fits(engine, folder, middle, ATTEMPTS_BETWEEN).await? {
            kept = middle;
        } else {
            refused = middle;
        }
    }
    Ok(kept)
}

/// Returns true if one of this many attempts stores two names of this length that differ only in their last
/// bytes.
async fn fits(engine: &Engine, folder: &str, bytes: usize, attempts: u32) -> Result<bool> {
    let (one, other) = (name(folder, bytes, 'a'), name(folder, bytes, 'b'));
    let mut kept = false;
    for attempt in 0..attempts {
        if attempt > 0 {
            tokio::time::sleep(PAUSE * attempt).await;
        }
        let tried = try_out(engine, &one, &other).await;
        // Removed after any result: the server may have failed with the object stored.
        for name in [&one, &other] {
            delete_object(engine, OPEN, name).await.ok();
        }
        kept = tried?;
        if kept {
            break;
        }
    }
    Ok(kept)
}

/// Returns a name of this length, with segments as long as those of keys may be.
fn name(folder: &str, bytes: usize, last: char) -> String {
    let mut name = folder.to_owned();
    let mut segment = 0;
    while name.len() + 2 < bytes {
        // A segment ends when it is full, unless no other would follow; the last segment also contains the
        // end mark.
        if segment >= SEGMENT_BYTES_MAX - 2 && name.len() + 3 < bytes {
            name.push('/');
            segment = 0;
        } else {
            name.push('n');
            segment += 1;
        }
    }
    name.push(last);
    name.push('!');
    name
}

async fn try_out(engine: &Engine, one: &str, other: &str) -> Result<bool> {
    Ok(put(engine, one).await?
        && put_in_parts(engine, other).await?
        && holds(engine, one, b"whole").await?
        && holds(engine, other, b"parts").await?)
}

/// Returns the response of a successful request; `None` if the server rejected the name or failed, as it does
/// for a name that it cannot store.
fn done<T, E: ProvideErrorMetadata>(answer: std::result::Result<T, SdkError<E>>) -> Result<Option<T>> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if matches!(status(&error), Some(400 | 404 | 413 | 414 | 431 | 500)) => Ok(None),
        Err(error) => Err(failed(OPEN, Effect::Repeatable, &error)),
    }
}

async fn put(engine: &Engine, name: &str) -> Result<bool> {
    let request = engine.client_without_retry.put_object().bucket(&engine.bucket).key(name);
    let request = request.content_type("text/plain").metadata("probe", "name");
    Ok(done(request.body(ByteStream::from_static(b"whole")).send().await)?.is_some())
}

async fn put_in_parts(engine: &Engine, name: &str) -> Result<bool> {
    let request = engine.client_without_retry.create_multipart_upload().bucket(&engine.bucket).key(name);
    let request = request.content_type("text/plain").metadata("probe", "name");
    let Some(id) = done(request.send().await)?.and_then(|answer| answer.upload_id) else {
        return Ok(false);
    };
    let completed = complete(engine, name, &id).await;
    if !matches!(completed, Ok(true)) {
        let request = engine.client.abort_multipart_upload();
        request.bucket(&engine.bucket).key(name).upload_id(id).send().await.ok();
    }
    completed
}

async fn complete(engine: &Engine, name: &str, id: &str) -> Result<bool> {
    let request = engine.client_without_retry.upload_part().bucket(&engine.bucket).key(name).upload_id(id);
    let request = request.part_number(1).body(ByteStream::from_static(b"parts"));
    let Some(answer) = done(request.send().await)? else { return Ok(false) };
    let part = CompletedPart::builder().part_number(1).set_e_tag(answer.e_tag).build();
    let request = engine
        .client_without_retry
        .complete_multipart_upload()
        .bucket(&engine.bucket)
        .key(name)
        .upload_id(id);
    let parts = CompletedMultipartUpload::builder().parts(part).build();
    Ok(done(request.multipart_upload(parts).send().await)?.is_some())
}

async fn holds(engine: &Engine, name: &str, bytes: &[u8]) -> Result<bool> {
    let request = engine.client_without_retry.get_object().bucket(&engine.bucket).key(name);
    let Some(answer) = done(request.send().await)? else { return Ok(false) };
    Ok(answer.body.collect().await.is_ok_and(|body| body.into_bytes() == bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_the_requested_length_and_no_odd_segment() {
        let folder = "prefix/probe/0123456789abcdef0123456789abcdef/";
        for bytes in (113..1_024).chain([longest_name(""), longest_short_name("prefix/")]) {
            let name = name(folder, bytes, 'a');
            assert_eq!(name.len(), bytes);
            assert!(name.starts_with(folder) && name.ends_with("a!"));
            let fits = |segment: &str| !segment.is_empty() && segment.len() <= SEGMENT_BYTES_MAX + 1;
            assert!(name.split('/').all(fits), "{name}");
        }
    }
}
