//! The rows: each is decoded as its store decodes it, and compared with itself.

use futures_util::TryStreamExt;
use larder_kernel::{
    AgentId, BlobKey, BucketName, CollectionName, DocumentId, EntityId, EntityType, Key, Namespace,
    RelationshipId, RelationshipType, SessionId, TaskId, TaskStatus,
};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::super::encode::{integer, length};
use super::super::failure::{Fallible, corrupt};
use super::super::vector;
use super::super::{blob, decode};
use super::{begin_step, end_step};
use crate::verify::message::Columns;
use crate::verify::{Fault, FaultKind, Faults, OPERATION};

/// A table, the place of each row in words, and the check of a row.
struct RowCheck {
    subject: &'static str,
    /// Selects the place first.
    sql: &'static str,
    kind: FaultKind,
    /// Returns the observation if the row is damaged. An error means that it cannot be decoded.
    check: fn(&PgRow) -> Fallible<Option<String>>,
}

/// Reads every row.
pub(super) async fn check(sql: &mut PgConnection, faults: &Faults) -> Fallible<()> {
    let has_directions: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM pg_catalog.pg_attribute a
            JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
            JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = 'larder' AND c.relname = 'documents' AND a.attname = 'direction'
                AND NOT a.attisdropped)",
    )
    .persistent(false)
    .fetch_one(&mut *sql)
    .await?;
    for check in CHECKS.iter().chain(has_directions.then_some(&DIRECTIONS)) {
        begin_step(sql).await?;
        let done = run(check, sql, faults).await;
        end_step(sql, done, check.subject, faults).await?;
    }
    Ok(())
}

async fn run(check: &RowCheck, sql: &mut PgConnection, faults: &Faults) -> Fallible<()> {
    let mut rows = sqlx::query(check.sql).persistent(false).fetch(sql);
    while let Some(row) = rows.try_next().await? {
        faults.read(1);
        let seen = match (check.check)(&row) {
            Ok(None) => continue,
            Ok(Some(seen)) => seen,
            Err(_) => "it cannot be decoded".to_owned(),
        };
        faults.add(Fault::new(check.kind, row.try_get::<String, _>(0)?, seen));
    }
    Ok(())
}

/// The directions of documents, from which pgvector computes distances.
const DIRECTIONS: RowCheck = RowCheck {
    subject: "directions",
    kind: FaultKind::Index,
    sql: "SELECT 'direction of the document ' || namespace || ' ' || collection || ' ' || id, embedding,
            direction::real[] FROM larder.documents",
    check: |row| {
        let embedding = vector::embedding_of(row.try_get(1)?).ok_or_else(|| corrupt(OPERATION))?;
        let found: Vec<f32> = row.try_get::<Option<_>, _>(2)?.unwrap_or_default();
        let expected: Vec<f32> = vector::direction_of(&embedding).collect();
        let near = |(found, expected): (&f32, &f32)| (found - expected).abs() <= 1e-5;
        let matches = found.len() == expected.len() && found.iter().zip(&expected).all(near);
        Ok((!matches).then(|| "it does not match the embedding".to_owned()))
    },
};

const fn record(
    subject: &'static str,
    sql: &'static str,
    check: fn(&PgRow) -> Fallible<Option<String>>,
) -> RowCheck {
    RowCheck { subject, sql, kind: FaultKind::Record, check }
}

