//! The upload of a content: its chunks, several to a statement.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use larder_kernel::{Error, ErrorKind, Namespace, Outcome, Result};
use sqlx::PgConnection;
use tokio::runtime::Handle;

use super::super::encode::millis;
use super::super::engine::{Engine, Write, begin_write};
use super::super::failure::{Fallible, corrupt};
use super::checksum::{Running, of_chunk};
use super::{SILENCE_MAX, change};

const OPERATION: &str = "blobs.put";
/// Chunks need not be on disk before the row that names them, whose commit flushes all earlier commits. The
/// row is only written if all chunks exist.
const WITHOUT_FLUSH: &str = "off";

/// A content in progress. Unless the write completes, its chunks are removed in the background.
pub(super) struct Upload {
    engine: Engine,
    namespace: Namespace,
    pub(super) content: i64,
    pub(super) chunks: i32,
    pub(super) size: usize,
    crc: Running,
    pub(super) is_complete: bool,
}

/// The parameters of a push.
struct Push<'a> {
    namespace: &'a Namespace,
    content: i64,
    first: i32,
    crcs: Vec<i64>,
    chunks: Vec<&'a [u8]>,
}

impl Upload {
    pub(super) async fn begin(engine: &Engine, namespace: &Namespace) -> Result<Self> {
        let content = engine.statement(OPERATION, namespace, begin).await;
        let content = content.map_err(|error| error.with_outcome(Outcome::NotApplied))?;
        Ok(Self {
            engine: engine.clone(),
            namespace: namespace.clone(),
            content,
            chunks: 0,
            size: 0,
            crc: Running::new(),
            is_complete: false,
        })
    }

    /// Writes the next chunks. Without chunks, it only reports that the write goes on.
    pub(super) async fn push(&mut self, chunks: Vec<Bytes>) -> Result<()> {
        let numbers = self.chunks..;
        let crcs =
            numbers.zip(&chunks).map(|(number, chunk)| of_chunk(self.content, number, chunk)).collect();
        let push = Push {
            namespace: &self.namespace,
            content: self.content,
            first: self.chunks,
            crcs,
            chunks: chunks.iter().map(|chunk| &chunk[..]).collect(),
        };
        let is_there = self.engine.repeatable(OPERATION, &push, push_chunks).await;
        if !is_there.map_err(|error| error.with_outcome(Outcome::NotApplied))? {
            return Err(lost());
        }
        for chunk in &chunks {
            self.crc.add(chunk);
            self.size += chunk.len();
        }
        let count = i32::try_from(chunks.len()).ok().and_then(|count| self.chunks.checked_add(count));
        self.chunks = count.ok_or_else(|| {
            let message = "the blob has more chunks than the database accepts; split it";
            Error::new(ErrorKind::ResourceExhausted, OPERATION, message).with_outcome(Outcome::NotApplied)
        })?;
        Ok(())
    }

    /// Returns the checksum of all bytes.
    pub(super) fn crc(&self) -> i64 {
        self.crc.value()
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // Outside of a runtime, the sweep removes the chunks later.
        if !self.is_complete
            && let Ok(runtime) = Handle::try_current()
        {
            let (engine, namespace, content) = (self.engine.clone(), self.namespace.clone(), self.content);
            runtime.spawn(async move { change::discard(&engine, &namespace, content).await });
        }
    }
}

/// Returns the error of a write whose chunks are gone.
pub(super) fn lost() -> Error {
    let message = "chunks of the blob were removed during the write: its namespace was erased, the body sent \
                   nothing for an hour, or the server lost them in a crash; write the blob again";
    Error::new(ErrorKind::Unavailable, OPERATION, message).with_outcome(Outcome::NotApplied)
}

fn begin<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    namespace: &'c Namespace,
) -> BoxFuture<'c, Fallible<i64>> {
    Box::pin(async move {
        let begin =
            sqlx::query_scalar(concat!("SELECT larder.blob_begin($1, $2) WHERE ", begin_write!("3", "4")));
        let begin = begin.bind(namespace.as_str()).bind(millis(SILENCE_MAX));
        Ok(begin.bind(write.format).bind(WITHOUT_FLUSH).fetch_one(sql).await?)
    })
}

fn push_chunks<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    push: &'c Push<'_>,
) -> BoxFuture<'c, Fallible<bool>> {
    Box::pin(async move {
        let is_there: Option<bool> = sqlx::query_scalar(concat!(
            "SELECT larder.blob_push($1, $2, $3, $4, $5, $6) WHERE ",
            begin_write!("7", "8")
        ))
        .bind(push.namespace.as_str())
        .bind(push.content)
        .bind(push.first)
        .bind(&push.crcs)
        .bind(&push.chunks)
        .bind(millis(SILENCE_MAX))
        .bind(write.format)
        .bind(WITHOUT_FLUSH)
        .fetch_one(sql)
        .await?;
        is_there.ok_or_else(|| corrupt(OPERATION).into())
    })
}
