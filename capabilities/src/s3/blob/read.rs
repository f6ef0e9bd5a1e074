//! Reading: the first request returns the first part, the rest follows in concurrent parts, all of one
//! version.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use aws_sdk_s3::operation::get_object::GetObjectOutput;
use aws_sdk_s3::primitives::ByteStream;
use bytes::Bytes;
use futures_util::stream::{self, StreamExt};
use larder_kernel::check::size;
use larder_kernel::{
    BlobBytes, BlobGetOptions, BlobInfo, BlobKey, BlobRead, ByteRange, Error, ErrorKind, Outcome, Result,
};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::value::{ObjectHeaders, etag_in, size_in};
use crate::s3::engine::Engine;
use crate::s3::failure::{Effect, corrupt, failed, progress_timed_out, status};
use crate::s3::key::Layout;

const OPERATION: &str = "blobs.get";
/// The number of bytes that one request reads.
const PART_BYTES: u64 = 8 * 1024 * 1024;
/// The number of concurrent requests of one read. Each part is buffered until its turn, so this bounds the
/// memory.
const PARTS_AT_ONCE: usize = 8;
/// The maximum number of times that an interrupted body is resumed.
const RESUMES: u32 = 4;
/// The pause before an interrupted body is resumed.
const RESUME_PAUSE: Duration = Duration::from_millis(200);
/// The maximum number of attempts of a read whose blob changes between two requests.
const ROUNDS: u32 = 4;
/// A start beyond the end of any blob.
const START_MAX: u64 = 1 << 53;

/// An object: the current one of its name, or an earlier version.
#[derive(Clone)]
struct Object {
    name: Arc<str>,
    version: Option<Arc<str>>,
}

impl Object {
    fn version(&self) -> Option<String> {
        self.version.as_deref().map(str::to_owned)
    }
}

pub(crate) async fn head(
    engine: &Engine,
    layout: &Layout,
    operation: &'static str,
    key: &BlobKey,
) -> Result<BlobInfo> {
    head_of(engine, operation, key, &Object { name: layout.object(key).into(), version: None }).await
}

async fn head_of(
    engine: &Engine,
    operation: &'static str,
    key: &BlobKey,
    object: &Object,
) -> Result<BlobInfo> {
    let request = engine.client.head_object().bucket(&engine.bucket).key(&*object.name);
    let request = request.set_version_id(object.version());
    let answer = request.send().await.map_err(|error| failed(operation, Effect::Read, &error))?;
    ObjectHeaders {
        size: size_in(operation, answer.content_length)?,
        etag: answer.e_tag(),
        content_type: answer.content_type(),
        metadata: answer.metadata(),
        modified_at: answer.last_modified(),
    }
    .into_info(operation, key)
}

/// Reads the current blob, or a version of it.
pub(crate) async fn get(
    engine: &Arc<Engine>,
    layout: &Layout,
    key: &BlobKey,
    version: Option<&str>,
    options: BlobGetOptions,
) -> Result<BlobRead> {
    let object = Object { name: layout.object(key).into(), version: version.map(Arc::from) };
    for _ in 0..ROUNDS {
        if let Some(answer) = first(engine, &object, options).await? {
            return begin(engine, object, key, options, answer);
        }
        let info = head_of(engine, OPERATION, key, &object).await?;
        if options.range.is_none() && info.size == 0 {
            return Ok(BlobRead::new(info, 0..0, stream::empty().boxed()));
        }
        let range = options.range.map_or(Ok(0..info.size), |range| range.resolve(info.size))?;
        match open(engine, &object, &first_of(&range), info.etag.as_str()).await {
            Ok(body) => return Ok(deliver(Source { engine: Arc::clone(engine), object, info, range }, body)),
            // Another version was written between the two requests.
            Err(error) if matches!(error.kind(), ErrorKind::Conflict | ErrorKind::InvalidInput) => {}
            Err(error) => return Err(error),
        }
    }
    Err(changed())
}

