//! Reads and writes of several keys of a bucket. Each runs inside one transaction.

use std::ops::Bound;

use bytes::Bytes;
use larder_kernel::check::size;
use larder_kernel::limits::{BATCH_KEYS_MAX, BATCH_VALUES_BYTES_MAX};
use larder_kernel::{
    Error, Key, KeyOrder, KeyValueCondition, KeyValueEntry, KeyValueItem, KeyValueQuery, KeyValueWrite,
    KeyValueWriteKind, PageRequest, PrefixDeletion, Revision,
};
use rusqlite::{Connection, params};

use super::super::engine::ReadBudget;
use super::super::failure::Fallible;
use super::super::value::{length, millis, now_ms, timestamp};
use super::rows::{
    Address, EXPIRE_ENTRIES_MAX, expire_entries, generation_column, get, insert_tombstone, revision,
    revision_of, schedule_expiry, take_revisions, trim_tombstones_at_times,
};

/// Returns the entries of the keys, until their values exceed the limit for one answer.
pub(super) fn get_many(
    sql: &Connection,
    address: &Address,
    keys: &[Key],
) -> Fallible<Vec<Option<KeyValueEntry>>> {
    // One instant for all keys, so that keys that expire together are read together.
    let (budget, now_ms, mut bytes) = (ReadBudget::unlimited(), now_ms(), 0);
    let mut entries = Vec::with_capacity(keys.len());
    for key in keys {
        let entry = get(sql, address, key, now_ms, &budget)?;
        bytes += entry.as_ref().map_or(0, |entry| entry.value.len());
        entries.push(entry);
        if bytes > BATCH_VALUES_BYTES_MAX {
            break;
        }
    }
    Ok(entries)
}

/// Evaluates every condition, and then writes.
pub(super) fn write(
    sql: &Connection,
    address: &Address,
    writes: &[KeyValueWrite],
) -> Fallible<Vec<Option<Revision>>> {
    let now_ms = now_ms();
    let mut changes = Vec::with_capacity(writes.len());
    for (index, write) in writes.iter().enumerate() {
        let (holds, changes_key) = evaluate(sql, address, write, now_ms)?;
        if !holds {
            return Err(KeyValueWrite::conflict(index).into());
        }
        changes.push(changes_key);
    }
    let count = length(changes.iter().filter(|changes_key| **changes_key).count());
    if count == 0 {
        return Ok(vec![None; writes.len()]);
    }
    let (last, generation) = take_revisions(sql, address, count)?;
    let mut number = last - count;
    let mut revisions = Vec::with_capacity(writes.len());
    for (write, changes_key) in writes.iter().zip(changes) {
        if !changes_key {
            revisions.push(None);
            continue;
        }
        number += 1;
        match &write.kind {
            KeyValueWriteKind::Put { value, options } => {
                let expires_ms = options.ttl.map(|ttl| now_ms.saturating_add(millis(ttl)));
                insert_entry(sql, address, &write.key, number, expires_ms, value)?;
            }
            _ => remove(sql, address, write.key.as_str(), number)?,
        }
        revisions.push(Some(revision(number, generation)?));
    }
    let expires_ms = writes.iter().filter_map(|write| match &write.kind {
        KeyValueWriteKind::Put { options, .. } => Some(now_ms.saturating_add(millis(options.ttl?))),
        _ => None,
    });
    if let Some(expires_ms) = expires_ms.min() {
        schedule_expiry(sql, address, expires_ms)?;
    }
    expire_entries(sql, address, now_ms, EXPIRE_ENTRIES_MAX)?;
    trim_tombstones_at_times(sql, address, last, count)?;
    Ok(revisions)
}

/// Returns whether the condition of a write holds, and whether the write changes its key.
fn evaluate(
    sql: &Connection,
    address: &Address,
    write: &KeyValueWrite,
    now_ms: i64,
) -> Fallible<(bool, bool)> {
    const OPERATION: &str = "key_value.write";
    let found = || revision_of(sql, address, &write.key, now_ms);
    let is_at = |at: Revision| -> Fallible<bool> { Ok(found()?.is_some_and(|found| at.names(found))) };
    match &write.kind {
        KeyValueWriteKind::Put { options, .. } => match options.condition {
            KeyValueCondition::None => Ok((true, true)),
            KeyValueCondition::Absent => Ok((found()?.is_none(), true)),
            KeyValueCondition::AtRevision(at) => Ok((is_at(at)?, true)),
            _ => Err(Error::unknown_value(OPERATION, "condition").into()),
        },
        KeyValueWriteKind::Delete { at: Some(at) } => Ok((is_at(*at)?, true)),
        KeyValueWriteKind::Delete { at: None } => Ok((true, found()?.is_some())),
        _ => Err(Error::unknown_value(OPERATION, "writes.kind").into()),
    }
}