const CHECKS: &[RowCheck] = &[
    record(
        "threads",
        "SELECT 'thread ' || namespace || ' ' || agent || '/' || session, namespace, agent, session, fence
         FROM larder.threads",
        |row| {
            decode::id::<Namespace>(row, 1)?;
            decode::id::<AgentId>(row, 2)?;
            decode::id::<SessionId>(row, 3)?;
            let fence: Option<i64> = row.try_get(4)?;
            let negative = fence.filter(|fence| *fence < 0);
            Ok(negative.map(|fence| format!("its fence is {fence}; fencing tokens begin with 0")))
        },
    ),
    record(
        "messages",
        "SELECT coalesce(format('message %s of the thread ', m.seq) || t.namespace || ' ' || t.agent || '/' ||
                t.session, format('message %s of thread row %s in %s', m.seq, m.thread, m.namespace)),
            m.body, m.bytes, m.run, m.author, m.author_role
         FROM larder.messages m LEFT JOIN larder.threads t ON t.namespace = m.namespace AND t.id = m.thread",
        |row| {
            let columns = Columns {
                body: row.try_get(1)?,
                bytes: row.try_get(2)?,
                run: row.try_get(3)?,
                author: row.try_get(4)?,
                role: row.try_get(5)?,
            };
            Ok(columns.check().err())
        },
    ),
    record(
        "kv_entries",
        "SELECT 'key ' || namespace || ' ' || bucket || ' ' || key, namespace, bucket, key,
            octet_length(value)
         FROM larder.kv_entries",
        |row| {
            decode::id::<Namespace>(row, 1)?;
            decode::id::<BucketName>(row, 2)?;
            decode::id::<Key>(row, 3)?;
            decode::small(row, 4).map(|_| None)
        },
    ),
    record(
        "blobs",
        "SELECT 'blob ' || namespace || ' ' || key, namespace, key, size, modified_ms, metadata, version
         FROM larder.blobs",
        |row| {
            decode::id::<Namespace>(row, 1)?;
            decode::id::<BlobKey>(row, 2)?;
            decode::unsigned(row, 3)?;
            decode::timestamp(row.try_get(4)?)?;
            blob::metadata(row.try_get(5)?)?;
            let version: i64 = row.try_get(6)?;
            Ok((version < 1).then(|| format!("its version is {version}; versions begin with 1")))
        },
    ),
    RowCheck {
        subject: "blobs",
        sql: "SELECT 'blob ' || namespace || ' ' || key, size, crc, bytes FROM larder.blobs
              WHERE bytes IS NOT NULL",
        kind: FaultKind::Checksum,
        check: |row| {
            let bytes: &[u8] = row.try_get(3)?;
            let matches = integer(decode::unsigned(row, 1)?) == length(bytes.len())
                && blob::of_whole(bytes) == row.try_get::<i64, _>(2)?;
            Ok((!matches).then(|| "its bytes do not match their checksum or size".to_owned()))
        },
    },
    record(
        "documents",
        "SELECT 'document ' || d.namespace || ' ' || d.collection || ' ' || d.id, d.id, d.collection,
            d.metadata, d.content, d.embedding, c.dimensions
         FROM larder.documents d LEFT JOIN larder.collections c
            ON c.namespace = d.namespace AND c.name = d.collection",
        document,
    ),
    record(
        "entities",
        "SELECT 'entity ' || namespace || ' ' || id, namespace, id, entity_type, properties, revision
         FROM larder.entities",
        |row| {
            decode::id::<Namespace>(row, 1)?;
            decode::id::<EntityId>(row, 2)?;
            decode::id::<EntityType>(row, 3)?;
            decode::metadata(row, 4)?;
            revision(row, 5)
        },
    ),
    record(
        "relationships",
        "SELECT 'relationship ' || namespace || ' ' || id, id, relationship_type, properties, revision
         FROM larder.relationships",
        |row| {
            decode::id::<RelationshipId>(row, 1)?;
            decode::id::<RelationshipType>(row, 2)?;
            decode::metadata(row, 3)?;
            revision(row, 4)
        },
    ),
    record(
        "boards",
        "SELECT 'board ' || namespace || ' ' || conversation || '/' || agent, label, conversation, agent,
            parent
         FROM larder.boards",
        |row| {
            decode::optional_text(row, 1)?;
            decode::id::<SessionId>(row, 2)?;
            decode::id::<AgentId>(row, 3)?;
            decode::optional_id::<AgentId>(row, 4).map(|_| None)
        },
    ),
    record(
        "tasks",
        "SELECT 'task ' || namespace || ' ' || conversation || '/' || agent || ' ' || id, id, status, retries,
            retries_max, title, metadata, description, result
         FROM larder.tasks",
        task,
    ),
];

fn revision(row: &PgRow, column: usize) -> Fallible<Option<String>> {
    let revision: i64 = row.try_get(column)?;
    Ok((revision < 1).then(|| format!("its revision is {revision}; revisions begin with 1")))
}

fn document(row: &PgRow) -> Fallible<Option<String>> {
    decode::id::<DocumentId>(row, 1)?;
    decode::id::<CollectionName>(row, 2)?;
    decode::metadata(row, 3)?;
    decode::text(row, 4)?;
    let Some(embedding) = vector::embedding_of(row.try_get(5)?) else {
        return Ok(Some("the numbers of its embedding are damaged".to_owned()));
    };
    let (found, expected) = (embedding.dimensions(), row.try_get::<Option<i32>, _>(6)?);
    let differs = expected.is_some_and(|expected| usize::try_from(expected) != Ok(found));
    let expected = expected.unwrap_or_default();
    Ok(differs.then(|| format!("it has {found} dimensions; its collection has {expected}")))
}

fn task(row: &PgRow) -> Fallible<Option<String>> {
    decode::id::<TaskId>(row, 1)?;
    if TaskStatus::from_name(row.try_get(2)?).is_none() {
        return Ok(Some("its status is unknown".to_owned()));
    }
    let (retries, retries_max): (i32, i32) = (row.try_get(3)?, row.try_get(4)?);
    if retries < 0 || retries_max < 0 {
        return Ok(Some("it has a negative number of retries".to_owned()));
    }
    decode::text(row, 5)?;
    decode::metadata(row, 6)?;
    decode::optional_text(row, 7)?;
    decode::optional_text(row, 8).map(|_| None)
}
