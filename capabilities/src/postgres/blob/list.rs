//! Listing, page by page.

use std::collections::VecDeque;

use futures_util::future::BoxFuture;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use larder_agents::internal::DamagedBlob;
use larder_kernel::storage::key_value::prefix_end;
use larder_kernel::{BlobEntries, BlobEntry, BlobKey, Error, Namespace, Result};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row};

use super::super::decode::{parse_id, timestamp, unsigned};
use super::super::engine::Engine;
use super::super::failure::{Fallible, corrupt};
use super::ended;
use super::rows::etag;

const OPERATION: &str = "blobs.list";
/// The number of blobs that one statement reads.
const PAGE: i64 = 500;

#[derive(Clone)]
struct Wanted {
    namespace: Namespace,
    prefix: String,
    after: String,
}

/// Returns the blobs under `prefix` after `after`, as a stream.
pub(super) fn list(
    engine: &Engine,
    namespace: &Namespace,
    prefix: &str,
    after: Option<&BlobKey>,
) -> BlobEntries {
    let after = after.map_or(String::new(), |key| key.as_str().to_owned());
    let wanted = Wanted { namespace: namespace.clone(), prefix: prefix.to_owned(), after };
    let pages = stream::try_unfold(Some((engine.clone(), wanted)), |state| async move {
        let Some((engine, mut wanted)) = state else { return Ok(None) };
        let (reader, asked) = (engine.clone(), wanted.clone());
        // In a task, so that the statement ends even if nobody polls.
        let page = tokio::spawn(async move { reader.read(OPERATION, &asked, page).await });
        let page = page.await.map_err(|_| ended(OPERATION))??;
        let next = page.last.map(|last| {
            wanted.after = last;
            (engine, wanted)
        });
        Ok::<_, Error>(Some((page.entries, next)))
    });
    pages.map_ok(stream::iter).try_flatten().boxed()
}

struct Listed {
    entries: VecDeque<Result<BlobEntry>>,
    /// The last key of a full page, after which the next one begins.
    last: Option<String>,
}

fn page<'c>(sql: &'c mut PgConnection, wanted: &'c Wanted) -> BoxFuture<'c, Fallible<Listed>> {
    Box::pin(async move {
        let rows = sqlx::query(
            "SELECT key, size, version, crc, modified_ms FROM larder.blobs
             WHERE namespace = $1 AND key >= greatest($2 COLLATE \"C\", $3 COLLATE \"C\") AND key > $3
                AND ($4::text IS NULL OR key < $4) AND starts_with(key, $2)
             ORDER BY key LIMIT $5",
        )
        .bind(wanted.namespace.as_str())
        .bind(&wanted.prefix)
        .bind(&wanted.after)
        .bind(prefix_end(&wanted.prefix))
        .bind(PAGE)
        .fetch_all(sql)
        .await?;
        let is_full = i64::try_from(rows.len()) == Ok(PAGE);
        let last = rows.last().filter(|_| is_full).map(|row| row.try_get(0)).transpose()?;
        Ok(Listed { entries: rows.iter().map(entry).collect(), last })
    })
}

/// Returns the entry of a row. A damaged row becomes an error item, and the listing continues.
fn entry(row: &PgRow) -> Result<BlobEntry> {
    let decode = || -> Fallible<BlobEntry> {
        let key = parse_id(row.try_get(0)?)?;
        let tag = etag(row.try_get(2)?, row.try_get(3)?)?;
        Ok(BlobEntry::new(key, unsigned(row, 1)?, tag, timestamp(row.try_get(4)?)?))
    };
    decode().map_err(|_| {
        let key = row.try_get::<String, _>(0).unwrap_or_default();
        corrupt(OPERATION).with_source(DamagedBlob(key))
    })
}
