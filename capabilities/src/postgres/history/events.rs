//! Subscriptions: the log of a thread, read in pages and again after each notification.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::BoxFuture;
use larder_kernel::{
    Error, HistoryEvent, HistoryEventKind, HistoryEvents, Result, Revision, Seq, StoredMessage,
};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::super::decode::{count, generation, parse_id};
use super::super::encode::integer;
use super::super::engine::Engine;
use super::super::engine::watched::Followed;
use super::super::failure::{Fallible, corrupt};
use super::Address;
use super::lifetime;
use super::read::{decode, info};
use crate::follow::{self, EventLog, OPERATION};

/// The maximum number of events in one page.
const PAGE_EVENTS_MAX: i64 = 256;
/// A page ends when its messages reach this size.
const PAGE_BYTES_MAX: i64 = 4 * 1024 * 1024;

/// The log of a thread.
struct ThreadLog {
    engine: Engine,
    address: Address,
    number: i64,
    followed: Followed,
}

/// Returns the events after a `Seq`, and then the events to come.
pub(super) fn follow(engine: Engine, address: Address, number: i64, after: Seq) -> HistoryEvents {
    let (namespace, agent, session) = address.key();
    let followed = Followed::Thread(namespace.to_owned(), agent.to_owned(), session.to_owned());
    let subscriber = engine.subscribe(number, followed.clone());
    follow::follow(ThreadLog { engine, address, number, followed }, subscriber, after)
}

#[async_trait]
impl EventLog for ThreadLog {
    async fn page(&self, after: Seq) -> Result<VecDeque<HistoryEvent>> {
        let read = self.engine.read(OPERATION, &self.address, |sql, address| page(sql, address, after.get()));
        let page = read.await?;
        if page.is_empty() {
            // A reader without a generation has seen no thread.
            let seen =
                after.generation().map(|generation| after.get().saturating_add(integer(generation.get())));
            let counters = (seen, seen.map(|_| 0));
            self.engine.reached(self.number, &self.followed, counters);
        }
        Ok(page)
    }

    async fn watch(&self, lease: Duration) -> Result<bool> {
        let write = self.engine.write();
        let watch = self
            .engine
            .read(OPERATION, &self.address, |sql, address| lifetime::watch(sql, write, address, lease));
        watch.await
    }

    async fn refusal(&self, error: Error, may_follow: bool) -> Error {
        self.engine.explain_position(error, may_follow).await
    }

    async fn last(&self) -> Result<Seq> {
        let write = self.engine.write();
        let stands =
            self.engine.read(OPERATION, &self.address, |sql, address| info(sql, write, address)).await?;
        Ok(stands.last)
    }
}

