//! The rows: each is decoded as its store decodes it, and compared with itself.

use larder_kernel::{
    AgentId, BucketName, CollectionName, DocumentId, EntityId, EntityType, Key, Namespace, RelationshipId,
    RelationshipType, SessionId, TaskId, TaskStatus,
};
use rusqlite::Connection;
use rusqlite::Row;

use super::super::failure::{Failure, Fallible};
use super::super::value::{self, length};
use super::super::vector;
use super::noted;
use crate::verify::message::Columns;
use crate::verify::{Fault, FaultKind, Faults};

/// A table, the place of each row in words, and the check of a row.
struct RowCheck {
    subject: &'static str,
    /// Selects the place first.
    sql: &'static str,
    /// Returns the observation if the row is damaged. An error means that it cannot be decoded.
    check: fn(&Row<'_>, &Faults) -> Fallible<Option<String>>,
}

/// Reads every row.
pub(super) fn check(connection: &Connection, faults: &Faults) -> Fallible<()> {
    CHECKS.iter().try_for_each(|check| noted(run(check, connection, faults), check.subject, faults))
}

fn run(check: &RowCheck, connection: &Connection, faults: &Faults) -> Fallible<()> {
    let mut statement = connection.prepare(check.sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        faults.read(1);
        let seen = match (check.check)(row, faults) {
            Ok(None) => continue,
            Ok(Some(seen)) => seen,
            Err(_) => "it cannot be decoded".to_owned(),
        };
        let place = String::from_utf8_lossy(row.get_ref(0)?.as_bytes().unwrap_or(b"a row without a name"));
        faults.add(Fault::new(FaultKind::Record, place, seen));
    }
    Ok(())
}

const CHECKS: &[RowCheck] = &[
    RowCheck {
        subject: "threads",
        sql: "SELECT 'thread ' || namespace || ' ' || agent || '/' || session, namespace, agent, session
              FROM threads ORDER BY id",
        check: |row, _| {
            value::id::<Namespace>(row, 1)?;
            value::id::<AgentId>(row, 2)?;
            value::id::<SessionId>(row, 3).map(|_| None)
        },
    },
    RowCheck {
        subject: "messages",
        sql: "SELECT coalesce((SELECT printf('message %d of the thread ', m.seq) || t.namespace || ' ' ||
                    t.agent || '/' || t.session FROM threads t WHERE t.id = m.thread),
                    printf('message %d of thread row %d', m.seq, m.thread)),
                m.body, m.bytes, m.run, m.author, m.author_role,
                (SELECT t.namespace FROM threads t WHERE t.id = m.thread)
              FROM messages m ORDER BY m.rowid",
        check: message,
    },
    RowCheck {
        subject: "kv_entries",
        sql:
            "SELECT 'key ' || namespace || ' ' || bucket || ' ' || key, namespace, bucket, key, length(value)
              FROM kv_entries ORDER BY rowid",
        check: |row, _| {
            value::id::<Namespace>(row, 1)?;
            value::id::<BucketName>(row, 2)?;
            value::id::<Key>(row, 3)?;
            value::unsigned(row, 4).map(|_| None)
        },
    },
    RowCheck {
        subject: "documents",
        sql: "SELECT coalesce((SELECT 'document ' || c.namespace || ' ' || c.name || ' ' || d.id
                    FROM collections c WHERE c.key = d.collection), 'document ' || d.id),
                d.id, d.metadata, d.content,
                (SELECT c.name FROM collections c WHERE c.key = d.collection)
              FROM documents d ORDER BY d.key",
        check: |row, _| {
            value::id::<DocumentId>(row, 1)?;
            value::metadata(row, 2)?;
            value::text(row, 3)?;
            value::id::<CollectionName>(row, 4).map(|_| None)
        },
    },
    RowCheck {
        subject: "embeddings",
        sql: "SELECT coalesce((SELECT 'embedding of the document ' || c.namespace || ' ' || c.name || ' ' ||
                    e.id FROM collections c WHERE c.key = e.collection), 'embedding ' || e.id),
                e.embedding, e.norm,
                (SELECT c.dimensions FROM collections c WHERE c.key = e.collection)
              FROM embeddings e ORDER BY e.key",
        check: embedding,
    },
    RowCheck {
        subject: "entities",
        sql: "SELECT 'entity ' || namespace || ' ' || id, namespace, id, entity_type, properties
              FROM entities ORDER BY key",
        check: |row, _| {
            value::id::<Namespace>(row, 1)?;
            value::id::<EntityId>(row, 2)?;
            value::id::<EntityType>(row, 3)?;
            value::metadata(row, 4).map(|_| None)
        },
    },
    RowCheck {
        subject: "relationships",
        sql: "SELECT 'relationship ' || namespace || ' ' || id, id, relationship_type, properties
              FROM relationships ORDER BY key",
        check: |row, _| {
            value::id::<RelationshipId>(row, 1)?;
            value::id::<RelationshipType>(row, 2)?;
            value::metadata(row, 3).map(|_| None)
        },
    },
    RowCheck {
        subject: "boards",
        sql: "SELECT 'board ' || namespace || ' ' || conversation || '/' || agent, label, conversation, agent
              FROM boards ORDER BY key",
        check: |row, _| {
            value::optional_text(row, 1)?;
            value::id::<SessionId>(row, 2)?;
            value::id::<AgentId>(row, 3).map(|_| None)
        },
    },
    RowCheck {
        subject: "tasks",
        sql: "SELECT coalesce((SELECT 'task ' || b.namespace || ' ' || b.conversation || '/' || b.agent ||
                    ' ' || t.id FROM boards b WHERE b.key = t.board), 'task ' || t.id),
                t.id, t.status, t.title, t.metadata, t.description, t.result, t.retries, t.retries_max
              FROM tasks t ORDER BY t.key",
        check: task,
    },
];

