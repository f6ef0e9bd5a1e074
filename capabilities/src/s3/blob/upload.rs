//! Multipart uploads: several concurrent parts, and no remains.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_s3::types::{CompletedMultipartUpload, CompletedPart};
use larder_kernel::{Error, ErrorKind, Outcome, Result};
use tokio::task::JoinSet;

use super::body::Chunk;
use super::condition::{Attributes, Condition};
use super::progress_timeout::Progress;
use super::read::bytes_of;
use crate::s3::engine::Engine;
use crate::s3::failure::{Effect, code, failed, status};

const OPERATION: &str = "blobs.put";

/// The size of the first parts.
pub(crate) const PART_BYTES: u64 = 8 * 1024 * 1024;
/// The maximum number of parts in S3. The part size doubles after every 1,000 parts, so that all parts
/// together hold about 8 TiB.
const PARTS_MAX: u32 = 10_000;
const PARTS_OF_A_SIZE: u32 = 1_000;
/// The maximum bytes in flight; a larger part is sent alone.
const IN_FLIGHT_BYTES_MAX: u64 = 8 * PART_BYTES;

/// The weight of a part that the server copies, so that four are in flight.
const COPY_WEIGHT: u64 = 2 * PART_BYTES;

/// The number of attempts to remove an upload. Parts in flight may arrive after the first.
const CLEAN_ATTEMPTS: u32 = 4;
/// The pause between two attempts to remove an upload.
const CLEAN_PAUSE: Duration = Duration::from_millis(250);
/// The time for which a failed write waits for the removal of its upload, because its program may end
/// afterwards.
const REMOVE_WAIT: Duration = Duration::from_secs(1);

/// Returns the size of the part with this number, which counts from 1.
pub(crate) fn part_bytes(number: u32) -> u64 {
    PART_BYTES << (number.saturating_sub(1) / PARTS_OF_A_SIZE)
}

/// A running upload. Unless it is completed, it is removed from the server, even if it is dropped.
pub(crate) struct Upload {
    engine: Arc<Engine>,
    object: String,
    id: String,
    parts: JoinSet<Result<(CompletedPart, u64)>>,
    in_flight: u64,
    /// The total size of all parts so far.
    bytes: u64,
    completed: Vec<CompletedPart>,
    next: u32,
    open: bool,
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        // Without a runtime no task can send the request; the bucket's rule for unfinished uploads remains.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (engine, object, id) =
                (Arc::clone(&self.engine), std::mem::take(&mut self.object), std::mem::take(&mut self.id));
            let parts = std::mem::take(&mut self.parts);
            runtime.spawn(clean(engine, object, id, parts));
        }
    }
}

async fn clean(
    engine: Arc<Engine>,
    object: String,
    id: String,
    mut parts: JoinSet<Result<(CompletedPart, u64)>>,
) {
    parts.shutdown().await;
    for attempt in 0..CLEAN_ATTEMPTS {
        if attempt > 0 {
            tokio::time::sleep(CLEAN_PAUSE * attempt).await;
        }
        let request =
            engine.client.abort_multipart_upload().bucket(&engine.bucket).key(&object).upload_id(&id);
        // Until the server reports that the upload does not exist, a late part may have restored it.
        match request.send().await {
            Err(error) if code(&error) == Some("NoSuchUpload") || status(&error) == Some(404) => return,
            _ => {}
        }
    }
}

