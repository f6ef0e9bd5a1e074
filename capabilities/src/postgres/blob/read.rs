//! Reading: each statement reads a few chunks, in a task that ends even if nobody polls the stream.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream;
use futures_util::{StreamExt as _, TryStreamExt as _};
use larder_kernel::check::size;
use larder_kernel::{
    BlobBytes, BlobGetOptions, BlobInfo, BlobKey, BlobRead, Error, ErrorKind, Namespace, Outcome, Result,
};
use sqlx::{PgConnection, Row};
use tokio::task::JoinHandle;

use super::super::encode::{integer, length};
use super::super::engine::Engine;
use super::super::failure::{Fallible, corrupt};
use super::checksum::{Running, of_chunk, of_whole};
use super::rows::{Address, Stored, missing, stored_columns};
use super::{CHUNK_BYTES, STEP_CHUNKS, ended};

const OPERATION: &str = "blobs.get";
/// The number of statements that run ahead of the consumer.
const AHEAD: usize = 2;

pub(super) async fn head(engine: &Engine, namespace: &Namespace, key: &BlobKey) -> Result<BlobInfo> {
    const OPERATION: &str = "blobs.head";
    let found = engine.read(OPERATION, &Address::new(namespace, key), head_row).await?;
    found.ok_or_else(|| missing(OPERATION))?.into_info(key.clone())
}

pub(super) async fn get(
    engine: &Engine,
    namespace: &Namespace,
    key: &BlobKey,
    options: BlobGetOptions,
) -> Result<BlobRead> {
    let found = engine.read(OPERATION, &Address::new(namespace, key), get_row).await?;
    let (stored, body) = found.ok_or_else(|| missing(OPERATION))?;
    let whole = 0..stored.size;
    let range = options.range.map_or(Ok(whole.clone()), |range| range.resolve(stored.size))?;
    let bytes = match body {
        Body::Bytes(bytes) => {
            if size(bytes.len()) != stored.size || of_whole(&bytes) != stored.crc {
                return Err(corrupt(OPERATION));
            }
            let part = bytes.slice(position(range.start)?..position(range.end)?);
            stream::iter((!part.is_empty()).then_some(Ok(part))).boxed()
        }
        Body::Content(number) => {
            let content = Content { namespace: namespace.clone(), number, size: stored.size };
            let crc = (range == whole).then_some(stored.crc);
            read_content(engine.clone(), content, range.clone(), crc)?
        }
    };
    Ok(BlobRead::new(stored.into_info(key.clone())?, range, bytes))
}

/// Converts an offset in memory.
fn position(offset: u64) -> Result<usize> {
    usize::try_from(offset).map_err(|_| corrupt(OPERATION))
}

/// The bytes in the row, or the number of the content.
enum Body {
    Bytes(Bytes),
    Content(i64),
}

fn head_row<'c>(sql: &'c mut PgConnection, address: &'c Address) -> BoxFuture<'c, Fallible<Option<Stored>>> {
    Box::pin(async move {
        let row = sqlx::query(concat!(
            "SELECT ",
            stored_columns!("b"),
            " FROM larder.blobs b WHERE b.namespace = $1 AND b.key = $2"
        ))
        .bind(address.namespace.as_str())
        .bind(address.key.as_str())
        .fetch_optional(sql)
        .await?;
        row.as_ref().map(Stored::read).transpose()
    })
}

fn get_row<'c>(
    sql: &'c mut PgConnection,
    address: &'c Address,
) -> BoxFuture<'c, Fallible<Option<(Stored, Body)>>> {
    Box::pin(async move {
        let row = sqlx::query(concat!(
            "SELECT ",
            stored_columns!("b"),
            ", b.content, b.bytes,
                (SELECT c.chunk * $3 + octet_length(c.bytes) FROM larder.blob_chunks c
                 WHERE c.namespace = b.namespace AND c.content = b.content ORDER BY c.chunk DESC LIMIT 1)
             FROM larder.blobs b WHERE b.namespace = $1 AND b.key = $2"
        ))
        .bind(address.namespace.as_str())
        .bind(address.key.as_str())
        .bind(length(CHUNK_BYTES))
        .fetch_optional(sql)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let stored = Stored::read(&row)?;
        let bytes_in_chunks: Option<i64> = row.try_get(8)?;
        let body = match (row.try_get(6)?, row.try_get::<Option<Vec<u8>>, _>(7)?) {
            // The sizes agree, so that no range is shorter than it should be.
            (Some(content), None) if bytes_in_chunks == Some(integer(stored.size)) => Body::Content(content),
            (None, Some(bytes)) => Body::Bytes(Bytes::from(bytes)),
            _ => return Err(corrupt(OPERATION).into()),
        };
        Ok(Some((stored, body)))
    })
}

/// The bytes of a blob in chunks.
struct Content {
    namespace: Namespace,
    number: i64,
    size: u64,
}

/// A read of a content. Statements run a few steps ahead of the consumer.
struct ContentRead {
    engine: Engine,
    content: Arc<Content>,
    /// The bytes of the blob that no statement reads yet.
    left: Range<u64>,
    ahead: VecDeque<JoinHandle<Result<Vec<Bytes>>>>,
    ready: VecDeque<Bytes>,
    /// The checksum of the bytes so far and the one of all bytes, of a read of the whole blob.
    whole: Option<(Running, i64)>,
}

