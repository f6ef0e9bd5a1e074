//! The changes of a bucket, as watches read them.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_kernel::{
    Error, ErrorKind, Key, KeyValueEvent, KeyValueEventKind, KeyValueEvents, Outcome, Result, Revision,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use tokio::sync::watch;

use super::super::engine::Engine;
use super::super::failure::{Fallible, corrupt};
use super::super::value::{count, generation, integer, now_ms, timestamp};
use super::rows::Address;
use crate::change_log::{self, ChangeLog, ChangePage, OPERATION, PAGE_BYTES_MAX, PAGE_CHANGES_MAX};

struct BucketLog {
    engine: Engine,
    wanted: Arc<(Address, String)>,
    commits: watch::Receiver<u64>,
}

/// Returns the changes after a revision, and then the changes to come.
pub(super) async fn follow(
    engine: Engine,
    address: Address,
    prefix: &str,
    after: Revision,
) -> Result<KeyValueEvents> {
    let (commits, wanted) = (engine.commits(), Arc::new((address, prefix.to_owned())));
    change_log::follow(BucketLog { engine, wanted, commits }, after).await
}

#[async_trait]
impl ChangeLog for BucketLog {
    async fn page(&self, after: u64) -> Result<ChangePage> {
        let (wanted, after) = (Arc::clone(&self.wanted), integer(after));
        self.engine.read(OPERATION, move |sql| page(sql, &wanted.0, &wanted.1, after)).await
    }

    fn mark_seen(&mut self) {
        self.commits.mark_unchanged();
    }

    async fn wait(&mut self) -> Result<()> {
        self.commits.changed().await.map_err(|_| {
            Error::new(ErrorKind::Unavailable, OPERATION, "the database was closed; open it again")
                .with_outcome(Outcome::NotApplied)
        })
    }
}

fn page(sql: &Connection, address: &Address, prefix: &str, after: i64) -> Fallible<ChangePage> {
    let (namespace, bucket) = address.key();
    let numbers: Option<(i64, i64, i64)> = sql
        .prepare_cached(
            "SELECT last_revision, forgotten_revision, generation FROM kv_buckets
             WHERE namespace = ?1 AND bucket = ?2",
        )?
        .query_row([namespace, bucket], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .optional()?;
    let Some((last, forgotten, stored)) = numbers else { return Ok(ChangePage::default()) };
    let generation = generation(stored);
    let mut page = ChangePage {
        last: Revision::new(count(last)?).in_generation(generation),
        forgotten: count(forgotten)?,
        ..ChangePage::default()
    };
    if last <= after {
        return Ok(page);
    }
    let select_entries = "SELECT key, revision, expires_ms, value FROM kv_entries
         WHERE namespace = ?1 AND bucket = ?2 AND revision > ?3 ORDER BY revision";
    let select_tombstones = "SELECT key, revision FROM kv_tombstones
         WHERE namespace = ?1 AND bucket = ?2 AND revision > ?3 ORDER BY revision";
    let mut entries = sql.prepare_cached(select_entries)?;
    let mut entries = entries.query(params![namespace, bucket, after])?;
    let mut tombstones = sql.prepare_cached(select_tombstones)?;
    let mut tombstones = tombstones.query(params![namespace, bucket, after])?;
    let mut put = next_change(entries.next()?, prefix, put_kind)?;
    let mut deleted = next_change(tombstones.next()?, prefix, |_| Ok((KeyValueEventKind::Deleted, 0)))?;
    let mut bytes = 0;
    for _ in 0..PAGE_CHANGES_MAX {
        let deletion_first = match (&put, &deleted) {
            (None, None) => {
                page.cursor = count(last)?;
                return Ok(page);
            }
            (Some(put), Some(deleted)) => deleted.revision < put.revision,
            (put, _) => put.is_none(),
        };
        let change = if deletion_first {
            let next = next_change(tombstones.next()?, prefix, |_| Ok((KeyValueEventKind::Deleted, 0)))?;
            std::mem::replace(&mut deleted, next)
        } else {
            let next = next_change(entries.next()?, prefix, put_kind)?;
            std::mem::replace(&mut put, next)
        };
        if let Some(change) = change {
            page.cursor = count(change.revision)?;
            bytes += change.bytes;
            page.events.extend(change.event.map(|mut event| {
                event.revision = event.revision.in_generation(generation);
                event
            }));
        }
        if bytes >= PAGE_BYTES_MAX {
            break;
        }
    }
    page.more = true;
    Ok(page)
}

/// A change; `event` is `None` if the key does not have the prefix.
struct Change {
    revision: i64,
    bytes: usize,
    event: Option<KeyValueEvent>,
}

fn next_change(
    row: Option<&Row<'_>>,
    prefix: &str,
    kind: impl FnOnce(&Row<'_>) -> Fallible<(KeyValueEventKind, usize)>,
) -> Fallible<Option<Change>> {
    let Some(row) = row else { return Ok(None) };
    let key = row.get_ref(0)?.as_str().map_err(|_| corrupt(OPERATION))?;
    let revision: i64 = row.get(1)?;
    if !key.starts_with(prefix) {
        return Ok(Some(Change { revision, bytes: 0, event: None }));
    }
    let key = Key::new(key)?;
    let (kind, value_bytes) = kind(row)?;
    let event = KeyValueEvent::new(key, Revision::new(count(revision)?), kind);
    Ok(Some(Change { revision, bytes: value_bytes, event: Some(event) }))
}

fn put_kind(row: &Row<'_>) -> Fallible<(KeyValueEventKind, usize)> {
    let expires_ms: Option<i64> = row.get(2)?;
    if expires_ms.is_some_and(|expires_ms| expires_ms <= now_ms()) {
        return Ok((KeyValueEventKind::Deleted, 0));
    }
    let value = Bytes::from(row.get::<_, Vec<u8>>(3)?);
    let bytes = value.len();
    Ok((KeyValueEventKind::Put { value, expires_at: expires_ms.map(timestamp).transpose()? }, bytes))
}