impl Upload {
    /// Begins an upload on a separate task: if the caller is dropped before the response, the upload is still
    /// removed.
    pub(crate) async fn begin(engine: &Arc<Engine>, object: &str, attributes: &Attributes) -> Result<Self> {
        let (engine, object, attributes) = (Arc::clone(engine), object.to_owned(), attributes.clone());
        let begun = tokio::spawn(async move {
            let request = engine
                .client
                .create_multipart_upload()
                .bucket(&engine.bucket)
                .key(&object)
                .content_type(attributes.content_type)
                .set_metadata(Some(attributes.metadata));
            let answer = request.send().await.map_err(|error| {
                failed(OPERATION, Effect::Repeatable, &error).with_outcome(Outcome::NotApplied)
            })?;
            let id = answer.upload_id.ok_or_else(|| {
                Error::new(
                    ErrorKind::Unexpected,
                    OPERATION,
                    "the server returned no id for an upload; use another server",
                )
                .with_outcome(Outcome::NotApplied)
            })?;
            Ok(Self {
                engine,
                object,
                id,
                parts: JoinSet::new(),
                in_flight: 0,
                bytes: 0,
                completed: Vec::new(),
                next: 1,
                open: true,
            })
        });
        begun.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Returns the size that the next part must have, unless it is the last.
    pub(crate) fn next_bytes(&self) -> u64 {
        part_bytes(self.next)
    }

    /// Sends the next part as soon as the limit in flight allows it.
    pub(crate) async fn push(&mut self, chunk: Chunk) -> Result<()> {
        if self.next > PARTS_MAX {
            let error =
                Error::new(ErrorKind::ResourceExhausted, OPERATION, "is larger than S3 accepts; split it");
            return Err(error);
        }
        while !self.parts.is_empty() && self.in_flight + chunk.bytes() > IN_FLIGHT_BYTES_MAX {
            self.join().await?;
        }
        let (number, bytes) = (i32::try_from(self.next).unwrap_or(i32::MAX), chunk.bytes());
        self.next += 1;
        self.in_flight += bytes;
        self.bytes += bytes;
        let (engine, object, id) = (Arc::clone(&self.engine), self.object.clone(), self.id.clone());
        self.parts.spawn(async move {
            let (chunk, progress) = (Arc::new(chunk), Progress::new());
            let request = engine
                .client
                .upload_part()
                .bucket(&engine.bucket)
                .key(object)
                .upload_id(id)
                .part_number(number)
                .content_length(i64::try_from(bytes).unwrap_or(i64::MAX))
                .body(Chunk::body(&chunk, &progress));
            let sent = request.customize().config_override(engine.sending(bytes)).send();
            let answer = progress
                .watch(&engine, (OPERATION, Effect::Repeatable), bytes, sent)
                .await
                .and_then(|answer| answer.map_err(|error| failed(OPERATION, Effect::Repeatable, &error)))
                .map_err(|error| error.with_outcome(Outcome::NotApplied))?;
            // Kept until here for a retry.
            drop(chunk);
            let part = CompletedPart::builder().part_number(number).set_e_tag(answer.e_tag).build();
            Ok((part, bytes))
        });
        Ok(())
    }

    /// Makes the server copy the next part from another object, while that object has the tag.
    pub(crate) async fn push_copy(&mut self, source: &str, tag: &str, range: &Range<u64>) -> Result<()> {
        while !self.parts.is_empty() && self.in_flight + COPY_WEIGHT > IN_FLIGHT_BYTES_MAX {
            self.join().await?;
        }
        let number = i32::try_from(self.next).unwrap_or(i32::MAX);
        self.next += 1;
        self.in_flight += COPY_WEIGHT;
        let bytes = range.end - range.start;
        self.bytes += bytes;
        let (engine, object, id) = (Arc::clone(&self.engine), self.object.clone(), self.id.clone());
        let request = engine
            .client
            .upload_part_copy()
            .bucket(&engine.bucket)
            .key(object)
            .upload_id(id)
            .part_number(number)
            .copy_source(source)
            .copy_source_if_match(tag)
            .copy_source_range(bytes_of(range));
        self.parts.spawn(async move {
            let answer =
                request.customize().config_override(engine.server_work(bytes)).send().await.map_err(
                    |error| failed(OPERATION, Effect::Repeatable, &error).with_outcome(Outcome::NotApplied),
                )?;
            let tag = answer.copy_part_result.and_then(|part| part.e_tag);
            Ok((CompletedPart::builder().part_number(number).set_e_tag(tag).build(), COPY_WEIGHT))
        });
        Ok(())
    }

    /// Removes the upload from the server. If that takes long, or if parts in flight restore it, the removal
    /// continues in the background.
    pub(crate) async fn remove(mut self) {
        let abort = async {
            self.parts.shutdown().await;
            let request = self.engine.client.abort_multipart_upload().bucket(&self.engine.bucket);
            let _ = request.key(&self.object).upload_id(&self.id).send().await;
        };
        let _ = tokio::time::timeout(REMOVE_WAIT, abort).await;
    }

    async fn join(&mut self) -> Result<()> {
        if let Some(part) = self.parts.join_next().await {
            let (part, bytes) = part.unwrap_or_else(|_| Err(ended()))?;
            self.in_flight -= bytes;
            self.completed.push(part);
        }
        Ok(())
    }

    /// Waits for the parts and creates the blob from them, if the condition is true. Returns the blob's tag.
    pub(crate) async fn complete(&mut self, condition: &Condition) -> Result<Option<String>> {
        while !self.parts.is_empty() {
            self.join().await?;
        }
        self.completed.sort_unstable_by_key(CompletedPart::part_number);
        let parts = std::mem::take(&mut self.completed);
        let all = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
        let tag = condition
            .attempt(|| {
                let request = condition
                    .client(&self.engine)
                    .complete_multipart_upload()
                    .bucket(&self.engine.bucket)
                    .key(&self.object)
                    .upload_id(&self.id)
                    .set_if_none_match(condition.if_none_match())
                    .set_if_match(condition.if_match())
                    .multipart_upload(all.clone());
                request.customize().config_override(self.engine.server_work(self.bytes)).send()
            })
            .await?
            .e_tag;
        self.open = false;
        Ok(tag)
    }
}

fn ended() -> Error {
    Error::new(ErrorKind::Unavailable, OPERATION, "the runtime is shutting down")
        .with_outcome(Outcome::NotApplied)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_thousand_parts_hold_the_largest_object() {
        assert_eq!(part_bytes(1), PART_BYTES);
        assert_eq!(part_bytes(PARTS_OF_A_SIZE), PART_BYTES);
        assert_eq!(part_bytes(PARTS_OF_A_SIZE + 1), 2 * PART_BYTES);
        let total: u64 = (1..=PARTS_MAX).map(part_bytes).sum();
        assert!(total >= 5 << 40);
        // S3 accepts no part over 5 GiB.
        assert!(part_bytes(PARTS_MAX) <= 5 << 30);
    }
}
