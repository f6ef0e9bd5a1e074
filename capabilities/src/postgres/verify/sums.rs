//! Counters, references and the columns behind indexes: statements whose rows are faults.

mod blobs;

use futures_util::TryStreamExt;
use sqlx::{PgConnection, Row};

use super::super::failure::Fallible;
use super::{begin_step, end_step};
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

/// Returns the statements.
pub(super) fn checks() -> impl Iterator<Item = &'static SqlCheck> {
    CHECKS.iter().chain(blobs::CHECKS)
}

/// Runs the statements.
pub(super) async fn check(sql: &mut PgConnection, faults: &Faults) -> Fallible<()> {
    for check in checks() {
        begin_step(sql).await?;
        let done = run(check, sql, faults).await;
        end_step(sql, done, check.subject, faults).await?;
    }
    Ok(())
}

async fn run(check: &SqlCheck, sql: &mut PgConnection, faults: &Faults) -> Fallible<()> {
    let mut rows = sqlx::query(check.sql).persistent(false).fetch(sql);
    while let Some(row) = rows.try_next().await? {
        let fault = Fault::new(check.kind, row.try_get::<String, _>(0)?, row.try_get::<String, _>(1)?);
        faults.add(fault.with_repair(check.repair.map(|(description, _)| description)));
    }
    Ok(())
}

use FaultKind::{Counter, Index, Record, Reference};

/// The name of a thread, a bucket or a board with the given alias.
macro_rules! thread {
    ($t:literal) => {
        concat!("'thread ' || ", $t, ".namespace || ' ' || ", $t, ".agent || '/' || ", $t, ".session")
    };
}
macro_rules! bucket {
    ($b:literal) => {
        concat!("'bucket ' || ", $b, ".namespace || ' ' || ", $b, ".bucket")
    };
}
macro_rules! board {
    ($b:literal) => {
        concat!($b, ".namespace || ' ' || ", $b, ".conversation || '/' || ", $b, ".agent")
    };
}

/// The messages of each thread in sum. An expired thread may be partly removed, so it is left out.
macro_rules! counted {
    () => {
        "FROM larder.threads t LEFT JOIN (
            SELECT namespace, thread, count(*) AS n, sum(bytes)::bigint AS b FROM larder.messages
            GROUP BY namespace, thread
         ) m ON m.namespace = t.namespace AND m.thread = t.id
         WHERE (t.expires_ms IS NULL OR t.expires_ms > larder.now_ms())
            AND (t.messages <> coalesce(m.n, 0) OR t.bytes <> coalesce(m.b, 0))"
    };
}

/// The greatest number in use of each thread.
macro_rules! greatest {
    () => {
        "FROM larder.threads t JOIN LATERAL (SELECT greatest(
            (SELECT max(seq) FROM larder.messages m WHERE m.namespace = t.namespace AND m.thread = t.id),
            (SELECT max(seq) FROM larder.thread_events e WHERE e.namespace = t.namespace AND e.thread = t.id),
            0) AS top) g ON t.last_seq < g.top OR t.changed_seq > t.last_seq"
    };
}

/// The greatest revision in use of each bucket.
macro_rules! revised {
    () => {
        "FROM larder.kv_buckets b JOIN LATERAL (SELECT greatest(b.forgotten_revision,
            (SELECT max(revision) FROM larder.kv_entries e
             WHERE e.namespace = b.namespace AND e.bucket = b.bucket),
            (SELECT max(revision) FROM larder.kv_tombstones e
             WHERE e.namespace = b.namespace AND e.bucket = b.bucket)) AS top) g ON b.last_revision < g.top"
    };
}

/// The first expiry of each bucket whose sweep would miss it.
macro_rules! unswept {
    () => {
        "FROM larder.kv_buckets b JOIN (
            SELECT namespace, bucket, min(expires_ms) AS first FROM larder.kv_entries
            WHERE expires_ms IS NOT NULL GROUP BY namespace, bucket
         ) e ON e.namespace = b.namespace AND e.bucket = b.bucket
         WHERE b.sweep_ms IS NULL OR b.sweep_ms > e.first"
    };
}

/// The greatest numbers in use of each board.
macro_rules! numbered {
    () => {
        "FROM larder.boards b JOIN (
            SELECT namespace, conversation, agent, max(position) AS p, max(revision) AS r,
                coalesce(max(lease_token), 0) AS k
            FROM larder.tasks GROUP BY namespace, conversation, agent
         ) t ON t.namespace = b.namespace AND t.conversation = b.conversation AND t.agent = b.agent
         WHERE b.last_position < t.p OR b.last_revision < t.r OR b.last_token < t.k"
    };
}

