//! Writing: one request for what fits in one, an upload in parts for the rest.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_s3::Client;
use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use larder_kernel::{
    BlobBody, BlobCondition, BlobInfo, BlobKey, BlobPutOptions, ETag, Error, ErrorKind, Outcome, Result,
    Timestamp, UserMetadata,
};

use super::body::{Chunk, Chunks};
use super::engine::Engine;
use super::failure::{Effect, code, failed, status, turned_away};
use super::key::Layout;
use super::read;
use super::stall::Progress;
use super::upload::{PART_BYTES, Upload};
use super::value::{content_type_out, etag_in, etag_out, metadata_out};

const OPERATION: &str = "blobs.put";
/// The most that goes in one request when all bytes are there: below it, parts would only cost requests.
const SINGLE_BYTES_MAX: u64 = 2 * PART_BYTES;
/// Attempts of a write whose condition the server did not decide, and the pause before the first of them.
const UNDECIDED_ATTEMPTS: u32 = 8;
const UNDECIDED_PAUSE: Duration = Duration::from_millis(20);

/// What must hold for a write, as headers say it.
#[derive(Clone)]
pub(crate) enum Condition {
    None,
    Absent,
    Matches(String),
}

impl Condition {
    fn new(condition: &BlobCondition) -> Result<Self> {
        Ok(match condition {
            BlobCondition::None => Self::None,
            BlobCondition::Absent => Self::Absent,
            BlobCondition::Matches(etag) => Self::Matches(etag_out(etag).ok_or_else(other_version)?),
        })
    }

    pub(crate) fn if_none_match(&self) -> Option<String> {
        matches!(self, Self::Absent).then(|| "*".to_owned())
    }

    pub(crate) fn if_match(&self) -> Option<String> {
        match self {
            Self::Matches(tag) => Some(tag.clone()),
            Self::None | Self::Absent => None,
        }
    }

    /// The client that repeats what may be repeated. A conditional write may not: if the answer to the first attempt is
    /// lost, the second meets the effect of the first and is told that somebody else was there.
    pub(crate) fn client<'a>(&self, engine: &'a Engine) -> &'a Client {
        match self {
            Self::None => &engine.client,
            Self::Absent | Self::Matches(_) => &engine.once,
        }
    }

    /// Runs the request that decides. It is run again where the server refused to decide, which it does when it is busy
    /// or another write to the same key is under way; then nothing was written.
    pub(crate) async fn attempt<T, E, F>(&self, request: impl Fn() -> F) -> Result<T>
    where
        E: ProvideErrorMetadata,
        F: Future<Output = Result<T, SdkError<E>>>,
    {
        let mut pause = UNDECIDED_PAUSE;
        let mut before = None;
        for attempt in 1.. {
            let error = match request().await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // Where an undecided upload has to be made anew, nothing was written by it.
            if let Some(before) = before.filter(|_| code(&error) == Some("NoSuchUpload")) {
                return Err(self.refusal(&before));
            }
            // A 503 without such a code may come from a proxy that lost the answer to a write.
            let undecided = status(&error) == Some(409)
                || code(&error).is_some_and(|code| {
                    turned_away(code) || matches!(code, "ConditionalRequestConflict" | "OperationAborted")
                });
            if matches!(self, Self::None) || !undecided || attempt == UNDECIDED_ATTEMPTS {
                return Err(self.refusal(&error));
            }
            before = Some(error);
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        Err(other_version())
    }

    /// What the refusal of a write under this condition means.
    pub(crate) fn refusal<E: ProvideErrorMetadata>(&self, error: &SdkError<E>) -> Error {
        let refused = status(error) == Some(412) || code(error) == Some("PreconditionFailed");
        // Over nothing no version matches; S3 says so with 404.
        let nothing =
            status(error) == Some(404) && !matches!(code(error), Some("NoSuchBucket" | "NoSuchUpload"));
        match self {
            Self::Absent if refused => {
                Error::new(ErrorKind::AlreadyExists, OPERATION, "a blob has this key already")
            }
            Self::Matches(_) if refused || nothing => other_version(),
            Self::None => failed(OPERATION, Effect::Repeatable, error),
            Self::Absent | Self::Matches(_) => failed(OPERATION, Effect::Once, error),
        }
    }
}

