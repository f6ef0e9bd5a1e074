//! The reads and writes of a bucket.

use bytes::Bytes;
use futures_util::future::BoxFuture;
use larder_kernel::limits::BUCKET_TOMBSTONES_MAX;
use larder_kernel::storage::key_value::prefix_end;
use larder_kernel::{
    BucketInfo, BucketName, Error, ErrorKind, Key, KeyRevision, KeyValueCondition, KeyValueEntry,
    KeyValuePutOptions, Namespace, PageRequest, Revision,
};
use sqlx::{PgConnection, Row};

use super::super::decode::{count, generation, parse_id, timestamp};
use super::super::encode::{integer, length, millis};
use super::super::engine::{Write, begin_write};
use super::super::failure::Fallible;

/// The namespace and name that identify a bucket.
pub(super) struct Address {
    pub(super) namespace: Namespace,
    pub(super) bucket: BucketName,
}

/// The parameters of a put.
pub(super) struct Put {
    pub(super) address: Address,
    pub(super) key: Key,
    pub(super) value: Bytes,
    pub(super) options: KeyValuePutOptions,
}

/// Returns the revision with the bucket's generation.
pub(super) fn revision(number: i64, stored: Option<i64>) -> Fallible<Revision> {
    Ok(Revision::new(count(number)?).in_generation(generation(stored)))
}

fn conflict(operation: &'static str) -> Error {
    Error::new(
        ErrorKind::Conflict,
        operation,
        "the key is absent or at another revision; read it and try again",
    )
}

pub(super) fn put<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    put: &'c Put,
) -> BoxFuture<'c, Fallible<Revision>> {
    const OPERATION: &str = "key_value.put";
    Box::pin(async move {
        let (at, named) = match put.options.condition {
            KeyValueCondition::None => (None, None),
            KeyValueCondition::Absent => (Some(-1), None),
            KeyValueCondition::AtRevision(at) => (Some(integer(at.get())), at.generation()),
            _ => return Err(Error::unknown_value(OPERATION, "condition").into()),
        };
        let row = sqlx::query(concat!(
            "SELECT out_revision, out_generation FROM larder.kv_put($1, $2, $3, $4, $5, $6, $7, $8) WHERE ",
            begin_write!("9", "10")
        ))
        .bind(put.address.namespace.as_str())
        .bind(put.address.bucket.as_str())
        .bind(put.key.as_str())
        .bind(&put.value[..])
        .bind(put.options.ttl.map(millis))
        .bind(at)
        .bind(named.map(|named| integer(named.get())))
        .bind(length(BUCKET_TOMBSTONES_MAX))
        .bind(write.format)
        .bind(write.commit)
        .fetch_one(sql)
        .await?;
        match row.try_get(0)? {
            Some(number) => revision(number, row.try_get(1)?),
            None if put.options.condition == KeyValueCondition::Absent => Err(Error::new(
                ErrorKind::Conflict,
                OPERATION,
                "the key already exists; read it or write without the condition",
            )
            .into()),
            None => Err(conflict(OPERATION).into()),
        }
    })
}

pub(super) fn delete<'c>(
    sql: &'c mut PgConnection,
    write: Write,
    address: &'c Address,
    key: &'c Key,
    at: Option<Revision>,
) -> BoxFuture<'c, Fallible<bool>> {
    Box::pin(async move {
        let deleted: Option<bool> = sqlx::query_scalar(concat!(
            "SELECT larder.kv_delete($1, $2, $3, $4, $5, $6) WHERE ",
            begin_write!("7", "8")
        ))
        .bind(address.namespace.as_str())
        .bind(address.bucket.as_str())
        .bind(key.as_str())
        .bind(at.map(|at| integer(at.get())))
        .bind(at.and_then(Revision::generation).map(|named| integer(named.get())))
        .bind(length(BUCKET_TOMBSTONES_MAX))
        .bind(write.format)
        .bind(write.commit)
        .fetch_one(sql)
        .await?;
        deleted.ok_or_else(|| conflict("key_value.delete").into())
    })
}