/// Requests the first part of an unknown blob. `None` if the request needs the size of the blob: the range is
/// outside the blob, the blob is empty, or the start depends on a distant end.
async fn first(engine: &Engine, object: &Object, options: BlobGetOptions) -> Result<Option<GetObjectOutput>> {
    let suffix = matches!(options.range, Some(ByteRange::Suffix(_)));
    let asked = match options.range {
        Some(ByteRange::Suffix(count)) if count > PART_BYTES => return Ok(None),
        Some(ByteRange::Suffix(count)) => format!("bytes=-{count}"),
        Some(ByteRange::Bounded { start, .. } | ByteRange::From(start)) if start > START_MAX => {
            return Ok(None);
        }
        Some(ByteRange::Bounded { start, end }) => bytes_of(&first_of(&(start..end))),
        Some(ByteRange::From(start)) => bytes_of(&first_of(&(start..u64::MAX))),
        None => bytes_of(&(0..PART_BYTES)),
    };
    // Some servers fail for a suffix longer than the blob; once the size is known, a plain range is
    // requested.
    let client = if suffix { &engine.client_without_retry } else { &engine.client };
    let request = client.get_object().bucket(&engine.bucket).key(&*object.name);
    match request.set_version_id(object.version()).range(asked).send().await {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if status(&error) == Some(416) => Ok(None),
        Err(error) if suffix && status(&error).is_some_and(|status| status >= 500) => Ok(None),
        Err(error) => Err(failed(OPERATION, Effect::Read, &error)),
    }
}

/// Returns a range in the form of the header, which includes its end.
pub(crate) fn bytes_of(range: &Range<u64>) -> String {
    format!("bytes={}-{}", range.start, range.end.saturating_sub(1))
}

fn first_of(range: &Range<u64>) -> Range<u64> {
    range.start..range.end.min(range.start.saturating_add(PART_BYTES))
}

/// Reads the response to the first request, and starts the delivery.
fn begin(
    engine: &Arc<Engine>,
    object: Object,
    key: &BlobKey,
    options: BlobGetOptions,
    answer: GetObjectOutput,
) -> Result<BlobRead> {
    let length = size_in(OPERATION, answer.content_length)?;
    // A server that sends the whole blob omits the range.
    let (start, total) = match answer.content_range() {
        Some(text) => parse_content_range(text).ok_or_else(|| corrupt(OPERATION))?,
        None => (0, length),
    };
    let headers = ObjectHeaders {
        size: total,
        etag: answer.e_tag(),
        content_type: answer.content_type(),
        metadata: answer.metadata(),
        modified_at: answer.last_modified(),
    };
    let info = headers.into_info(OPERATION, key)?;
    let range = match options.range {
        Some(range) => range.resolve(total)?,
        None => 0..total,
    };
    if range.start != start || (!range.is_empty() && length < first_of(&range).end - range.start) {
        return Err(corrupt(OPERATION));
    }
    let body = Body { bytes: answer.body, left: start..start + length };
    Ok(deliver(Source { engine: Arc::clone(engine), object, info, range }, body))
}

/// Returns the start and total of `bytes 0-4/10`.
fn parse_content_range(text: &str) -> Option<(u64, u64)> {
    let (range, total) = text.strip_prefix("bytes ")?.split_once('/')?;
    Some((range.split_once('-')?.0.parse().ok()?, total.parse().ok()?))
}

/// Requests a range of the version with this tag.
async fn open(engine: &Engine, object: &Object, range: &Range<u64>, etag: &str) -> Result<Body> {
    let request = engine
        .client
        .get_object()
        .bucket(&engine.bucket)
        .key(&*object.name)
        .set_version_id(object.version())
        .range(bytes_of(range))
        .if_match(format!("\"{etag}\""));
    let answer = request.send().await.map_err(|error| match status(&error) {
        Some(412 | 416) => changed(),
        _ => failed(OPERATION, Effect::Read, &error),
    })?;
    // Not every server respects the condition, but all return the tag of the version.
    let start = answer.content_range().and_then(parse_content_range).map_or(0, |(start, _)| start);
    if etag_in(OPERATION, answer.e_tag())?.as_str() != etag || start != range.start {
        return Err(changed());
    }
    let length = size_in(OPERATION, answer.content_length)?;
    Ok(Body { bytes: answer.body, left: start..start + length })
}

fn changed() -> Error {
    Error::new(
        ErrorKind::Conflict,
        OPERATION,
        "the blob was changed or deleted while it was read; read it again",
    )
}

fn broke_off() -> Error {
    Error::new(
        ErrorKind::Unavailable,
        OPERATION,
        "the connection was lost and could not be restored; try again",
    )
    .with_outcome(Outcome::NotApplied)
    .with_idempotent(true)
}

/// A body that is being received, and the range of the blob that it still delivers.
struct Body {
    bytes: ByteStream,
    left: Range<u64>,
}

/// One version of a blob, and the requested range.
struct Source {
    engine: Arc<Engine>,
    object: Object,
    info: BlobInfo,
    range: Range<u64>,
}

/// Receives a range piece by piece; resumes an interrupted body at its position.
struct Receiver {
    engine: Arc<Engine>,
    object: Object,
    etag: Arc<str>,
    left: Range<u64>,
    body: Option<Body>,
    resumes: u32,
}