fn other_version() -> Error {
    Error::new(
        ErrorKind::Conflict,
        OPERATION,
        "the blob has another ETag or is gone; read it again and decide anew",
    )
}

/// What is kept beside the bytes, as headers say it.
#[derive(Clone, Default)]
pub(crate) struct Described {
    pub(crate) content_type: String,
    pub(crate) metadata: HashMap<String, String>,
}

impl Described {
    pub(crate) fn new(content_type: Option<&str>, metadata: &UserMetadata) -> Self {
        Self { content_type: content_type_out(content_type), metadata: metadata_out(metadata).collect() }
    }
}

pub(crate) async fn put(
    engine: &Arc<Engine>,
    layout: &Layout,
    key: &BlobKey,
    body: BlobBody,
    options: BlobPutOptions,
) -> Result<BlobInfo> {
    let condition = Condition::new(&options.condition)?;
    let described = Described::new(options.content_type.as_deref(), &options.metadata);
    let object = layout.object(key);
    // Of a stream no more is gathered than a part.
    let first_bytes = match body.known_len().map(larder_kernel::check::size) {
        Some(bytes) if bytes <= SINGLE_BYTES_MAX => SINGLE_BYTES_MAX,
        _ => PART_BYTES,
    };
    let mut chunks = Chunks::new(body);
    let first = chunks.next(first_bytes).await?;
    let (size, tag) = if chunks.ended() {
        (first.bytes(), put_at_once(engine, &object, first, &described, &condition).await?)
    } else {
        put_in_parts(engine, &object, first, chunks, &described, &condition).await?
    };
    let modified_at = Timestamp::now();
    // The blob is there by now.
    let repeatable = matches!(condition, Condition::None);
    let etag = written_tag(engine, layout, key, OPERATION, tag.as_deref())
        .await
        .map_err(|error| error.with_outcome(Outcome::Unknown).with_idempotent(repeatable))?;
    let BlobPutOptions { content_type, metadata, .. } = options;
    Ok(BlobInfo { key: key.clone(), size, etag, content_type, metadata, modified_at })
}

/// The tag of a blob that was just written. A server that keeps it to itself tells it when asked.
pub(crate) async fn written_tag(
    engine: &Engine,
    layout: &Layout,
    key: &BlobKey,
    operation: &'static str,
    told: Option<&str>,
) -> Result<ETag> {
    match told.filter(|tag| !tag.is_empty()) {
        Some(tag) => etag_in(operation, Some(tag)),
        None => Ok(read::head(engine, layout, operation, key).await?.etag),
    }
}

pub(crate) async fn put_at_once(
    engine: &Engine,
    object: &str,
    chunk: Chunk,
    described: &Described,
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
            .content_type(&described.content_type)
            .set_metadata(Some(described.metadata.clone()))
            .set_if_none_match(condition.if_none_match())
            .set_if_match(condition.if_match())
            .content_length(i64::try_from(bytes).unwrap_or(i64::MAX))
            .body(Chunk::body(&chunk, &progress));
        request.customize().config_override(engine.sending(bytes)).send()
    });
    let answer = progress.watch(engine, (OPERATION, effect), bytes, sent).await??;
    Ok(answer.e_tag)
}

/// Sends the parts as they come. The answer is how many bytes there were, and the blob's tag.
async fn put_in_parts(
    engine: &Arc<Engine>,
    object: &str,
    first: Chunk,
    mut chunks: Chunks,
    described: &Described,
    condition: &Condition,
) -> Result<(u64, Option<String>)> {
    let mut upload = Upload::begin(engine, object, described).await?;
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
