//! Writing: one statement for a small blob; chunks and then the row for a larger one.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, join};
use larder_kernel::{
    BlobBody, BlobCondition, BlobInfo, BlobKey, BlobPutOptions, Error, ErrorKind, Namespace, Outcome, Result,
    Timestamp, UserMetadata,
};
use sqlx::{PgConnection, Row};
use tokio::time::timeout;

use super::super::decode::timestamp;
use super::super::encode::{length, millis};
use super::super::engine::{Engine, Write, begin_write};
use super::super::failure::{Fallible, corrupt};
use super::checksum::of_whole;
use super::pieces::Pieces;
use super::rows::{Address, etag, version_of};
use super::upload::{Upload, lost};
use super::{CHUNK_BYTES, READERS_MAX, STEP_CHUNKS};

const OPERATION: &str = "blobs.put";
const STEP_BYTES: usize = STEP_CHUNKS * CHUNK_BYTES;
/// The time after which a write whose body is slow reports that it goes on.
const RENEWED_AFTER: Duration = Duration::from_secs(10 * 60);

/// The row of a blob to write.
struct Put {
    address: Address,
    size: usize,
    crc: i64,
    body: Body,
    content_type: Option<String>,
    metadata: Option<String>,
    condition: Condition,
}

/// The bytes in the row, or the number of the content and the number of its chunks.
enum Body {
    Bytes(Bytes),
    Content(i64, i32),
}

/// The parameters of a condition: the version and its checksum, as `larder.blob_place` takes them.
#[derive(Clone, Copy)]
struct Condition {
    version: Option<i64>,
    crc: Option<i64>,
    refusal: &'static str,
}

impl Condition {
    fn of(condition: &BlobCondition) -> Result<Self> {
        let refusal = "the blob has another ETag or does not exist; read it again and retry";
        Ok(match condition {
            BlobCondition::None => Self { version: None, crc: None, refusal },
            BlobCondition::Absent => {
                let refusal =
                    "a blob with this key already exists; use another key or write without the condition";
                Self { version: Some(-1), crc: None, refusal }
            }
            BlobCondition::Matches(tag) => {
                // No version has the number 0.
                let (version, crc) = version_of(tag).unwrap_or_default();
                Self { version: Some(version), crc: Some(crc), refusal }
            }
            _ => return Err(Error::unknown_value(OPERATION, "condition")),
        })
    }
}

pub(super) async fn put(
    engine: &Engine,
    namespace: &Namespace,
    key: &BlobKey,
    body: BlobBody,
    options: BlobPutOptions,
) -> Result<BlobInfo> {
    let condition = Condition::of(&options.condition)?;
    let BlobPutOptions { content_type, metadata, .. } = options;
    let address = Address::new(namespace, key);
    let stored_metadata = encode(&metadata)?;
    let row = |size, crc, body| Put {
        address,
        size,
        crc,
        body,
        content_type: content_type.clone(),
        metadata: stored_metadata,
        condition,
    };
    let mut pieces = Pieces::new(body);
    let (size, crc, written) = if pieces.fill(CHUNK_BYTES + 1).await? {
        let mut upload = send(engine, namespace, pieces).await?;
        let (size, crc) = (upload.size, upload.crc());
        let put = row(size, crc, Body::Content(upload.content, upload.chunks));
        let written = engine.statement(OPERATION, &put, put_row).await;
        // After a lost connection, the row may exist; then the content is no longer swept.
        upload.is_complete = written.is_ok();
        (size, crc, written?)
    } else {
        let bytes = pieces.take(1).pop().unwrap_or_default();
        let (size, crc) = (bytes.len(), of_whole(&bytes));
        let put = row(size, crc, Body::Bytes(bytes));
        (size, crc, engine.statement(OPERATION, &put, put_row).await?)
    };
    let (version, modified_at) = written;
    let info = BlobInfo::new(key.clone(), larder_kernel::check::size(size), etag(version, crc)?, modified_at);
    Ok(info.with_content_type(content_type).with_metadata(metadata))
}

fn encode(metadata: &UserMetadata) -> Result<Option<String>> {
    if metadata.is_empty() {
        return Ok(None);
    }
    serde_json::to_string(metadata).map(Some).map_err(|_| corrupt(OPERATION))
}

/// Sends the chunks. The body is read during a statement.
async fn send(engine: &Engine, namespace: &Namespace, mut pieces: Pieces) -> Result<Upload> {
    let mut upload = Upload::begin(engine, namespace).await?;
    loop {
        fill(&mut upload, &mut pieces).await?;
        let chunks = pieces.take(STEP_CHUNKS);
        if chunks.is_empty() {
            return Ok(upload);
        }
        let filled = timeout(RENEWED_AFTER, pieces.fill(STEP_BYTES));
        let (pushed, filled) = join(upload.push(chunks), filled).await;
        filled.unwrap_or(Ok(false))?;
        pushed?;
    }
}

/// Reads the next step of the body. A slow body may take longer for it than the sweep keeps an abandoned
/// write, so the write reports in between that it goes on.
async fn fill(upload: &mut Upload, pieces: &mut Pieces) -> Result<()> {
    loop {
        let queued = pieces.queued();
        let filled = timeout(RENEWED_AFTER, pieces.fill(STEP_BYTES)).await;
        match filled {
            Ok(filled) => return filled.map(drop),
            Err(_) if pieces.queued() > queued => upload.push(Vec::new()).await?,
            Err(_) => {}
        }
    }
}

fn put_row<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    put: &'c Put,
) -> BoxFuture<'c, Fallible<(i64, Timestamp)>> {
    Box::pin(async move {
        let (content, chunks, bytes) = match &put.body {
            Body::Bytes(bytes) => (None, None, Some(&bytes[..])),
            Body::Content(content, chunks) => (Some(*content), Some(i64::from(*chunks)), None),
        };
        let row = sqlx::query(concat!(
            "SELECT out_state, out_version, out_modified_ms
             FROM larder.blob_put($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) WHERE ",
            begin_write!("13", "14")
        ))
        .bind(put.address.namespace.as_str())
        .bind(put.address.key.as_str())
        .bind(length(put.size))
        .bind(put.crc)
        .bind(content)
        .bind(chunks)
        .bind(bytes)
        .bind(put.content_type.as_deref())
        .bind(put.metadata.as_deref())
        .bind(put.condition.version)
        .bind(put.condition.crc)
        .bind(millis(READERS_MAX))
        .bind(write.format)
        .bind(write.commit)
        .fetch_one(sql)
        .await?;
        match row.try_get::<i32, _>(0)? {
            0 => Ok((row.try_get(1)?, timestamp(row.try_get(2)?)?)),
            1 => {
                let refused = Error::new(ErrorKind::Conflict, OPERATION, put.condition.refusal);
                Err(refused.with_outcome(Outcome::NotApplied).into())
            }
            _ => Err(lost().into()),
        }
    })
}
