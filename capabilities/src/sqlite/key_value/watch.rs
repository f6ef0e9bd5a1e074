//! Watches: the changes of a bucket, read in pages and again after each commit.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use larder_kernel::{
    Error, ErrorKind, Key, KeyValueEvent, KeyValueEventKind, KeyValueEvents, Outcome, Result, Revision,
};
use rusqlite::{Connection, OptionalExtension, Row, params};
use tokio::sync::watch;

use super::super::engine::Engine;
use super::super::failure::{Fallible, corrupt};
use super::super::value::{count, integer, timestamp};
use super::rows::Address;

const OPERATION: &str = "key_value.watch";
/// Most changes that are read at once, those without the prefix included.
const PAGE_CHANGES_MAX: usize = 256;
/// A page ends when its values reach this size.
const PAGE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Which changes are wanted.
struct Wanted {
    address: Address,
    prefix: String,
    /// Where the watch began: the bucket must have come as far as any later cursor.
    begun: i64,
}

/// How far a watch has come.
#[derive(Clone, Copy)]
struct Progress {
    cursor: i64,
    /// Whether it began at revision 0 and has told of nothing yet. Then it knows of no key that could be gone, and needs
    /// nothing that was forgotten.
    from_start: bool,
    /// The greatest forgotten revision that the watch may lack: what was forgotten when it had told of nothing yet.
    forgotten_at_start: i64,
}

/// Changes with the prefix, and how far the bucket was looked through for them.
struct ChangePage {
    events: VecDeque<KeyValueEvent>,
    progress: Progress,
    /// Whether the page was cut off, so that another follows at once.
    more: bool,
}

struct Watch {
    engine: Engine,
    wanted: Arc<Wanted>,
    commits: watch::Receiver<u64>,
    page: ChangePage,
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
    let commits = engine.commits();
    let wanted = Arc::new(Wanted { address, prefix: prefix.to_owned(), begun: integer(after.get()) });
    let progress =
        Progress { cursor: integer(after.get()), from_start: after == Revision::ZERO, forgotten_at_start: 0 };
    let page = ChangePage { events: VecDeque::new(), progress, more: true };
    let mut watch = Watch { engine, wanted, commits, page, ended: false };
    watch.advance().await?;
    let events = futures_util::stream::unfold(watch, |mut watch| async move {
        let event = watch.next().await?;
        watch.ended = event.is_err();
        Some((event, watch))
    });
    Ok(events.boxed())
}

impl Watch {
    async fn next(&mut self) -> Option<Result<KeyValueEvent>> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(event) = self.page.events.pop_front() {
                return Some(Ok(event));
            }
            if !self.page.more && self.commits.changed().await.is_err() {
                return Some(Err(closed()));
            }
            if let Err(error) = self.advance().await {
                return Some(Err(error));
            }
        }
    }

    /// Reads the next page.
    async fn advance(&mut self) -> Result<()> {
        // Marked before the read, so that a commit during the read is not slept over. Should the future be dropped in
        // between, `more` makes the next one read again.
        self.page.more = true;
        self.commits.mark_unchanged();
        let (wanted, progress) = (Arc::clone(&self.wanted), self.page.progress);
        self.page = self.engine.read(OPERATION, move |sql| page(sql, &wanted, progress)).await?;
        Ok(())
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Unavailable, OPERATION, "the database was closed").with_outcome(Outcome::NotApplied)
}

fn page(sql: &Connection, wanted: &Wanted, mut progress: Progress) -> Fallible<ChangePage> {
    let (namespace, bucket) = (wanted.address.namespace.as_str(), wanted.address.bucket.as_str());
    let numbers: Option<(i64, i64)> = sql
        .prepare_cached(
            "SELECT last_revision, forgotten_revision FROM kv_buckets WHERE namespace = ?1 AND bucket = ?2",
        )?
        .query_row([namespace, bucket], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    if progress.cursor > wanted.begun && numbers.is_none_or(|(last, _)| last < progress.cursor) {
        if !progress.from_start {
            return Err(Error::erased(OPERATION).into());
        }
        progress.cursor = 0;
    }
    let after = progress.cursor;
    let mut page = ChangePage { events: VecDeque::new(), progress, more: false };
    let Some((last, forgotten)) = numbers.filter(|(last, _)| *last > after) else { return Ok(page) };
    if progress.from_start {
        page.progress.forgotten_at_start = forgotten;
    }
    if after < forgotten && page.progress.forgotten_at_start < forgotten {
        return Err(too_old().into());
    }
    let select_entries = "SELECT key, revision, expires_ms, value FROM kv_entries
         WHERE namespace = ?1 AND bucket = ?2 AND revision > ?3 ORDER BY revision";
    let select_tombstones = "SELECT key, revision FROM kv_tombstones
         WHERE namespace = ?1 AND bucket = ?2 AND revision > ?3 ORDER BY revision";
    let mut entries = sql.prepare_cached(select_entries)?;
    let mut entries = entries.query(params![namespace, bucket, after])?;
    let mut tombstones = sql.prepare_cached(select_tombstones)?;
    let mut tombstones = tombstones.query(params![namespace, bucket, after])?;
    let prefix = wanted.prefix.as_str();
    let mut put = next_change(entries.next()?, prefix, put_kind)?;
    let mut deleted = next_change(tombstones.next()?, prefix, |_| Ok((KeyValueEventKind::Deleted, 0)))?;
    let mut bytes = 0;
    for _ in 0..PAGE_CHANGES_MAX {
        let deletion_first = match (&put, &deleted) {
            (None, None) => {
                page.progress.cursor = last;
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
            page.progress.cursor = change.revision;
            page.progress.from_start &= change.event.is_none();
            bytes += change.bytes;
            page.events.extend(change.event);
        }
        if bytes >= PAGE_BYTES_MAX {
            break;
        }
    }
    page.more = true;
    Ok(page)
}

/// A change; without the event where the key has not the prefix.
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
    let event = KeyValueEvent { key, revision: Revision::new(count(revision)?), kind };
    Ok(Some(Change { revision, bytes: value_bytes, event: Some(event) }))
}

fn put_kind(row: &Row<'_>) -> Fallible<(KeyValueEventKind, usize)> {
    let expires_ms: Option<i64> = row.get(2)?;
    let value = Bytes::from(row.get::<_, Vec<u8>>(3)?);
    let bytes = value.len();
    Ok((KeyValueEventKind::Put { value, expires_at: expires_ms.map(timestamp).transpose()? }, bytes))
}

fn too_old() -> Error {
    Error::new(
        ErrorKind::Conflict,
        OPERATION,
        "changes since that revision are forgotten; watch from revision 0 anew",
    )
}
