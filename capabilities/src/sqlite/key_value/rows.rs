//! The reads and writes of a bucket. Each runs inside one transaction.

use bytes::Bytes;
use larder_kernel::check::size;
use larder_kernel::limits::BUCKET_TOMBSTONES_MAX;
use larder_kernel::{
    BucketInfo, BucketName, Error, ErrorKind, Key, KeyRevision, KeyValueCondition, KeyValueEntry,
    KeyValuePutOptions, Namespace, PageRequest, Revision,
};
use rusqlite::{Connection, OptionalExtension, params};

use super::super::engine::ReadBudget;
use super::super::failure::{Failure, Fallible};
use super::super::value::{count, generation, integer, length, millis, new_generation, now_ms, timestamp};

/// The time for which an expired entry is kept, so that an active watcher still sees its put.
pub(super) const EXPIRED_RETENTION_MS: i64 = 60_000;
/// One in this many writes of a bucket trims old tombstones, which keeps the cost of each write small.
const TRIM_INTERVAL: i64 = 256;
/// The maximum number of expired entries that one write removes.
pub(super) const EXPIRE_ENTRIES_MAX: i64 = 16;
/// A write removes no further expired entries once their values reach this size.
const EXPIRE_BYTES_MAX: i64 = 4 << 20;

/// The namespace and name that identify a bucket.
pub(super) struct Address {
    pub(super) namespace: Namespace,
    pub(super) bucket: BucketName,
}

impl Address {
    pub(super) fn key(&self) -> (&str, &str) {
        (self.namespace.as_str(), self.bucket.as_str())
    }
}

/// The generation of the bucket of an entry with the alias `e`.
macro_rules! generation_column {
    () => {
        "(SELECT generation FROM kv_buckets b WHERE b.namespace = e.namespace AND b.bucket = e.bucket)"
    };
}
pub(super) use generation_column;

/// Returns the revision of an existing key.
pub(super) fn revision_of(
    sql: &Connection,
    address: &Address,
    key: &Key,
    now_ms: i64,
) -> Fallible<Option<Revision>> {
    let mut statement = sql.prepare_cached(concat!(
        "SELECT revision, ",
        generation_column!(),
        " FROM kv_entries e
         WHERE namespace = ?1 AND bucket = ?2 AND key = ?3 AND (expires_ms IS NULL OR expires_ms > ?4)"
    ))?;
    let (namespace, bucket) = address.key();
    let mut rows = statement.query(params![namespace, bucket, key.as_str(), now_ms])?;
    rows.next()?.map(|row| revision(row.get(0)?, row.get(1)?)).transpose()
}

/// Returns the revision with the bucket's generation.
pub(super) fn revision(number: i64, stored: i64) -> Fallible<Revision> {
    Ok(Revision::new(count(number)?).in_generation(generation(stored)))
}

/// Returns the next revision of the bucket and its generation; the first write creates the bucket.
fn next_revision(sql: &Connection, address: &Address) -> Fallible<(i64, i64)> {
    take_revisions(sql, address, 1)
}

/// Takes the next `count` revisions of the bucket. Returns the last one and the generation; the first write
/// creates the bucket.
pub(super) fn take_revisions(sql: &Connection, address: &Address, count: i64) -> Fallible<(i64, i64)> {
    let mut statement = sql.prepare_cached(
        "INSERT INTO kv_buckets (namespace, bucket, last_revision, forgotten_revision, generation)
         VALUES (?1, ?2, ?4, 0, ?3)
         ON CONFLICT (namespace, bucket) DO UPDATE SET last_revision = last_revision + ?4
         RETURNING last_revision, generation",
    )?;
    let (namespace, bucket) = address.key();
    let new = (namespace, bucket, new_generation(), count);
    Ok(statement.query_row(new, |row| Ok((row.get(0)?, row.get(1)?)))?)
}

fn conflict(operation: &'static str) -> Error {
    Error::new(
        ErrorKind::Conflict,
        operation,
        "the key is absent or at another revision; read it and try again",
    )
}

pub(super) fn put(
    sql: &Connection,
    address: &Address,
    key: &Key,
    value: &Bytes,
    options: KeyValuePutOptions,
) -> Fallible<Revision> {
    const OPERATION: &str = "key_value.put";
    let now_ms = now_ms();
    match options.condition {
        KeyValueCondition::None => {}
        KeyValueCondition::Absent => {
            if revision_of(sql, address, key, now_ms)?.is_some() {
                return Err(Error::new(
                    ErrorKind::Conflict,
                    OPERATION,
                    "the key already exists; read it or write without the condition",
                )
                .into());
            }
        }
        KeyValueCondition::AtRevision(at) => {
            if !revision_of(sql, address, key, now_ms)?.is_some_and(|found| at.names(found)) {
                return Err(conflict(OPERATION).into());
            }
        }
        _ => return Err(Error::unknown_value(OPERATION, "condition").into()),
    }
    let (number, generation) = next_revision(sql, address)?;
    let (namespace, bucket) = address.key();
    let expires_ms = options.ttl.map(|ttl| now_ms.saturating_add(millis(ttl)));
    let mut statement = sql.prepare_cached(
        "INSERT INTO kv_entries (namespace, bucket, key, revision, expires_ms, value)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (namespace, bucket, key) DO UPDATE
         SET revision = excluded.revision, expires_ms = excluded.expires_ms, value = excluded.value",
    )?;
    statement.execute(params![namespace, bucket, key.as_str(), number, expires_ms, &value[..]])?;
    let mut statement =
        sql.prepare_cached("DELETE FROM kv_tombstones WHERE namespace = ?1 AND bucket = ?2 AND key = ?3")?;
    statement.execute([namespace, bucket, key.as_str()])?;
    if let Some(expires_ms) = expires_ms {
        schedule_expiry(sql, address, expires_ms)?;
    }
    expire_entries(sql, address, now_ms, EXPIRE_ENTRIES_MAX)?;
    trim_tombstones_at_times(sql, address, number, 1)?;
    revision(number, generation)
}

