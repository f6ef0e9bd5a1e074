//! Watches: the changes of a bucket, read in pages and again after each notification.

use std::collections::VecDeque;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use larder_kernel::{Error, ErrorKind, KeyValueEvent, KeyValueEventKind, KeyValueEvents, Result, Revision};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::super::decode::{count, parse_id, timestamp};
use super::super::encode::integer;
use super::super::engine::Engine;
use super::super::failure::Fallible;
use super::rows::Address;
use crate::follow::Subscriber;

const OPERATION: &str = "key_value.watch";
/// Most changes that are read at once.
const PAGE_CHANGES_MAX: i64 = 256;
/// A page ends when its values reach this size.
const PAGE_BYTES_MAX: i64 = 4 * 1024 * 1024;

/// Which changes are wanted, and after which revision.
struct Wanted {
    address: Address,
    prefix: String,
    after: i64,
    /// Where the watch began: the bucket must have come as far as any later `after`.
    begun: i64,
    /// Whether it began at revision 0 and has told of nothing yet. Then it knows of no key that could be gone, and needs
    /// nothing that was forgotten.
    anew: bool,
    /// The greatest forgotten revision that the watch may lack: what was forgotten when it had told of nothing yet.
    excused: i64,
}

/// Changes with the prefix, and how far the bucket was looked through for them.
struct ChangePage {
    events: VecDeque<KeyValueEvent>,
    cursor: i64,
    forgotten: i64,
    /// Whether another page may follow at once.
    more: bool,
}

struct Watch {
    engine: Engine,
    wanted: Wanted,
    subscriber: Subscriber,
    events: VecDeque<KeyValueEvent>,
    more: bool,
    ended: bool,
}

/// The changes after a revision, and then those to come. The first page is read here, so that a revision that is too
/// old is refused at once.
pub(super) async fn follow(
    engine: Engine,
    address: Address,
    prefix: &str,
    after: Revision,
) -> Result<KeyValueEvents> {
    let number = engine.read(OPERATION, &address, |sql, address| notify_number(sql, address)).await?;
    let subscriber = engine.notifier().subscribe(number);
    let after = integer(after.get());
    let wanted =
        Wanted { address, prefix: prefix.to_owned(), after, begun: after, anew: after == 0, excused: 0 };
    let mut watch = Watch { engine, wanted, subscriber, events: VecDeque::new(), more: true, ended: false };
    watch.advance().await?;
    let events = futures_util::stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        watch.ended = event.is_err();
        Some((event, watch))
    });
    Ok(events.boxed())
}

/// Returns the number under which the bucket's changes are announced.
fn notify_number<'c>(sql: &'c mut PgConnection, address: &'c Address) -> BoxFuture<'c, Fallible<i64>> {
    Box::pin(async move {
        let number = sqlx::query_scalar("SELECT larder.wake('k', $1, $2)")
            .bind(address.namespace.as_str())
            .bind(address.bucket.as_str());
        Ok(number.fetch_one(sql).await?)
    })
}

impl Watch {
    async fn next(&mut self) -> Option<Result<KeyValueEvent>> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(event) = self.events.pop_front() {
                return Some(Ok(event));
            }
            if !self.more {
                self.subscriber.wait().await;
            }
            if let Err(error) = self.advance().await {
                return Some(Err(error));
            }
        }
    }

    /// Reads the next page.
    async fn advance(&mut self) -> Result<()> {
        // Should the future be dropped after this, `more` makes the next one read again.
        self.more = true;
        self.subscriber.mark_seen();
        let page = self.engine.read(OPERATION, &self.wanted, |sql, wanted| page(sql, wanted)).await?;
        if self.wanted.anew {
            self.wanted.excused = page.forgotten;
        }
        self.wanted.anew &= page.events.is_empty();
        self.wanted.after = page.cursor;
        self.events = page.events;
        self.more = page.more;
        Ok(())
    }
}