fn message(row: &Row<'_>, faults: &Faults) -> Fallible<Option<String>> {
    let text = |column| Ok::<_, Failure>(row.get_ref(column)?.as_str().unwrap_or("\0"));
    let columns = Columns {
        body: row.get_ref(1)?.as_blob().unwrap_or_default(),
        bytes: row.get(2)?,
        run: row.get_ref(3)?.as_str_or_null().unwrap_or(Some("\0")),
        author: text(4)?,
        role: text(5)?,
    };
    let message = match columns.check() {
        Ok(message) => message,
        Err(seen) => return Ok(Some(seen)),
    };
    if let (Some(namespace), place) = (row.get::<_, Option<String>>(6)?, row.get::<_, String>(0)?) {
        message.blobs.iter().for_each(|blob| faults.names_blob(&namespace, blob.key.as_str(), &place));
    }
    Ok(None)
}

fn embedding(row: &Row<'_>, _: &Faults) -> Fallible<Option<String>> {
    let Some(embedding) = row.get_ref(1)?.as_blob().ok().and_then(vector::embedding_of) else {
        return Ok(Some("its numbers are damaged".to_owned()));
    };
    let (norm, dimensions): (f64, Option<i64>) = (row.get(2)?, row.get(3)?);
    let found = length(embedding.dimensions());
    if dimensions.is_some_and(|dimensions| dimensions != found) {
        let dimensions = dimensions.unwrap_or_default();
        return Ok(Some(format!("it has {found} dimensions; its collection has {dimensions}")));
    }
    let expected = vector::norm_of(&embedding);
    let differs = (norm - expected).abs() > expected * 1e-9;
    Ok(differs.then(|| "its length does not match its numbers".to_owned()))
}

fn task(row: &Row<'_>, _: &Faults) -> Fallible<Option<String>> {
    value::id::<TaskId>(row, 1)?;
    let status: String = row.get(2)?;
    if TaskStatus::from_name(&status).is_none() {
        return Ok(Some("its status is unknown".to_owned()));
    }
    value::text(row, 3)?;
    value::metadata(row, 4)?;
    value::optional_text(row, 5)?;
    value::optional_text(row, 6)?;
    let (retries, retries_max): (i64, i64) = (row.get(7)?, row.get(8)?);
    Ok((retries < 0 || retries_max < 0).then(|| "it has a negative number of retries".to_owned()))
}