pub(super) fn delete(sql: &Connection, address: &Address, key: &Key, at: Option<Revision>) -> Fallible<bool> {
    let found = revision_of(sql, address, key, now_ms())?;
    if at.is_some_and(|at| !found.is_some_and(|found| at.names(found))) {
        return Err(conflict("key_value.delete").into());
    }
    if found.is_none() {
        return Ok(false);
    }
    let (namespace, bucket) = address.key();
    let mut statement =
        sql.prepare_cached("DELETE FROM kv_entries WHERE namespace = ?1 AND bucket = ?2 AND key = ?3")?;
    statement.execute([namespace, bucket, key.as_str()])?;
    let (revision, _) = next_revision(sql, address)?;
    insert_tombstone(sql, address, key.as_str(), revision, false)?;
    trim_tombstones_at_times(sql, address, revision, 1)?;
    Ok(true)
}

/// Writes the tombstone of a removed key.
pub(super) fn insert_tombstone(
    sql: &Connection,
    address: &Address,
    key: &str,
    revision: i64,
    expired: bool,
) -> Fallible<()> {
    let mut statement = sql.prepare_cached(
        "INSERT OR REPLACE INTO kv_tombstones (namespace, bucket, key, revision, expired)
         VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let (namespace, bucket) = address.key();
    statement.execute(params![namespace, bucket, key, revision, expired])?;
    Ok(())
}

/// Schedules the bucket's expiry no later than the expiry of its first key.
pub(super) fn schedule_expiry(sql: &Connection, address: &Address, expires_ms: i64) -> Fallible<()> {
    let mut statement = sql.prepare_cached(
        "UPDATE kv_buckets SET sweep_ms = ?3
         WHERE namespace = ?1 AND bucket = ?2 AND (sweep_ms IS NULL OR sweep_ms > ?3)",
    )?;
    let (namespace, bucket) = address.key();
    statement.execute(params![namespace, bucket, expires_ms])?;
    Ok(())
}

/// Entries that became tombstones.
pub(super) struct ExpiredEntries {
    pub(super) keys: i64,
    /// True if their values were so large that other expired entries may be left.
    pub(super) more: bool,
}

/// Replaces entries that expired a while ago with tombstones, up to a limit.
pub(super) fn expire_entries(
    sql: &Connection,
    address: &Address,
    now_ms: i64,
    keys_max: i64,
) -> Fallible<ExpiredEntries> {
    let (namespace, bucket) = address.key();
    let expired: Vec<(String, i64, i64)> = sql
        .prepare_cached(
            "SELECT key, revision, length(value) FROM kv_entries
             WHERE namespace = ?1 AND bucket = ?2 AND expires_ms <= ?3 ORDER BY expires_ms LIMIT ?4",
        )?
        .query_map(params![namespace, bucket, now_ms - EXPIRED_RETENTION_MS, keys_max], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let mut done = ExpiredEntries { keys: 0, more: false };
    if expired.is_empty() {
        return Ok(done);
    }
    let mut delete =
        sql.prepare_cached("DELETE FROM kv_entries WHERE namespace = ?1 AND bucket = ?2 AND key = ?3")?;
    let mut room = EXPIRE_BYTES_MAX;
    for (key, revision, bytes) in &expired {
        if room <= 0 {
            done.more = true;
            break;
        }
        delete.execute([namespace, bucket, key])?;
        insert_tombstone(sql, address, key, *revision, true)?;
        done.keys += 1;
        room -= bytes;
    }
    Ok(done)
}

/// Trims the tombstones if a write took a [`TRIM_INTERVAL`]th revision of the bucket: one of `count`
/// revisions, of which `last` is the last.
pub(super) fn trim_tombstones_at_times(
    sql: &Connection,
    address: &Address,
    last: i64,
    count: i64,
) -> Fallible<()> {
    if last / TRIM_INTERVAL > (last - count) / TRIM_INTERVAL {
        trim_tombstones(sql, address, false)?;
        trim_tombstones(sql, address, true)?;
    }
    Ok(())
}

/// Removes the oldest tombstones beyond the bucket's limit, and stores the greatest removed revision.
/// Deletions and expiries have separate limits, so that neither displaces the other.
pub(super) fn trim_tombstones(sql: &Connection, address: &Address, expired: bool) -> Fallible<()> {
    let (namespace, bucket) = address.key();
    let kept = length(BUCKET_TOMBSTONES_MAX);
    let forgotten: Option<i64> = sql
        .prepare_cached(
            "SELECT revision FROM kv_tombstones WHERE namespace = ?1 AND bucket = ?2 AND expired = ?3
             ORDER BY revision DESC LIMIT 1 OFFSET ?4",
        )?
        .query_row(params![namespace, bucket, expired, kept], |row| row.get(0))
        .optional()?;
    let Some(forgotten) = forgotten else { return Ok(()) };
    sql.prepare_cached(
        "DELETE FROM kv_tombstones WHERE namespace = ?1 AND bucket = ?2 AND expired = ?3 AND revision <= ?4",
    )?
    .execute(params![namespace, bucket, expired, forgotten])?;
    sql.prepare_cached(
        "UPDATE kv_buckets SET forgotten_revision = max(forgotten_revision, ?3)
         WHERE namespace = ?1 AND bucket = ?2",
    )?
    .execute(params![namespace, bucket, forgotten])?;
    Ok(())
}

pub(super) fn get(
    sql: &Connection,
    address: &Address,
    key: &Key,
    now_ms: i64,
    budget: &ReadBudget,
) -> Fallible<Option<KeyValueEntry>> {
    // SQLite does not load a value that is too long for the read.
    let mut statement = sql.prepare_cached(concat!(
        "SELECT revision, expires_ms, CASE WHEN length(value) <= ?5 THEN value END, ",
        generation_column!(),
        " FROM kv_entries e
         WHERE namespace = ?1 AND bucket = ?2 AND key = ?3 AND (expires_ms IS NULL OR expires_ms > ?4)"
    ))?;
    let (namespace, bucket) = address.key();
    let bytes_max = budget.row_bytes_max();
    let mut rows = statement.query(params![namespace, bucket, key.as_str(), now_ms, bytes_max])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let expires_ms: Option<i64> = row.get(1)?;
    Ok(Some(
        KeyValueEntry::new(
            Bytes::from(row.get::<_, Option<Vec<u8>>>(2)?.ok_or(Failure::BudgetExceeded)?),
            revision(row.get(0)?, row.get(3)?)?,
        )
        .with_expires_at(expires_ms.map(timestamp).transpose()?),
    ))
}

/// Returns the keys of a page and one more. Keys compare by their bytes, so keys with the prefix are
/// adjacent, and the scan ends at the first key without it.
pub(super) fn list(
    sql: &Connection,
    address: &Address,
    prefix: &str,
    page: &PageRequest<Key>,
) -> Fallible<Vec<KeyRevision>> {
    // One bound only: with two, SQLite could begin its scan at either.
    let after = page.after.as_ref().map(Key::as_str).filter(|after| *after >= prefix);
    let select = match after {
        Some(_) => {
            concat!(
                "SELECT key, revision, expires_ms, ",
                generation_column!(),
                " FROM kv_entries e WHERE namespace = ?1 AND bucket = ?2 AND key > ?3 ORDER BY key"
            )
        }
        None => {
            concat!(
                "SELECT key, revision, expires_ms, ",
                generation_column!(),
                " FROM kv_entries e WHERE namespace = ?1 AND bucket = ?2 AND key >= ?3 ORDER BY key"
            )
        }
    };
    let mut statement = sql.prepare_cached(select)?;
    let (namespace, bucket) = address.key();
    let now_ms = now_ms();
    let mut rows = statement.query([namespace, bucket, after.unwrap_or(prefix)])?;
    let mut found = Vec::new();
    while found.len() <= page.limit {
        let Some(row) = rows.next()? else { break };
        let key: String = row.get(0)?;
        if !key.starts_with(prefix) {
            break;
        }
        let expires_ms: Option<i64> = row.get(2)?;
        if expires_ms.is_none_or(|expires_ms| now_ms < expires_ms) {
            found.push(KeyRevision::new(Key::try_from(key)?, revision(row.get(1)?, row.get(3)?)?));
        }
    }
    Ok(found)
}

/// Returns the buckets of a page and one more.
pub(super) fn buckets(
    sql: &Connection,
    namespace: &Namespace,
    page: &PageRequest<BucketName>,
) -> Fallible<Vec<BucketInfo>> {
    let mut statement = sql.prepare_cached(
        "SELECT bucket, count(*) FROM kv_entries
         WHERE namespace = ?1 AND bucket > ?2 AND (expires_ms IS NULL OR expires_ms > ?3)
         GROUP BY bucket ORDER BY bucket LIMIT ?4",
    )?;
    let after = page.after.as_ref().map_or("", BucketName::as_str);
    let limit = integer(size(page.limit) + 1);
    let mut rows = statement.query(params![namespace.as_str(), after, now_ms(), limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let bucket = BucketName::try_from(row.get::<_, String>(0)?)?;
        found.push(BucketInfo::new(bucket, count(row.get(1)?)?));
    }
    Ok(found)
}
