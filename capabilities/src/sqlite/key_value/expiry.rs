//! Removes the values of expired keys in buckets without writes.

use larder_kernel::{BucketName, Namespace};
use rusqlite::Connection;

use super::super::engine::ExpiryStep;
use super::super::failure::Fallible;
use super::super::value::{count, length};
use super::rows::{Address, EXPIRED_RETENTION_MS, expire_entries, trim_tombstones};

/// The maximum number of buckets that one step checks.
const BUCKETS_MAX: usize = 64;
/// The maximum number of keys that one step removes from a bucket.
const KEYS_MAX: i64 = 256;

/// Returns true if a bucket is due for a check.
pub(crate) fn is_due(sql: &Connection, now_ms: i64) -> Fallible<bool> {
    let mut statement =
        sql.prepare_cached("SELECT EXISTS (SELECT 1 FROM kv_buckets WHERE sweep_ms <= ?1)")?;
    Ok(statement.query_row([now_ms - EXPIRED_RETENTION_MS], |row| row.get(0))?)
}

/// Replaces entries that expired a while ago with tombstones, until a bucket has more of them than one step
/// removes.
pub(crate) fn remove_expired(sql: &Connection, now_ms: i64) -> Fallible<ExpiryStep> {
    let due: Vec<(String, String)> = sql
        .prepare_cached(
            "SELECT namespace, bucket FROM kv_buckets WHERE sweep_ms <= ?1 ORDER BY sweep_ms LIMIT ?2",
        )?
        .query_map([now_ms - EXPIRED_RETENTION_MS, length(BUCKETS_MAX)], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?
        .collect::<rusqlite::Result<_>>()?;
    let mut step = ExpiryStep { removed: 0, more: due.len() == BUCKETS_MAX };
    let mut room = KEYS_MAX;
    for (namespace, bucket) in due {
        let address =
            Address { namespace: Namespace::try_from(namespace)?, bucket: BucketName::try_from(bucket)? };
        let expired = expire_entries(sql, &address, now_ms, room)?;
        if expired.keys > 0 {
            trim_tombstones(sql, &address, true)?;
        }
        reschedule_expiry(sql, &address)?;
        step.removed += count(expired.keys)?;
        room -= expired.keys;
        if expired.more || room == 0 {
            step.more = true;
            break;
        }
    }
    Ok(step)
}

/// Schedules the next check for the expiry of the bucket's next key.
fn reschedule_expiry(sql: &Connection, address: &Address) -> Fallible<()> {
    let mut statement = sql.prepare_cached(
        "UPDATE kv_buckets SET sweep_ms = (
            SELECT min(expires_ms) FROM kv_entries
            WHERE namespace = ?1 AND bucket = ?2 AND expires_ms IS NOT NULL)
         WHERE namespace = ?1 AND bucket = ?2",
    )?;
    statement.execute(address.key())?;
    Ok(())
}
