//! Reads and writes of several keys of a bucket, each in one statement.

use std::ops::Bound;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use larder_kernel::limits::{BATCH_KEYS_MAX, BATCH_VALUES_BYTES_MAX, BUCKET_TOMBSTONES_MAX, ID_BYTES_MAX};
use larder_kernel::storage::key_value::prefix_end;
use larder_kernel::{
    Error, Key, KeyOrder, KeyValueCondition, KeyValueEntry, KeyValueItem, KeyValueQuery, KeyValueWrite,
    KeyValueWriteKind, PageRequest, PrefixDeletion, Revision,
};
use sqlx::{PgConnection, Row};

use super::super::decode::{count, parse_id, timestamp};
use super::super::encode::{integer, length, millis};
use super::super::engine::{Write, begin_write};
use super::super::failure::{Fallible, corrupt};
use super::rows::{Address, revision};

/// Returns a text that sorts after every key.
fn last() -> String {
    "\u{10ffff}".repeat(ID_BYTES_MAX / 4 + 1)
}

/// Returns the entries of the keys, until their values exceed the limit for one answer.
pub(super) fn get_many<'c>(
    sql: &'c mut PgConnection,
    address: &'c Address,
    keys: &'c [Key],
) -> BoxFuture<'c, Fallible<Vec<Option<KeyValueEntry>>>> {
    Box::pin(async move {
        // One instant for all keys, so that keys that expire together are read together.
        let rows = sqlx::query(
            "SELECT f.revision, f.expires_ms, CASE WHEN f.total <= $4 THEN f.value END,
                (SELECT generation FROM larder.kv_buckets WHERE namespace = $1 AND bucket = $2)
             FROM (
                SELECT g.place, e.revision, e.expires_ms, e.value, octet_length(e.value) AS size,
                    sum(octet_length(e.value)) OVER (ORDER BY g.place ROWS UNBOUNDED PRECEDING) AS total
                FROM unnest($3::text[]) WITH ORDINALITY AS g (key, place)
                LEFT JOIN larder.kv_entries e ON e.namespace = $1 AND e.bucket = $2 AND e.key = g.key
                    AND (e.expires_ms IS NULL OR e.expires_ms > (SELECT larder.now_ms()))
             ) f
             WHERE coalesce(f.total - coalesce(f.size, 0), 0) <= $4 ORDER BY f.place",
        )
        .bind(address.namespace.as_str())
        .bind(address.bucket.as_str())
        .bind(keys.iter().map(Key::as_str).collect::<Vec<_>>())
        .bind(length(BATCH_VALUES_BYTES_MAX))
        .fetch_all(sql)
        .await?;
        let mut entries = Vec::with_capacity(rows.len());
        for row in &rows {
            let Some(number) = row.try_get::<Option<i64>, _>(0)? else {
                entries.push(None);
                continue;
            };
            let Some(value) = row.try_get::<Option<Vec<u8>>, _>(2)? else { break };
            let expires_at = row.try_get::<Option<i64>, _>(1)?.map(timestamp).transpose()?;
            let entry = KeyValueEntry::new(Bytes::from(value), revision(number, row.try_get(3)?)?);
            entries.push(Some(entry.with_expires_at(expires_at)));
        }
        Ok(entries)
    })
}

/// The parameters of the writes, one item per write.
#[derive(Default)]
struct Columns<'a> {
    keys: Vec<&'a str>,
    puts: Vec<bool>,
    values: Vec<Option<&'a [u8]>>,
    ttls_ms: Vec<Option<i64>>,
    ats: Vec<Option<i64>>,
    generations: Vec<Option<i64>>,
}

impl<'a> Columns<'a> {
    fn of(writes: &'a [KeyValueWrite]) -> Fallible<Self> {
        const OPERATION: &str = "key_value.write";
        let mut columns = Self::default();
        for write in writes {
            columns.keys.push(write.key.as_str());
            let named = |at: Revision| (Some(integer(at.get())), at.generation());
            let (at, generation) = match &write.kind {
                KeyValueWriteKind::Put { options, .. } => match options.condition {
                    KeyValueCondition::None => (None, None),
                    KeyValueCondition::Absent => (Some(-1), None),
                    KeyValueCondition::AtRevision(at) => named(at),
                    _ => return Err(Error::unknown_value(OPERATION, "condition").into()),
                },
                KeyValueWriteKind::Delete { at } => at.map_or((None, None), named),
                _ => return Err(Error::unknown_value(OPERATION, "writes.kind").into()),
            };
            columns.ats.push(at);
            columns.generations.push(generation.map(|generation| integer(generation.get())));
            let put = match &write.kind {
                KeyValueWriteKind::Put { value, options } => Some((&value[..], options.ttl.map(millis))),
                _ => None,
            };
            columns.puts.push(put.is_some());
            columns.values.push(put.map(|(value, _)| value));
            columns.ttls_ms.push(put.and_then(|(_, ttl_ms)| ttl_ms));
        }
        Ok(columns)
    }
}