fn read_content(engine: Engine, content: Content, left: Range<u64>, crc: Option<i64>) -> Result<BlobBytes> {
    // A chunk has 31 bits for its number.
    i32::try_from(content.size / size(CHUNK_BYTES)).map_err(|_| corrupt(OPERATION))?;
    let read = ContentRead {
        engine,
        content: Arc::new(content),
        left,
        ahead: VecDeque::new(),
        ready: VecDeque::new(),
        whole: crc.map(|crc| (Running::new(), crc)),
    };
    Ok(stream::try_unfold(read, ContentRead::next).boxed())
}

impl ContentRead {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>> {
        while self.ready.is_empty() {
            self.start_steps();
            let Some(step) = self.ahead.pop_front() else { return Ok(None) };
            self.ready = step.await.map_err(|_| ended(OPERATION))??.into();
        }
        let Some(bytes) = self.ready.pop_front() else { return Ok(None) };
        if let Some((so_far, expected)) = &mut self.whole {
            so_far.add(&bytes);
            let is_last = self.ready.is_empty() && self.ahead.is_empty() && self.left.is_empty();
            // Before the last bytes, so that no consumer takes damaged bytes for all of them.
            if is_last && so_far.value() != *expected {
                return Err(corrupt(OPERATION));
            }
        }
        Ok(Some((bytes, self)))
    }

    fn start_steps(&mut self) {
        let step_bytes = size(STEP_CHUNKS * CHUNK_BYTES);
        while self.ahead.len() < AHEAD && !self.left.is_empty() {
            // The later steps begin where a chunk begins.
            let first = self.left.start - self.left.start % size(CHUNK_BYTES);
            let end = first.saturating_add(step_bytes).min(self.left.end);
            let (engine, content) = (self.engine.clone(), Arc::clone(&self.content));
            self.ahead.push_back(tokio::spawn(read_step(engine, content, self.left.start..end)));
            self.left.start = end;
        }
    }
}

/// A range of a content, and the numbers of its chunks.
struct Step {
    content: Arc<Content>,
    range: Range<u64>,
    first: i32,
    last: i32,
}

/// Reads the bytes of a range, chunk by chunk.
async fn read_step(engine: Engine, content: Arc<Content>, range: Range<u64>) -> Result<Vec<Bytes>> {
    let number = |at: u64| i32::try_from(at / size(CHUNK_BYTES)).map_err(|_| corrupt(OPERATION));
    let (first, last) = (number(range.start)?, number(range.end.saturating_sub(1))?);
    let step = Step { content, range, first, last };
    let chunks = engine.read(OPERATION, &step, step_rows).await?;
    if chunks.len() == usize::try_from(last - first + 1).unwrap_or_default() {
        return chunks.into_iter().zip(first..).map(|(chunk, number)| step.part(number, &chunk)).collect();
    }
    if engine.read(OPERATION, &step, belongs_to_a_blob).await? {
        return Err(corrupt(OPERATION));
    }
    let message =
        "the blob was replaced or deleted more than ten minutes ago, during the read; read it again";
    Err(Error::new(ErrorKind::Conflict, OPERATION, message).with_outcome(Outcome::NotApplied))
}

impl Step {
    /// Returns the part of a chunk that is in the range.
    fn part(&self, number: i32, chunk: &Bytes) -> Result<Bytes> {
        let chunk_bytes = size(CHUNK_BYTES);
        let start = u64::try_from(number).unwrap_or_default().saturating_mul(chunk_bytes);
        let end = start.saturating_add(chunk_bytes).min(self.content.size);
        if size(chunk.len()) != end - start {
            return Err(corrupt(OPERATION));
        }
        let (from, to) = (self.range.start.max(start), self.range.end.min(end));
        Ok(chunk.slice(position(from - start)?..position(to - start)?))
    }
}

/// Returns the chunks of a step that exist.
fn step_rows<'c>(sql: &'c mut PgConnection, step: &'c Step) -> BoxFuture<'c, Fallible<Vec<Bytes>>> {
    Box::pin(async move {
        let content = &step.content;
        let mut rows = sqlx::query(
            "SELECT chunk, crc, bytes FROM larder.blob_chunks
             WHERE namespace = $1 AND content = $2 AND chunk BETWEEN $3 AND $4 ORDER BY chunk",
        )
        .bind(content.namespace.as_str())
        .bind(content.number)
        .bind(step.first)
        .bind(step.last)
        .fetch(sql);
        let mut chunks = Vec::with_capacity(STEP_CHUNKS);
        while let Some(row) = rows.try_next().await? {
            let (number, bytes): (i32, Vec<u8>) = (row.try_get(0)?, row.try_get(2)?);
            if of_chunk(content.number, number, &bytes) != row.try_get::<i64, _>(1)? {
                return Err(corrupt(OPERATION).into());
            }
            chunks.push(Bytes::from(bytes));
        }
        Ok(chunks)
    })
}

/// Returns true if a missing chunk is a damage: a blob has the content, or a reader may still have it.
fn belongs_to_a_blob<'c>(sql: &'c mut PgConnection, step: &'c Step) -> BoxFuture<'c, Fallible<bool>> {
    Box::pin(async move {
        let belongs = sqlx::query_scalar(
            "SELECT EXISTS (SELECT FROM larder.blobs WHERE namespace = $1 AND content = $2)
                OR EXISTS (SELECT FROM larder.blob_leftovers
                    WHERE namespace = $1 AND content = $2 AND sweep_ms > larder.now_ms())",
        );
        let content = &step.content;
        Ok(belongs.bind(content.namespace.as_str()).bind(content.number).fetch_one(sql).await?)
    })
}