fn insert_entry(
    sql: &Connection,
    address: &Address,
    key: &Key,
    number: i64,
    expires_ms: Option<i64>,
    value: &Bytes,
) -> Fallible<()> {
    let mut statement = sql.prepare_cached(
        "INSERT INTO kv_entries (namespace, bucket, key, revision, expires_ms, value)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (namespace, bucket, key) DO UPDATE
         SET revision = excluded.revision, expires_ms = excluded.expires_ms, value = excluded.value",
    )?;
    let (namespace, bucket) = address.key();
    statement.execute(params![namespace, bucket, key.as_str(), number, expires_ms, &value[..]])?;
    let mut statement =
        sql.prepare_cached("DELETE FROM kv_tombstones WHERE namespace = ?1 AND bucket = ?2 AND key = ?3")?;
    statement.execute([namespace, bucket, key.as_str()])?;
    Ok(())
}

/// Replaces an entry with its tombstone.
fn remove(sql: &Connection, address: &Address, key: &str, number: i64) -> Fallible<()> {
    let (namespace, bucket) = address.key();
    let mut statement =
        sql.prepare_cached("DELETE FROM kv_entries WHERE namespace = ?1 AND bucket = ?2 AND key = ?3")?;
    statement.execute([namespace, bucket, key])?;
    insert_tombstone(sql, address, key, number, false)
}

/// Deletes the first keys with the prefix.
pub(super) fn delete_prefix(sql: &Connection, address: &Address, prefix: &str) -> Fallible<PrefixDeletion> {
    let (query, page) = (KeyValueQuery::prefix(prefix), PageRequest::first(BATCH_KEYS_MAX));
    let mut found = entries(sql, address, &query, &page)?;
    let more = found.len() > BATCH_KEYS_MAX;
    found.truncate(BATCH_KEYS_MAX);
    let count = length(found.len());
    if count == 0 {
        return Ok(PrefixDeletion::default());
    }
    let (last, _) = take_revisions(sql, address, count)?;
    for (number, item) in (last - count + 1..).zip(&found) {
        remove(sql, address, item.key.as_str(), number)?;
    }
    trim_tombstones_at_times(sql, address, last, count)?;
    Ok(PrefixDeletion::new(size(found.len()), more))
}

/// Selects the entries between two keys. Keys compare by their bytes.
macro_rules! select {
    ($bounds:literal, $order:literal) => {
        concat!(
            "SELECT key, revision, expires_ms, CASE WHEN ?6 THEN length(value) ELSE 0 END, ",
            generation_column!(),
            ", CASE WHEN ?6 THEN value END FROM kv_entries e
             WHERE namespace = ?1 AND bucket = ?2 AND ",
            $bounds,
            " AND (expires_ms IS NULL OR expires_ms > ?5) ORDER BY key ",
            $order
        )
    };
}

/// Returns the entries of a page and one more. The last one has no value if the values exceed the limit for
/// one answer.
pub(super) fn entries(
    sql: &Connection,
    address: &Address,
    query: &KeyValueQuery,
    page: &PageRequest<Key>,
) -> Fallible<Vec<KeyValueItem>> {
    let (start, end) = query.bounds(page);
    let select = match (&start, &end, query.order) {
        (Bound::Excluded(_), Bound::Unbounded, _) => select!("key > ?3 AND ?4 IS NULL", ""),
        (Bound::Excluded(_), _, _) => select!("key > ?3 AND key < ?4", ""),
        (_, Bound::Unbounded, KeyOrder::Descending) => select!("key >= ?3 AND ?4 IS NULL", "DESC"),
        (_, _, KeyOrder::Descending) => select!("key >= ?3 AND key < ?4", "DESC"),
        (_, Bound::Unbounded, _) => select!("key >= ?3 AND ?4 IS NULL", ""),
        _ => select!("key >= ?3 AND key < ?4", ""),
    };
    let text = |bound: Bound<String>| match bound {
        Bound::Included(text) | Bound::Excluded(text) => Some(text),
        Bound::Unbounded => None,
    };
    let (namespace, bucket) = address.key();
    let (start, end) = (text(start).unwrap_or_default(), text(end));
    let mut statement = sql.prepare_cached(select)?;
    let mut rows = statement.query(params![namespace, bucket, start, end, now_ms(), query.values])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while found.len() <= page.limit {
        let Some(row) = rows.next()? else { break };
        let item =
            KeyValueItem::new(Key::try_from(row.get::<_, String>(0)?)?, revision(row.get(1)?, row.get(4)?)?)
                .with_expires_at(row.get::<_, Option<i64>>(2)?.map(timestamp).transpose()?);
        bytes += row.get::<_, i64>(3)?;
        // The first value always fits.
        if bytes > length(BATCH_VALUES_BYTES_MAX) {
            found.push(item);
            break;
        }
        found.push(item.with_value(row.get::<_, Option<Vec<u8>>>(5)?.map(Bytes::from)));
    }
    Ok(found)
}