fn page<'c>(sql: &'c mut PgConnection, wanted: &'c Wanted) -> BoxFuture<'c, Fallible<ChangePage>> {
    Box::pin(async move {
        // One statement, so that the bucket's numbers and its changes are of one instant.
        let rows = sqlx::query(
            "WITH bucket AS MATERIALIZED (
                SELECT last_revision, forgotten_revision FROM larder.kv_buckets WHERE namespace = $1 AND bucket = $2
             ), changes AS (
                (SELECT key, revision, expires_ms, value FROM larder.kv_entries
                 WHERE namespace = $1 AND bucket = $2 AND revision > $3 AND starts_with(key, $4)
                 ORDER BY revision LIMIT $5)
                UNION ALL
                (SELECT key, revision, NULL, NULL FROM larder.kv_tombstones
                 WHERE namespace = $1 AND bucket = $2 AND revision > $3 AND NOT expired AND starts_with(key, $4)
                 ORDER BY revision LIMIT $5)
                UNION ALL
                (SELECT key, revision, NULL, NULL FROM larder.kv_tombstones
                 WHERE namespace = $1 AND bucket = $2 AND revision > $3 AND expired AND starts_with(key, $4)
                 ORDER BY revision LIMIT $5)
             ), cut AS (
                SELECT *, sum(coalesce(octet_length(value), 0)) OVER (ORDER BY revision ROWS UNBOUNDED PRECEDING)
                    - coalesce(octet_length(value), 0) AS before
                FROM (SELECT * FROM changes ORDER BY revision LIMIT $5) first
             )
             SELECT b.last_revision, b.forgotten_revision, c.key, c.revision, c.expires_ms, c.value,
                c.revision IS NOT NULL
             FROM bucket b LEFT JOIN cut c ON c.before < $6 ORDER BY c.revision",
        )
        .bind(wanted.address.namespace.as_str())
        .bind(wanted.address.bucket.as_str())
        .bind(wanted.after)
        .bind(&wanted.prefix)
        .bind(PAGE_CHANGES_MAX)
        .bind(PAGE_BYTES_MAX)
        .fetch_all(sql)
        .await?;
        let mut page =
            ChangePage { events: VecDeque::new(), cursor: wanted.after, forgotten: 0, more: false };
        if is_erased(wanted, rows.first())? {
            if !wanted.anew {
                return Err(Error::erased(OPERATION).into());
            }
            return Ok(ChangePage { cursor: 0, more: true, ..page });
        }
        let Some(first) = rows.first() else { return Ok(page) };
        let (last, forgotten): (i64, i64) = (first.try_get(0)?, first.try_get(1)?);
        page.forgotten = forgotten;
        if last <= wanted.after {
            return Ok(page);
        }
        if !wanted.anew && wanted.after < forgotten && wanted.excused < forgotten {
            return Err(too_old().into());
        }
        for row in rows.iter().filter(|row| row.try_get(6).unwrap_or(false)) {
            let event = event(row)?;
            page.cursor = integer(event.revision.get());
            page.events.push_back(event);
        }
        // Nothing found means looked through to the end; else the next page tells.
        page.more = !page.events.is_empty();
        if page.events.is_empty() {
            page.cursor = last;
        }
        Ok(page)
    })
}

fn event(row: &PgRow) -> Fallible<KeyValueEvent> {
    let kind = match row.try_get::<Option<Vec<u8>>, _>(5)? {
        None => KeyValueEventKind::Deleted,
        Some(value) => KeyValueEventKind::Put {
            value: Bytes::from(value),
            expires_at: row.try_get::<Option<i64>, _>(4)?.map(timestamp).transpose()?,
        },
    };
    Ok(KeyValueEvent {
        key: parse_id(row.try_get(2)?)?,
        revision: Revision::new(count(row.try_get(3)?)?),
        kind,
    })
}

/// Whether the bucket stands behind where the watch has seen it, where only an erasure takes it.
fn is_erased(wanted: &Wanted, bucket: Option<&PgRow>) -> Fallible<bool> {
    let last: Option<i64> = bucket.map(|row| row.try_get(0)).transpose()?;
    Ok(wanted.after > wanted.begun && last.is_none_or(|last| last < wanted.after))
}

fn too_old() -> Error {
    Error::new(
        ErrorKind::Conflict,
        OPERATION,
        "changes since that revision are forgotten; watch from revision 0 anew",
    )
}
