//! The chunks of blobs: each one against its checksum, and all of a content against the blobs that have it.

use futures_util::TryStreamExt;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::super::blob::{Running, of_chunk};
use super::super::failure::Fallible;
use super::{begin_step, end_step};
use crate::verify::{Fault, FaultKind, Faults};

/// The name of the step in a fault.
const SUBJECT: &str = "blob_chunks";

/// A content whose chunks are being read.
struct Content {
    namespace: String,
    number: i64,
    /// The keys of its blobs, and their checksums.
    keys: Vec<String>,
    crcs: Vec<i64>,
    so_far: Running,
}

/// Reads every chunk.
pub(super) async fn check(sql: &mut PgConnection, faults: &Faults) -> Fallible<()> {
    begin_step(sql).await?;
    let done = read(sql, faults).await;
    end_step(sql, done, SUBJECT, faults).await
}

async fn read(sql: &mut PgConnection, faults: &Faults) -> Fallible<()> {
    let mut rows = sqlx::query(
        "SELECT c.namespace, c.content, c.chunk, c.crc, c.bytes, b.keys, b.crcs
         FROM larder.blob_chunks c LEFT JOIN (
            SELECT namespace, content, array_agg(key ORDER BY key) AS keys,
                array_agg(crc ORDER BY key) AS crcs
            FROM larder.blobs WHERE content IS NOT NULL GROUP BY namespace, content
         ) b ON b.namespace = c.namespace AND b.content = c.content
         ORDER BY c.namespace, c.content, c.chunk",
    )
    .persistent(false)
    .fetch(sql);
    let mut content: Option<Content> = None;
    while let Some(row) = rows.try_next().await? {
        faults.read(1);
        let (namespace, number): (&str, i64) = (row.try_get(0)?, row.try_get(1)?);
        let goes_on = content.as_ref().is_some_and(|content| content.is(namespace, number));
        if !goes_on && let Some(ended) = content.replace(Content::begin(&row)?) {
            ended.end(faults);
        }
        if let Some(content) = &mut content {
            content.add(&row, faults)?;
        }
    }
    if let Some(ended) = content {
        ended.end(faults);
    }
    Ok(())
}

impl Content {
    fn begin(row: &PgRow) -> Fallible<Self> {
        Ok(Self {
            namespace: row.try_get(0)?,
            number: row.try_get(1)?,
            keys: row.try_get::<Option<_>, _>(5)?.unwrap_or_default(),
            crcs: row.try_get::<Option<_>, _>(6)?.unwrap_or_default(),
            so_far: Running::new(),
        })
    }

    fn is(&self, namespace: &str, number: i64) -> bool {
        self.namespace == namespace && self.number == number
    }

    fn add(&mut self, row: &PgRow, faults: &Faults) -> Fallible<()> {
        let (chunk, bytes): (i32, &[u8]) = (row.try_get(2)?, row.try_get(4)?);
        self.so_far.add(bytes);
        if of_chunk(self.number, chunk, bytes) != row.try_get::<i64, _>(3)? {
            let owner = match self.keys.first() {
                Some(key) => format!("the blob {} {key}", self.namespace),
                None => format!("content {} in {}", self.number, self.namespace),
            };
            let place = format!("chunk {chunk} of {owner}");
            faults.add(Fault::new(FaultKind::Checksum, place, "it does not match its checksum"));
        }
        Ok(())
    }

    fn end(self, faults: &Faults) {
        let found = self.so_far.value();
        for (key, _) in self.keys.iter().zip(&self.crcs).filter(|(_, crc)| **crc != found) {
            let place = format!("blob {} {key}", self.namespace);
            faults.add(Fault::new(FaultKind::Checksum, place, "its chunks do not match its checksum"));
        }
    }
}