const CHECKS: &[SqlCheck] = &[
    SqlCheck {
        kind: Counter,
        subject: "threads",
        sql: concat!(
            "SELECT ",
            thread!("t"),
            ", format('counts %s messages of %s bytes; it has %s of %s', t.messages, t.bytes,
                coalesce(m.n, 0), coalesce(m.b, 0)) ",
            counted!()
        ),
        repair: Some((
            "count the messages again",
            concat!(
                "UPDATE larder.threads u SET messages = c.n, bytes = c.b
                 FROM (SELECT t.namespace, t.id, coalesce(m.n, 0) AS n, coalesce(m.b, 0) AS b ",
                counted!(),
                ") c WHERE u.namespace = c.namespace AND u.id = c.id"
            ),
        )),
    },
    SqlCheck {
        kind: Counter,
        subject: "threads",
        sql: concat!(
            "SELECT ",
            thread!("t"),
            ", format('last number %s, last change %s; the greatest number in use is %s', t.last_seq,
                t.changed_seq, g.top) ",
            greatest!()
        ),
        repair: Some((
            "raise the last number",
            concat!(
                "UPDATE larder.threads u SET last_seq = c.top
                 FROM (SELECT t.namespace, t.id, greatest(g.top, t.changed_seq, t.last_seq) AS top ",
                greatest!(),
                ") c WHERE u.namespace = c.namespace AND u.id = c.id"
            ),
        )),
    },
    SqlCheck {
        kind: Index,
        subject: "threads",
        sql: concat!(
            "SELECT ",
            thread!("t"),
            ", 'its expiry would be missed, or has no time to live' FROM larder.threads t
             WHERE (t.expires_ms IS NULL) <> (t.ttl_ms IS NULL)
                OR (t.expires_ms IS NOT NULL AND (t.sweep_ms IS NULL OR t.sweep_ms > t.expires_ms))"
        ),
        repair: Some((
            "look for the expiry at its time",
            "UPDATE larder.threads SET sweep_ms = expires_ms
             WHERE expires_ms IS NOT NULL AND (sweep_ms IS NULL OR sweep_ms > expires_ms)",
        )),
    },
    SqlCheck {
        kind: Reference,
        subject: "messages",
        sql: "SELECT format('message %s of thread row %s in %s', m.seq, m.thread, m.namespace),
                'its thread does not exist'
              FROM larder.messages m WHERE NOT EXISTS (
                SELECT FROM larder.threads t WHERE t.namespace = m.namespace AND t.id = m.thread)",
        repair: None,
    },
    SqlCheck {
        kind: Reference,
        subject: "thread_events",
        sql: "SELECT format('event %s of thread row %s in %s', e.seq, e.thread, e.namespace),
                'its thread does not exist'
              FROM larder.thread_events e WHERE NOT EXISTS (
                SELECT FROM larder.threads t WHERE t.namespace = e.namespace AND t.id = e.thread)
              UNION ALL
              SELECT format('event %s of thread row %s in %s', e.seq, e.thread, e.namespace),
                'a message has the same number'
              FROM larder.thread_events e JOIN larder.messages m USING (namespace, thread, seq)",
        repair: None,
    },
    SqlCheck {
        kind: Reference,
        subject: "append_keys",
        sql: "SELECT format('idempotency key %s of thread row %s in %s', k.idempotency_key, k.thread, \
              k.namespace),
                'its thread or its messages do not exist'
              FROM larder.append_keys k WHERE k.first_seq > k.last_seq OR NOT EXISTS (
                SELECT FROM larder.threads t
                WHERE t.namespace = k.namespace AND t.id = k.thread AND t.last_seq >= k.last_seq)",
        repair: None,
    },
    SqlCheck {
        kind: Reference,
        subject: "removal_keys",
        sql: "SELECT format('key of a removal %s of thread row %s in %s', k.idempotency_key, k.thread, \
              k.namespace),
                'its thread does not exist or is behind it'
              FROM larder.removal_keys k WHERE NOT EXISTS (
                SELECT FROM larder.threads t
                WHERE t.namespace = k.namespace AND t.id = k.thread AND t.last_seq >= k.last_seq)",
        repair: None,
    },
    SqlCheck {
        kind: Reference,
        subject: "popped_messages",
        sql: "SELECT format('popped message %s of thread row %s in %s', p.seq, p.thread, p.namespace),
                'its removal does not exist'
              FROM larder.popped_messages p WHERE NOT EXISTS (
                SELECT FROM larder.removal_keys k WHERE k.namespace = p.namespace AND k.thread = p.thread
                    AND k.idempotency_key = p.idempotency_key)",
        repair: None,
    },
    SqlCheck {
        kind: Counter,
        subject: "kv_buckets",
        sql: concat!(
            "SELECT ",
            bucket!("b"),
            ", format('last revision %s; the greatest revision in use is %s', b.last_revision, g.top) ",
            revised!()
        ),
        repair: Some((
            "raise the last revision",
            concat!(
                "UPDATE larder.kv_buckets u SET last_revision = c.top
                 FROM (SELECT b.namespace, b.bucket, g.top ",
                revised!(),
                ") c WHERE u.namespace = c.namespace AND u.bucket = c.bucket"
            ),
        )),
    },
    SqlCheck {
        kind: Index,
        subject: "kv_buckets",
        sql: concat!("SELECT ", bucket!("b"), ", 'the expiry of its keys would be missed' ", unswept!()),
        repair: Some((
            "look for the expiry at its time",
            concat!(
                "UPDATE larder.kv_buckets u SET sweep_ms = c.first
                 FROM (SELECT b.namespace, b.bucket, e.first ",
                unswept!(),
                ") c WHERE u.namespace = c.namespace AND u.bucket = c.bucket"
            ),
        )),
    },
    SqlCheck {
        kind: Reference,
        subject: "kv_entries",
        sql: "SELECT 'key ' || e.namespace || ' ' || e.bucket || ' ' || e.key, 'its bucket does not exist'
              FROM (SELECT namespace, bucket, key FROM larder.kv_entries
                    UNION ALL SELECT namespace, bucket, key FROM larder.kv_tombstones) e
              WHERE NOT EXISTS (SELECT FROM larder.kv_buckets b
                    WHERE b.namespace = e.namespace AND b.bucket = e.bucket)",
        repair: None,
    },
    SqlCheck {
        kind: Record,
        subject: "kv_entries",
        sql: concat!(
            "SELECT 'key ' || namespace || ' ' || bucket || ' ' || key,
                'it is stored and deleted at the same time'
             FROM larder.kv_entries JOIN larder.kv_tombstones USING (namespace, bucket, key)
             UNION ALL
             SELECT ",
            bucket!("e"),
            ", format('%s keys have the revision %s', count(*), e.revision)
             FROM larder.kv_entries e GROUP BY e.namespace, e.bucket, e.revision HAVING count(*) > 1"
        ),
        repair: None,
    },
    SqlCheck {
        kind: Reference,
        subject: "documents",
        sql: "SELECT 'document ' || d.namespace || ' ' || d.collection || ' ' || d.id,
                'its collection does not exist'
              FROM larder.documents d WHERE NOT EXISTS (SELECT FROM larder.collections c
                WHERE c.namespace = d.namespace AND c.name = d.collection)",
        repair: None,
    },
    SqlCheck {
        kind: Reference,
        subject: "relationships",
        sql: "SELECT 'relationship ' || r.namespace || ' ' || r.id, 'its source or target does not exist'
              FROM larder.relationships r
              WHERE NOT EXISTS (SELECT FROM larder.entities e
                    WHERE e.namespace = r.namespace AND e.id = r.source)
                OR NOT EXISTS (SELECT FROM larder.entities e
                    WHERE e.namespace = r.namespace AND e.id = r.target)",
        repair: None,
    },
    SqlCheck {
        kind: Counter,
        subject: "entity_revisions",
        sql: "SELECT 'sequence entity_revisions',
                format('its last revision is %s; the greatest revision in use is %s', s.last, e.top)
              FROM (SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END AS last
                    FROM larder.entity_revisions) s,
                (SELECT greatest((SELECT max(revision) FROM larder.entities),
                    (SELECT max(revision) FROM larder.relationships)) AS top) e WHERE e.top > s.last",
        repair: Some((
            "raise the last revision",
            "SELECT setval('larder.entity_revisions', (SELECT greatest(
                (SELECT last_value FROM larder.entity_revisions), (SELECT max(revision) FROM larder.entities),
                (SELECT max(revision) FROM larder.relationships), 1)))",
        )),
    },
    SqlCheck {
        kind: Reference,
        subject: "tasks",
        sql: concat!(
            "SELECT 'task ' || ",
            board!("t"),
            " || ' ' || t.id, 'its board does not exist'
             FROM larder.tasks t WHERE NOT EXISTS (SELECT FROM larder.boards b WHERE b.namespace = t.namespace
                AND b.conversation = t.conversation AND b.agent = t.agent)"
        ),
        repair: None,
    },
    SqlCheck {
        kind: Counter,
        subject: "boards",
        sql: concat!(
            "SELECT 'board ' || ",
            board!("b"),
            ", format('last position %s, revision %s and token %s; the greatest in use are %s, %s and %s',
                b.last_position, b.last_revision, b.last_token, t.p, t.r, t.k) ",
            numbered!()
        ),
        repair: Some((
            "raise the last numbers",
            concat!(
                "UPDATE larder.boards u SET last_position = greatest(u.last_position, c.p),
                    last_revision = greatest(u.last_revision, c.r), last_token = greatest(u.last_token, c.k)
                 FROM (SELECT b.namespace, b.conversation, b.agent, t.p, t.r, t.k ",
                numbered!(),
                ") c WHERE u.namespace = c.namespace AND u.conversation = c.conversation
                    AND u.agent = c.agent"
            ),
        )),
    },
    SqlCheck {
        kind: Record,
        subject: "tasks",
        sql: concat!(
            "SELECT 'task ' || ",
            board!("t"),
            " || ' ' || t.id, 'its lease is incomplete, or it has a lease and is not in progress'
             FROM larder.tasks t
             WHERE (t.lease_worker IS NULL) <> (t.lease_token IS NULL)
                OR (t.lease_worker IS NULL) <> (t.lease_expires_ms IS NULL)
                OR (t.lease_worker IS NOT NULL AND t.status <> 'in_progress')"
        ),
        repair: None,
    },
];
