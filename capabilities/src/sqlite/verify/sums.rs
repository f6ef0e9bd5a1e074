//! Counters and references: statements whose rows are faults.

use rusqlite::Connection;

use super::super::failure::Fallible;
use super::noted;
use crate::verify::{Fault, FaultKind, Faults};

/// A statement that returns the place and the observation of each fault.
pub(super) struct SqlCheck {
    kind: FaultKind,
    subject: &'static str,
    sql: &'static str,
    /// The repair: its description, and the statement that makes it. It only writes values that follow from
    /// other rows.
    pub(super) repair: Option<(&'static str, &'static str)>,
}

/// Runs the statements.
pub(super) fn check(connection: &Connection, faults: &Faults) -> Fallible<()> {
    CHECKS.iter().try_for_each(|check| noted(run(check, connection, faults), check.subject, faults))
}

fn run(check: &SqlCheck, connection: &Connection, faults: &Faults) -> Fallible<()> {
    let mut statement = connection.prepare(check.sql)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let fault = Fault::new(check.kind, row.get::<_, String>(0)?, row.get::<_, String>(1)?);
        faults.add(fault.with_repair(check.repair.map(|(description, _)| description)));
    }
    Ok(())
}

use FaultKind::{Counter, Index, Record, Reference};

pub(super) const CHECKS: &[SqlCheck] = &[
    SqlCheck {
        kind: Counter,
        subject: "threads",
        sql: "SELECT 'thread ' || namespace || ' ' || agent || '/' || session,
                printf('counts %d messages of %d bytes; it has %d of %d', messages, bytes, n, b)
              FROM (SELECT t.*, (SELECT count(*) FROM messages m WHERE m.thread = t.id) AS n,
                    (SELECT coalesce(sum(m.bytes), 0) FROM messages m WHERE m.thread = t.id) AS b
                    FROM threads t)
              WHERE messages <> n OR bytes <> b OR live <> (n > 0)",
        repair: Some((
            "count the messages again",
            "UPDATE threads SET
                messages = (SELECT count(*) FROM messages m WHERE m.thread = threads.id),
                bytes = (SELECT coalesce(sum(m.bytes), 0) FROM messages m WHERE m.thread = threads.id),
                live = EXISTS (SELECT 1 FROM messages m WHERE m.thread = threads.id)",
        )),
    },
    SqlCheck {
        kind: Counter,
        subject: "threads",
        sql: "SELECT 'thread ' || namespace || ' ' || agent || '/' || session,
                printf('last number %d, last change %d; the greatest number in use is %d', last_seq,
                    changed_seq, top)
              FROM (SELECT t.*, max(coalesce((SELECT max(seq) FROM messages WHERE thread = t.id), 0),
                    coalesce((SELECT max(seq) FROM thread_events WHERE thread = t.id), 0)) AS top
                    FROM threads t)
              WHERE last_seq < top OR changed_seq > last_seq",
        repair: Some((
            "raise the last number",
            "UPDATE threads SET last_seq = max(last_seq, changed_seq,
                coalesce((SELECT max(seq) FROM messages WHERE thread = threads.id), 0),
                coalesce((SELECT max(seq) FROM thread_events WHERE thread = threads.id), 0))",
        )),
    },
    SqlCheck {
        kind: Record,
        subject: "threads",
        sql: "SELECT 'thread ' || namespace || ' ' || agent || '/' || session,
                printf('its fence is %d; fencing tokens begin with 0', fence) FROM threads WHERE fence < 0",
        repair: None,
    },
    SqlCheck {
        kind: Reference,
        subject: "messages",
        sql: "SELECT printf('message %d of thread row %d', seq, thread), 'its thread does not exist'
              FROM messages m WHERE NOT EXISTS (SELECT 1 FROM threads t WHERE t.id = m.thread)",
        repair: None,
    },
    SqlCheck {
        kind: Reference,
        subject: "thread_events",
        sql: "SELECT printf('event %d of thread row %d', seq, thread), 'its thread does not exist'
              FROM thread_events e WHERE NOT EXISTS (SELECT 1 FROM threads t WHERE t.id = e.thread)
              UNION ALL
              SELECT printf('event %d of thread row %d', e.seq, e.thread), 'a message has the same number'
              FROM thread_events e JOIN messages m ON m.thread = e.thread AND m.seq = e.seq",
        repair: None,
    },
    SqlCheck {
        kind: Reference,
        subject: "append_keys",
        sql: "SELECT 'idempotency key ' || idempotency_key || printf(' of thread row %d', thread),
                'its thread or its messages do not exist'
              FROM append_keys k WHERE first_seq > last_seq
                OR NOT EXISTS (SELECT 1 FROM threads t WHERE t.id = k.thread AND t.last_seq >= k.last_seq)",
        repair: None,
    },
    SqlCheck {
        kind: Reference,
        subject: "removal_keys",
        sql: "SELECT 'key of a removal ' || idempotency_key || printf(' of thread row %d', thread),
                'its thread does not exist or is behind it'
              FROM removal_keys k WHERE NOT EXISTS
                (SELECT 1 FROM threads t WHERE t.id = k.thread AND t.last_seq >= k.last_seq)",
        repair: None,
    },
    SqlCheck {
        kind: Reference,
        subject: "popped_messages",
        sql: "SELECT printf('popped message %d of thread row %d', seq, thread), 'its removal does not exist'
              FROM popped_messages p WHERE NOT EXISTS (SELECT 1 FROM removal_keys k
                WHERE k.thread = p.thread AND k.idempotency_key = p.idempotency_key)",
        repair: None,
    },
    SqlCheck {
        kind: Counter,
        subject: "kv_buckets",
        sql: "SELECT 'bucket ' || namespace || ' ' || bucket,
                printf('last revision %d; the greatest revision in use is %d', last_revision, top)
              FROM (SELECT b.*, max(forgotten_revision,
                    coalesce((SELECT max(revision) FROM kv_entries e
                        WHERE e.namespace = b.namespace AND e.bucket = b.bucket), 0),
                    coalesce((SELECT max(revision) FROM kv_tombstones e
                        WHERE e.namespace = b.namespace AND e.bucket = b.bucket), 0)) AS top
                    FROM kv_buckets b)
              WHERE last_revision < top",
        repair: Some((
            "raise the last revision",
            "UPDATE kv_buckets SET last_revision = max(last_revision, forgotten_revision,
                coalesce((SELECT max(revision) FROM kv_entries e
                    WHERE e.namespace = kv_buckets.namespace AND e.bucket = kv_buckets.bucket), 0),
                coalesce((SELECT max(revision) FROM kv_tombstones e
                    WHERE e.namespace = kv_buckets.namespace AND e.bucket = kv_buckets.bucket), 0))",
        )),
    },
    SqlCheck {
        kind: Reference,
        subject: "kv_entries",
        sql: "SELECT 'key ' || namespace || ' ' || bucket || ' ' || key, 'its bucket does not exist'
              FROM (SELECT namespace, bucket, key FROM kv_entries
                    UNION ALL SELECT namespace, bucket, key FROM kv_tombstones) e
              WHERE NOT EXISTS (SELECT 1 FROM kv_buckets b
                    WHERE b.namespace = e.namespace AND b.bucket = e.bucket)",
        repair: None,
    },
    SqlCheck {
        kind: Record,
        subject: "kv_entries",
        sql: "SELECT 'key ' || e.namespace || ' ' || e.bucket || ' ' || e.key,
                'it is stored and deleted at the same time'
              FROM kv_entries e JOIN kv_tombstones t USING (namespace, bucket, key)
              UNION ALL
              SELECT 'bucket ' || namespace || ' ' || bucket,
                printf('%d keys have the revision %d', count(*), revision)
              FROM kv_entries GROUP BY namespace, bucket, revision HAVING count(*) > 1",
        repair: None,
    },
    SqlCheck {
        kind: Counter,
        subject: "collections",
        sql: "SELECT 'collection ' || namespace || ' ' || name,
                printf('counts %d documents; it has %d', documents, n)
              FROM (SELECT c.*, (SELECT count(*) FROM documents d WHERE d.collection = c.key) AS n
                    FROM collections c)
              WHERE documents <> n",
        repair: Some((
            "count the documents again",
            "UPDATE collections SET documents =
                (SELECT count(*) FROM documents d WHERE d.collection = collections.key)",
        )),
    },
    SqlCheck {
        kind: Reference,
        subject: "documents",
        sql: "SELECT 'document ' || d.id || printf(' of collection row %d', d.collection),
                'its collection does not exist'
              FROM documents d WHERE NOT EXISTS (SELECT 1 FROM collections c WHERE c.key = d.collection)
              UNION ALL
              SELECT 'document ' || c.namespace || ' ' || c.name || ' ' || d.id, 'it has no embedding'
              FROM documents d JOIN collections c ON c.key = d.collection
              WHERE NOT EXISTS (SELECT 1 FROM embeddings e WHERE e.key = d.key)
              UNION ALL
              SELECT 'embedding ' || e.id || printf(' of collection row %d', e.collection),
                'its document does not exist'
              FROM embeddings e WHERE NOT EXISTS (SELECT 1 FROM documents d WHERE d.key = e.key)",
        repair: None,
    },
    SqlCheck {
        kind: Index,
        subject: "embeddings",
        sql: "SELECT 'embedding of the document ' || d.id || printf(' of collection row %d', d.collection),
                'it is stored under another id or collection'
              FROM embeddings e JOIN documents d ON d.key = e.key
              WHERE e.id <> d.id OR e.collection <> d.collection",
        repair: Some((
            "store it under the id and the collection of its document",
            "UPDATE embeddings SET id = (SELECT d.id FROM documents d WHERE d.key = embeddings.key),
                collection = (SELECT d.collection FROM documents d WHERE d.key = embeddings.key)
             WHERE EXISTS (SELECT 1 FROM documents d WHERE d.key = embeddings.key)",
        )),
    },
    SqlCheck {
        kind: Counter,
        subject: "entity_revisions",
        sql: "SELECT 'entity_revisions',
                printf('last revision %d; the greatest revision in use is %d', last_revision, top)
              FROM entity_revisions, (SELECT max(coalesce((SELECT max(revision) FROM entities), 0),
                    coalesce((SELECT max(revision) FROM relationships), 0)) AS top)
              WHERE last_revision < top",
        repair: Some((
            "raise the last revision",
            "UPDATE entity_revisions SET last_revision =
                max(last_revision, coalesce((SELECT max(revision) FROM entities), 0),
                    coalesce((SELECT max(revision) FROM relationships), 0))",
        )),
    },
    SqlCheck {
        kind: Index,
        subject: "threads",
        sql: "SELECT 'thread ' || namespace || ' ' || agent || '/' || session, 'its expiry would be missed'
              FROM threads WHERE expires_ms IS NOT NULL AND (sweep_ms IS NULL OR sweep_ms > expires_ms)",
        repair: Some((
            "look for the expiry at its time",
            "UPDATE threads SET sweep_ms = expires_ms
             WHERE expires_ms IS NOT NULL AND (sweep_ms IS NULL OR sweep_ms > expires_ms)",
        )),
    },
    SqlCheck {
        kind: Reference,
        subject: "relationships",
        sql: "SELECT 'relationship ' || namespace || ' ' || id, 'its source or target does not exist'
              FROM relationships r
              WHERE NOT EXISTS (SELECT 1 FROM entities e
                    WHERE e.key = r.source AND e.namespace = r.namespace)
                OR NOT EXISTS (SELECT 1 FROM entities e
                    WHERE e.key = r.target AND e.namespace = r.namespace)",
        repair: None,
    },
    SqlCheck {
        kind: Reference,
        subject: "tasks",
        sql: "SELECT 'task ' || id || printf(' of board row %d', board), 'its board does not exist'
              FROM tasks t WHERE NOT EXISTS (SELECT 1 FROM boards b WHERE b.key = t.board)",
        repair: None,
    },
    SqlCheck {
        kind: Counter,
        subject: "boards",
        sql: "SELECT 'board ' || namespace || ' ' || conversation || '/' || agent,
                printf('last position %d, revision %d and token %d; the greatest in use are %d, %d and %d',
                    last_position, last_revision, last_token, p, r, k)
              FROM (SELECT b.*,
                    coalesce((SELECT max(position) FROM tasks t WHERE t.board = b.key), 0) AS p,
                    coalesce((SELECT max(revision) FROM tasks t WHERE t.board = b.key), 0) AS r,
                    coalesce((SELECT max(lease_token) FROM tasks t WHERE t.board = b.key), 0) AS k
                    FROM boards b)
              WHERE last_position < p OR last_revision < r OR last_token < k",
        repair: Some((
            "raise the last numbers",
            "UPDATE boards SET
                last_position = max(last_position,
                    coalesce((SELECT max(position) FROM tasks t WHERE t.board = boards.key), 0)),
                last_revision = max(last_revision,
                    coalesce((SELECT max(revision) FROM tasks t WHERE t.board = boards.key), 0)),
                last_token = max(last_token,
                    coalesce((SELECT max(lease_token) FROM tasks t WHERE t.board = boards.key), 0))",
        )),
    },
    SqlCheck {
        kind: Record,
        subject: "tasks",
        sql: "SELECT 'task ' || b.namespace || ' ' || b.conversation || '/' || b.agent || ' ' || t.id,
                'its lease is incomplete, or it has a lease and is not in progress'
              FROM tasks t JOIN boards b ON b.key = t.board
              WHERE (lease_worker IS NULL) <> (lease_token IS NULL)
                OR (lease_worker IS NULL) <> (lease_expires_ms IS NULL)
                OR (lease_worker IS NOT NULL AND status <> 'in_progress')",
        repair: None,
    },
];