pub(super) fn get<'c>(
    sql: &'c mut PgConnection,
    address: &'c Address,
    key: &'c Key,
) -> BoxFuture<'c, Fallible<Option<KeyValueEntry>>> {
    Box::pin(async move {
        let row = sqlx::query(
            "SELECT revision, expires_ms, value,
                (SELECT generation FROM larder.kv_buckets WHERE namespace = $1 AND bucket = $2)
             FROM larder.kv_entries
             WHERE namespace = $1 AND bucket = $2 AND key = $3
                AND (expires_ms IS NULL OR expires_ms > larder.now_ms())",
        )
        .bind(address.namespace.as_str())
        .bind(address.bucket.as_str())
        .bind(key.as_str())
        .fetch_optional(sql)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let value = Bytes::from(row.try_get::<Vec<u8>, _>(2)?);
        let expires_at = row.try_get::<Option<i64>, _>(1)?.map(timestamp).transpose()?;
        let revision = revision(row.try_get(0)?, row.try_get(3)?)?;
        Ok(Some(KeyValueEntry::new(value, revision).with_expires_at(expires_at)))
    })
}

/// Returns the keys of a page and one more. Keys compare by their bytes, so keys with the prefix are
/// adjacent: from the prefix itself to the first text after all of them.
pub(super) fn list<'c>(
    sql: &'c mut PgConnection,
    address: &'c Address,
    prefix: &'c str,
    page: &'c PageRequest<Key>,
) -> BoxFuture<'c, Fallible<Vec<KeyRevision>>> {
    Box::pin(async move {
        let after = page.after.as_ref().map_or("", Key::as_str);
        let rows = sqlx::query(
            "SELECT key, revision,
                (SELECT generation FROM larder.kv_buckets WHERE namespace = $1 AND bucket = $2)
             FROM larder.kv_entries
             WHERE namespace = $1 AND bucket = $2 AND key >= greatest($3 COLLATE \"C\", $4 COLLATE \"C\")
                AND key > $4 AND ($5::text IS NULL OR key < $5)
                AND (expires_ms IS NULL OR expires_ms > (SELECT larder.now_ms())) AND starts_with(key, $3)
             ORDER BY key LIMIT $6",
        )
        .bind(address.namespace.as_str())
        .bind(address.bucket.as_str())
        .bind(prefix)
        .bind(after)
        .bind(prefix_end(prefix))
        .bind(length(page.limit).saturating_add(1))
        .fetch_all(sql)
        .await?;
        rows.iter()
            .map(|row| {
                Ok(KeyRevision::new(parse_id(row.try_get(0)?)?, revision(row.try_get(1)?, row.try_get(2)?)?))
            })
            .collect()
    })
}

/// Returns the buckets of a page and one more.
pub(super) fn buckets<'c>(
    sql: &'c mut PgConnection,
    namespace: &'c Namespace,
    page: &'c PageRequest<BucketName>,
) -> BoxFuture<'c, Fallible<Vec<BucketInfo>>> {
    Box::pin(async move {
        let rows = sqlx::query(
            "SELECT bucket, count(*) FROM larder.kv_entries
             WHERE namespace = $1 AND bucket > $2 AND (expires_ms IS NULL OR expires_ms > larder.now_ms())
             GROUP BY bucket ORDER BY bucket LIMIT $3",
        )
        .bind(namespace.as_str())
        .bind(page.after.as_ref().map_or("", BucketName::as_str))
        .bind(length(page.limit).saturating_add(1))
        .fetch_all(sql)
        .await?;
        rows.iter()
            .map(|row| Ok(BucketInfo::new(parse_id(row.try_get(0)?)?, count(row.try_get(1)?)?)))
            .collect()
    })
}

pub(super) fn erase<'c>(sql: &'c mut PgConnection, namespace: &'c Namespace) -> BoxFuture<'c, Fallible<()>> {
    Box::pin(async move {
        // The buckets first: their rows are the locks that writers wait for.
        for delete in [
            "DELETE FROM larder.kv_buckets WHERE namespace = $1",
            "DELETE FROM larder.kv_entries WHERE namespace = $1",
            "DELETE FROM larder.kv_tombstones WHERE namespace = $1",
        ] {
            sqlx::query(delete).bind(namespace.as_str()).execute(&mut *sql).await?;
        }
        Ok(())
    })
}