pub(super) fn write<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    (address, writes): &'c (Address, Vec<KeyValueWrite>),
) -> BoxFuture<'c, Fallible<Vec<Option<Revision>>>> {
    Box::pin(async move {
        let columns = Columns::of(writes)?;
        let row = sqlx::query(concat!(
            "SELECT out_failed, out_revisions, out_generation
             FROM larder.kv_write($1, $2, $3, $4, $5, $6, $7, $8, $9) WHERE ",
            begin_write!("10", "11")
        ))
        .bind(address.namespace.as_str())
        .bind(address.bucket.as_str())
        .bind(columns.keys)
        .bind(columns.puts)
        .bind(columns.values)
        .bind(columns.ttls_ms)
        .bind(columns.ats)
        .bind(columns.generations)
        .bind(length(BUCKET_TOMBSTONES_MAX))
        .bind(write.format)
        .bind(write.commit)
        .fetch_one(sql)
        .await?;
        if let Some(failed) = row.try_get::<Option<i64>, _>(0)? {
            let index = usize::try_from(failed).map_err(|_| corrupt("key_value.write"))?;
            return Err(KeyValueWrite::conflict(index).into());
        }
        let generation = row.try_get(2)?;
        let numbers: Vec<Option<i64>> = row.try_get(1)?;
        numbers
            .into_iter()
            .map(|number| number.map(|number| revision(number, generation)).transpose())
            .collect()
    })
}

pub(super) fn delete_prefix<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    (address, prefix): &'c (Address, String),
) -> BoxFuture<'c, Fallible<PrefixDeletion>> {
    Box::pin(async move {
        let row = sqlx::query(concat!(
            "SELECT out_deleted, out_more FROM larder.kv_delete_prefix($1, $2, $3, $4, $5, $6) WHERE ",
            begin_write!("7", "8")
        ))
        .bind(address.namespace.as_str())
        .bind(address.bucket.as_str())
        .bind(prefix)
        .bind(prefix_end(prefix).unwrap_or_else(last))
        .bind(length(BATCH_KEYS_MAX))
        .bind(length(BUCKET_TOMBSTONES_MAX))
        .bind(write.format)
        .bind(write.commit)
        .fetch_one(sql)
        .await?;
        Ok(PrefixDeletion::new(count(row.try_get(0)?)?, row.try_get(1)?))
    })
}

/// Selects the entries of a page and one more. The inner query reads the rows of the page, and the outer ones
/// omit the values that exceed the limit for one answer.
macro_rules! select {
    ($from:literal, $order:literal) => {
        concat!(
            "SELECT f.key, f.revision, f.expires_ms, CASE WHEN $5 AND f.total <= $7 THEN f.value END,
                (SELECT generation FROM larder.kv_buckets WHERE namespace = $1 AND bucket = $2)
             FROM (
                SELECT p.*, sum(p.size) OVER (ORDER BY p.key ",
            $order,
            " ROWS UNBOUNDED PRECEDING) AS total
                FROM (
                    SELECT key, revision, expires_ms, value,
                        CASE WHEN $5 THEN octet_length(value) ELSE 0 END AS size
                    FROM larder.kv_entries
                    WHERE namespace = $1 AND bucket = $2 AND key ",
            $from,
            " $3 AND key < $4
                        AND (expires_ms IS NULL OR expires_ms > (SELECT larder.now_ms()))
                    ORDER BY key ",
            $order,
            " LIMIT $6
                ) p
             ) f
             WHERE f.total - f.size <= $7 ORDER BY f.key ",
            $order
        )
    };
}

/// Returns the entries of a page and one more. The last one has no value if the values exceed the limit for
/// one answer.
pub(super) fn entries<'c>(
    sql: &'c mut PgConnection,
    (address, query, page): &'c (Address, KeyValueQuery, PageRequest<Key>),
) -> BoxFuture<'c, Fallible<Vec<KeyValueItem>>> {
    Box::pin(async move {
        let (start, end) = query.bounds(page);
        let select = match (&start, query.order) {
            (_, KeyOrder::Descending) => select!(">=", "DESC"),
            (Bound::Excluded(_), _) => select!(">", ""),
            _ => select!(">=", ""),
        };
        let text = |bound: Bound<String>| match bound {
            Bound::Included(text) | Bound::Excluded(text) => Some(text),
            Bound::Unbounded => None,
        };
        let rows = sqlx::query(select)
            .bind(address.namespace.as_str())
            .bind(address.bucket.as_str())
            .bind(text(start).unwrap_or_default())
            .bind(text(end).unwrap_or_else(last))
            .bind(query.values)
            .bind(length(page.limit).saturating_add(1))
            .bind(length(BATCH_VALUES_BYTES_MAX))
            .fetch_all(sql)
            .await?;
        rows.iter()
            .map(|row| {
                let item = KeyValueItem::new(
                    parse_id(row.try_get(0)?)?,
                    revision(row.try_get(1)?, row.try_get(4)?)?,
                );
                let expires_at = row.try_get::<Option<i64>, _>(2)?.map(timestamp).transpose()?;
                let value = row.try_get::<Option<Vec<u8>>, _>(3)?.map(Bytes::from);
                Ok(item.with_expires_at(expires_at).with_value(value))
            })
            .collect()
    })
}
