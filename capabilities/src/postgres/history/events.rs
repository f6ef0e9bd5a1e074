//! Subscriptions: the log of a thread, read in pages and again after each announcement.

use std::collections::VecDeque;
use std::time::Instant;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use larder_kernel::{Error, HistoryEvent, HistoryEventKind, HistoryEvents, Result, Seq, StoredMessage};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::super::engine::Engine;
use super::super::failure::{Fallible, corrupt};
use super::super::value::{count, id};
use super::super::wake::Bell;
use super::Address;
use super::read::{decode, info};
use super::write;
use crate::watched::{LEASE, Watched};

const OPERATION: &str = "history.subscribe";
/// Most events that are read at once.
const PAGE_EVENTS_MAX: i64 = 256;
/// A page ends when its messages reach this size.
const PAGE_BYTES_MAX: i64 = 4 * 1024 * 1024;

struct Subscription {
    engine: Engine,
    /// The thread, and the last number seen.
    cursor: (Address, i64),
    /// Whether that number is one of an event that was told, so that the thread must have come that far.
    told: bool,
    bell: Bell,
    watched: Watched,
    page: VecDeque<HistoryEvent>,
    ended: bool,
}

/// The events after a `Seq`, and then those to come.
pub(super) fn follow(engine: Engine, address: Address, wake: i64, after: Seq) -> HistoryEvents {
    let bell = engine.wakes().bell(wake);
    let cursor = (address, after.get());
    let subscription = Subscription {
        engine,
        cursor,
        told: false,
        bell,
        watched: Watched::default(),
        page: VecDeque::new(),
        ended: false,
    };
    futures_util::stream::unfold(subscription, |mut subscription| async move {
        let event = subscription.next().await?;
        subscription.ended = event.is_err();
        Some((event, subscription))
    })
    .boxed()
}

impl Subscription {
    async fn next(&mut self) -> Option<Result<HistoryEvent>> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(event) = self.page.pop_front() {
                return Some(Ok(event));
            }
            self.bell.hush();
            let read =
                self.engine.read(OPERATION, &self.cursor, |sql, (address, after)| page(sql, address, *after));
            match read.await {
                Err(error) => return Some(Err(error)),
                Ok(page) => self.page = page,
            }
            match self.page.back() {
                Some(last) => (self.cursor.1, self.told) = (last.seq.get(), true),
                None => {
                    match self.watches_anew().await {
                        Err(error) => return Some(Err(error)),
                        // What was appended before it did is not announced.
                        Ok(true) => continue,
                        Ok(false) => {}
                    }
                    match self.stands().await {
                        Err(error) => return Some(Err(error)),
                        Ok(()) => self.bell.wait().await,
                    }
                }
            }
        }
    }

    /// Has appends announced, if that is due. False where it is not, or cannot be: the first append to a new thread is
    /// announced in any case, and what is not announced is found by looking.
    async fn watches_anew(&mut self) -> Result<bool> {
        if !self.watched.is_due() {
            return Ok(false);
        }
        let asked = Instant::now();
        let watch =
            self.engine.read(OPERATION, &self.cursor.0, |sql, address| write::watch(sql, address, LEASE));
        let announces = watch.await?;
        self.watched.answered(asked, announces);
        Ok(announces)
    }

    /// Refuses a thread that stands behind what was told of it, where only an erasure takes it.
    async fn stands(&self) -> Result<()> {
        if !self.told {
            return Ok(());
        }
        let stands = self.engine.read(OPERATION, &self.cursor.0, |sql, address| info(sql, address)).await?;
        if stands.last.get() < self.cursor.1 { Err(Error::erased(OPERATION)) } else { Ok(()) }
    }
}

/// The next events after `after`, in order.
fn page<'c>(
    sql: &'c mut PgConnection,
    address: &'c Address,
    after: i64,
) -> BoxFuture<'c, Fallible<VecDeque<HistoryEvent>>> {
    Box::pin(async move {
        let (namespace, agent, session) = address.key();
        let rows = sqlx::query(
            "WITH t AS MATERIALIZED (
                SELECT id FROM larder.threads
                WHERE namespace = $1 AND agent = $2 AND session = $3 AND last_seq > $4
                    AND (expires_ms IS NULL OR expires_ms > larder.now_ms())
             ), happened AS (
                (SELECT m.seq, 0::smallint AS kind, m.bytes, m.thread_bytes, m.body, 0::bigint AS removed,
                    NULL::text AS run, NULL::bigint AS up_to
                 FROM larder.messages m WHERE m.namespace = $1 AND m.thread = (SELECT id FROM t) AND m.seq > $4
                 ORDER BY m.seq LIMIT $5)
                UNION ALL
                (SELECT e.seq, e.kind, 0, e.thread_bytes, NULL, e.removed, e.run, e.up_to
                 FROM larder.thread_events e
                 WHERE e.namespace = $1 AND e.thread = (SELECT id FROM t) AND e.seq > $4
                 ORDER BY e.seq LIMIT $5)
             ), cut AS (
                SELECT *, sum(bytes) OVER (ORDER BY seq) - bytes AS before
                FROM (SELECT * FROM happened ORDER BY seq LIMIT $5) first
             )
             SELECT c.seq, c.kind, c.thread_bytes, c.body, c.removed, c.run, c.up_to, p.seqs, p.bodies
             FROM cut c LEFT JOIN LATERAL (
                SELECT array_agg(m.seq ORDER BY m.seq) AS seqs, array_agg(m.body ORDER BY m.seq) AS bodies
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
        2 => HistoryEventKind::RunCleared { run: id(row.try_get(5)?)?, removed },
        3 => HistoryEventKind::Replaced {
            up_to: Seq::new(row.try_get(6)?),
            removed,
            messages: placed(row)?,
            thread_bytes,
        },
        _ => return Err(corrupt(OPERATION).into()),
    };
    Ok(HistoryEvent { seq: Seq::new(row.try_get(0)?), kind })
}

/// What is left of the messages that a replacement put in place.
fn placed(row: &PgRow) -> Fallible<Vec<StoredMessage>> {
    let seqs: Vec<i64> = row.try_get::<Option<_>, _>(7)?.unwrap_or_default();
    let bodies: Vec<Vec<u8>> = row.try_get::<Option<_>, _>(8)?.unwrap_or_default();
    seqs.into_iter()
        .zip(bodies)
        .map(|(seq, body)| {
            let message = crate::message::decode(&body).ok_or_else(|| corrupt(OPERATION))?;
            Ok(StoredMessage { seq: Seq::new(seq), message })
        })
        .collect()
}