impl Receiver {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        let timeout = self.engine.progress_timeout();
        let (halfway, until) = (Instant::now() + timeout / 2, Instant::now() + timeout);
        let silent = |_| progress_timed_out(OPERATION, Effect::Read);
        while !self.left.is_empty() {
            let body = match &mut self.body {
                Some(body) => body,
                None => {
                    let opening = open(&self.engine, &self.object, &self.left, &self.etag);
                    self.body.insert(timeout_at(until, opening).await.map_err(silent)??)
                }
            };
            // A silent connection is dropped while there is time for another one.
            let deadline = if Instant::now() < halfway { halfway } else { until };
            let next = match timeout_at(deadline, body.bytes.next()).await {
                Ok(next) => next,
                Err(late) if deadline == until => return Err(silent(late)),
                Err(_) => {
                    self.body = None;
                    continue;
                }
            };
            match next {
                Some(Ok(mut piece)) => {
                    // Ignores bytes beyond the requested range.
                    piece.truncate(usize::try_from(self.left.end - self.left.start).unwrap_or(usize::MAX));
                    self.left.start += size(piece.len());
                    body.left.start = self.left.start;
                    return Ok(Some(piece));
                }
                Some(Err(_)) | None if self.resumes == 0 => return Err(broke_off()),
                Some(Err(_)) | None => {
                    self.resumes -= 1;
                    self.body = None;
                    tokio::time::sleep(RESUME_PAUSE).await;
                }
            }
        }
        Ok(None)
    }
}

/// A part that a separate task fetches while others are delivered.
struct Part(JoinHandle<Result<Vec<Bytes>>>);

impl Drop for Part {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Part {
    fn fetch(mut receiver: Receiver) -> Self {
        Self(tokio::spawn(async move {
            let mut pieces = Vec::new();
            while let Some(piece) = receiver.next().await? {
                pieces.push(piece);
            }
            Ok(pieces)
        }))
    }
}

/// Returns the stream: the open body, then the following parts in order, while the next ones are fetched.
fn deliver(source: Source, body: Body) -> BlobRead {
    let Source { engine, object, info, range } = source;
    let etag: Arc<str> = info.etag.as_str().into();
    let receiver = move |left: Range<u64>, body: Option<Body>| Receiver {
        engine: Arc::clone(&engine),
        object: object.clone(),
        etag: Arc::clone(&etag),
        left,
        body,
        resumes: RESUMES,
    };
    let first = range.start..range.end.min(body.left.end);
    let left = first.end..range.end;
    let first = Some(receiver(first, Some(body)));
    let delivery = Delivery { first, fetched: VecDeque::new(), ready: VecDeque::new(), left, receiver };
    let bytes: BlobBytes = stream::try_unfold(delivery, async |mut delivery: Delivery<_>| {
        Ok(delivery.next().await?.map(|piece| (piece, delivery)))
    })
    .boxed();
    BlobRead::new(info, range, bytes)
}

/// A running delivery.
struct Delivery<F> {
    /// The part of the first request.
    first: Option<Receiver>,
    /// The following parts that are being fetched.
    fetched: VecDeque<Part>,
    /// The pieces of the current part.
    ready: VecDeque<Bytes>,
    /// The range that is not requested yet.
    left: Range<u64>,
    receiver: F,
}

impl<F: Fn(Range<u64>, Option<Body>) -> Receiver> Delivery<F> {
    async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            while self.fetched.len() < PARTS_AT_ONCE && !self.left.is_empty() {
                let part = first_of(&self.left);
                self.left.start = part.end;
                self.fetched.push_back(Part::fetch((self.receiver)(part, None)));
            }
            if let Some(first) = &mut self.first {
                if let Some(piece) = first.next().await? {
                    return Ok(Some(piece));
                }
                self.first = None;
            }
            if let Some(piece) = self.ready.pop_front() {
                return Ok(Some(piece));
            }
            let Some(part) = self.fetched.front_mut() else { return Ok(None) };
            let pieces = (&mut part.0).await.unwrap_or_else(|_| Err(broke_off()));
            self.fetched.pop_front();
            self.ready = pieces?.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_read_and_write_as_headers_do() {
        assert_eq!(bytes_of(&(3..10)), "bytes=3-9");
        assert_eq!(parse_content_range("bytes 3-9/20"), Some((3, 20)));
        for text in ["", "bytes 3-9", "bytes */20", "items 3-9/20", "bytes 3-9/*"] {
            assert_eq!(parse_content_range(text), None);
        }
        assert_eq!(first_of(&(5..u64::MAX)), 5..5 + PART_BYTES);
        assert_eq!(first_of(&(5..9)), 5..9);
    }
}