/// Returns the next events after `after`, in order.
fn page<'c>(
    sql: &'c mut PgConnection,
    address: &'c Address,
    after: i64,
) -> BoxFuture<'c, Fallible<VecDeque<HistoryEvent>>> {
    Box::pin(async move {
        let (namespace, agent, session) = address.key();
        let rows = sqlx::query(
            "WITH t AS MATERIALIZED (
                SELECT id, generation FROM larder.threads
                WHERE namespace = $1 AND agent = $2 AND session = $3 AND last_seq > $4
                    AND (expires_ms IS NULL OR expires_ms > larder.now_ms())
             ), happened AS (
                (SELECT m.seq, 0::smallint AS kind, m.bytes, m.thread_bytes, m.body, 0::bigint AS removed,
                    NULL::text AS run, NULL::bigint AS up_to, NULL::bigint[] AS removed_seqs
                 FROM larder.messages m WHERE m.namespace = $1 AND m.thread = (SELECT id FROM t) AND m.seq > \
                 $4
                 ORDER BY m.seq LIMIT $5)
                UNION ALL
                (SELECT e.seq, e.kind, coalesce(u.bytes, 0), e.thread_bytes, u.body, e.removed, e.run,
                    e.up_to, e.seqs
                 FROM larder.thread_events e
                 LEFT JOIN LATERAL (
                    SELECT m.seq, m.bytes, m.body FROM larder.messages m
                    WHERE e.kind = 6 AND m.namespace = $1 AND m.thread = e.thread AND m.seq = e.up_to
                        AND m.updated_by = e.seq
                    LIMIT 1
                 ) u ON true
                 WHERE e.namespace = $1 AND e.thread = (SELECT id FROM t) AND e.seq > $4
                    AND (e.kind <> 6 OR u.seq IS NOT NULL)
                 ORDER BY e.seq LIMIT $5)
             ), cut AS (
                SELECT *, sum(bytes) OVER (ORDER BY seq) - bytes AS before
                FROM (SELECT * FROM happened ORDER BY seq LIMIT $5) first
             )
             SELECT c.seq, c.kind, c.thread_bytes, c.body, c.removed, c.run, c.up_to, p.seqs, p.bodies,
                (SELECT generation FROM t), c.removed_seqs, p.revisions
             FROM cut c LEFT JOIN LATERAL (
                SELECT array_agg(m.seq ORDER BY m.seq) AS seqs, array_agg(m.body ORDER BY m.seq) AS bodies,
                    array_agg(coalesce(m.updated_by, m.placed_by) ORDER BY m.seq) AS revisions
                FROM larder.messages m
                WHERE c.kind = 3 AND m.namespace = $1 AND m.thread = (SELECT id FROM t) AND m.seq <= c.up_to
                    AND m.placed_by = c.seq
             ) p ON c.kind = 3
             WHERE c.before < $6 ORDER BY c.seq",
        )
        .bind(namespace)
        .bind(agent)
        .bind(session)
        .bind(after)
        .bind(PAGE_EVENTS_MAX)
        .bind(PAGE_BYTES_MAX)
        .fetch_all(sql)
        .await?;
        rows.iter().map(shown).collect()
    })
}

fn shown(row: &PgRow) -> Fallible<HistoryEvent> {
    let thread_bytes: Option<i64> = row.try_get(2)?;
    let thread_bytes = thread_bytes.map_or(Ok(0), count)?;
    let removed = count(row.try_get(4)?)?;
    let kind = match row.try_get::<i16, _>(1)? {
        0 => HistoryEventKind::Appended { message: decode(row, 3)?, thread_bytes },
        1 => HistoryEventKind::Cleared { removed },
        2 => HistoryEventKind::RunCleared { run: parse_id(row.try_get(5)?)?, removed },
        3 => HistoryEventKind::Replaced {
            up_to: Seq::new(row.try_get(6)?),
            removed,
            messages: placed(row)?,
            thread_bytes,
        },
        4 => HistoryEventKind::Removed { seqs: seqs(row)? },
        5 => {
            let after = seqs(row)?.first().copied().ok_or_else(|| corrupt(OPERATION))?;
            HistoryEventKind::Rewound { after, removed }
        }
        6 => HistoryEventKind::Updated {
            of: Seq::new(row.try_get(6)?),
            message: decode(row, 3)?,
            thread_bytes,
        },
        _ => return Err(corrupt(OPERATION).into()),
    };
    let event = HistoryEvent::new(Seq::new(row.try_get(0)?), kind);
    Ok(event.in_generation(generation(row.try_get(9)?)))
}

/// Returns the numbers of a removal.
fn seqs(row: &PgRow) -> Fallible<Vec<Seq>> {
    let seqs: Option<Vec<i64>> = row.try_get(10)?;
    Ok(seqs.ok_or_else(|| corrupt(OPERATION))?.into_iter().map(Seq::new).collect())
}

/// Returns the remaining messages of a replacement.
fn placed(row: &PgRow) -> Fallible<Vec<StoredMessage>> {
    let seqs: Vec<i64> = row.try_get::<Option<_>, _>(7)?.unwrap_or_default();
    let bodies: Vec<Vec<u8>> = row.try_get::<Option<_>, _>(8)?.unwrap_or_default();
    let revisions: Vec<i64> = row.try_get::<Option<_>, _>(11)?.unwrap_or_default();
    seqs.into_iter()
        .zip(bodies)
        .zip(revisions)
        .map(|((seq, body), revision)| {
            let message = crate::message::decode(&body).ok_or_else(|| corrupt(OPERATION))?;
            let message = StoredMessage::new(Seq::new(seq), message);
            Ok(message.with_revision(Revision::at(Seq::new(revision))))
        })
        .collect()
}
