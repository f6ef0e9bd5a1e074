//! The changes of a bucket, as watches read them.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use larder_kernel::{Error, KeyValueEvent, KeyValueEventKind, KeyValueEvents, Result, Revision};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::super::decode::{count, generation, parse_id, timestamp};
use super::super::encode::{integer, length};
use super::super::engine::Engine;
use super::super::engine::watched::Followed;
use super::super::failure::Fallible;
use super::rows::Address;
use crate::change_log::{self, ChangeLog, ChangePage, OPERATION, PAGE_BYTES_MAX, PAGE_CHANGES_MAX};
use crate::follow::Subscriber;

struct BucketLog {
    engine: Engine,
    address: Address,
    prefix: String,
    number: i64,
    followed: Followed,
    subscriber: Subscriber,
}

/// Returns the changes after a revision, and then the changes to come.
pub(super) async fn follow(
    engine: Engine,
    address: Address,
    prefix: &str,
    after: Revision,
) -> Result<KeyValueEvents> {
    let number = engine.read(OPERATION, &address, |sql, address| notify_number(sql, address)).await?;
    let (namespace, name) = (address.namespace.as_str().to_owned(), address.bucket.as_str().to_owned());
    let followed = Followed::Bucket(namespace, name);
    let subscriber = engine.subscribe(number, followed.clone());
    let log = BucketLog { engine, address, prefix: prefix.to_owned(), number, followed, subscriber };
    change_log::follow(log, after).await
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

#[async_trait]
impl ChangeLog for BucketLog {
    async fn page(&self, after: u64) -> Result<ChangePage> {
        let wanted = (&self.address, &*self.prefix, integer(after));
        let page = self.engine.read(OPERATION, &wanted, |sql, wanted| Box::pin(page(sql, *wanted))).await?;
        if !page.more {
            let counters = page.last.generation().map(|generation| {
                (integer(page.last.get().saturating_add(generation.get())), integer(page.forgotten))
            });
            self.engine.reached(self.number, &self.followed, counters.unzip());
        }
        Ok(page)
    }

    async fn refusal(&mut self, error: Error, may_follow: bool) -> Error {
        self.engine.explain_position(error, may_follow).await
    }

    fn mark_seen(&mut self) {
        self.subscriber.mark_seen();
    }

    async fn wait(&mut self) -> Result<()> {
        self.subscriber.wait().await;
        Ok(())
    }
}

async fn page(
    sql: &mut PgConnection,
    (address, prefix, after): (&Address, &str, i64),
) -> Fallible<ChangePage> {
    // One statement, so that the bucket's counters and its changes come from one snapshot.
    let rows = sqlx::query(
        "WITH bucket AS MATERIALIZED (
            SELECT last_revision, forgotten_revision, generation FROM larder.kv_buckets
            WHERE namespace = $1 AND bucket = $2
         ), changes AS (
            (SELECT key, revision, expires_ms,
                CASE WHEN expires_ms <= larder.now_ms() THEN NULL ELSE value END AS value
             FROM larder.kv_entries
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
            c.revision IS NOT NULL, b.generation
         FROM bucket b LEFT JOIN cut c ON c.before < $6 ORDER BY c.revision",
    )
    .bind(address.namespace.as_str())
    .bind(address.bucket.as_str())
    .bind(after)
    .bind(prefix)
    .bind(length(PAGE_CHANGES_MAX))
    .bind(length(PAGE_BYTES_MAX))
    .fetch_all(sql)
    .await?;
    let Some(first) = rows.first() else { return Ok(ChangePage::default()) };
    let (last, forgotten) = (count(first.try_get(0)?)?, count(first.try_get(1)?)?);
    let generation = generation(first.try_get(7)?);
    let mut page = ChangePage {
        last: Revision::new(last).in_generation(generation),
        forgotten,
        cursor: last,
        ..ChangePage::default()
    };
    for row in rows.iter().filter(|row| row.try_get(6).unwrap_or(false)) {
        let mut event = event(row)?;
        event.revision = event.revision.in_generation(generation);
        page.events.push_back(event);
    }
    // An empty page means that the bucket was read to the end; otherwise the next page decides.
    if let Some(event) = page.events.back() {
        (page.cursor, page.more) = (event.revision.get(), true);
    }
    Ok(page)
}

fn event(row: &PgRow) -> Fallible<KeyValueEvent> {
    let kind = match row.try_get::<Option<Vec<u8>>, _>(5)? {
        None => KeyValueEventKind::Deleted,
        Some(value) => KeyValueEventKind::Put {
            value: Bytes::from(value),
            expires_at: row.try_get::<Option<i64>, _>(4)?.map(timestamp).transpose()?,
        },
    };
    Ok(KeyValueEvent::new(parse_id(row.try_get(2)?)?, Revision::new(count(row.try_get(3)?)?), kind))
}
