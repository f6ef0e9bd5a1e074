//! Functions that the cases of the contract share.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use larder_kernel::{
    BucketInfo, BucketName, Key, KeyRevision, KeyValueEntry, KeyValueEvent, KeyValueEvents,
    KeyValuePutOptions, KeyValueStore, KeyValueStoreExt, PageRequest, Revision,
};
use tokio::time::{sleep, timeout};

use crate::case::CaseResult;
use crate::expect;

/// The longest wait of a watcher for an event.
pub(super) const EVENT_WITHIN: Duration = Duration::from_secs(10);
/// More pages than any listing of the suite has.
const PAGES_MAX: usize = 5_000;

pub(super) fn bucket(name: &str) -> CaseResult<BucketName> {
    Ok(BucketName::new(name)?)
}

pub(super) fn key(name: &str) -> CaseResult<Key> {
    Ok(Key::new(name)?)
}

pub(super) fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Writes a text under a key without a condition.
pub(super) async fn set(
    store: &dyn KeyValueStore,
    bucket: &BucketName,
    name: &str,
    text: &str,
) -> CaseResult<Revision> {
    Ok(store.set(bucket, &key(name)?, bytes(text)).await?)
}

/// Writes a text under a key that lives for `ttl`.
pub(super) async fn set_for(
    store: &dyn KeyValueStore,
    bucket: &BucketName,
    name: &str,
    ttl: Duration,
) -> CaseResult<Revision> {
    let options = KeyValuePutOptions::default().with_ttl(ttl);
    Ok(store.put(bucket, &key(name)?, bytes(name), options).await?)
}

/// Reads a key that must exist.
pub(super) async fn read(
    store: &dyn KeyValueStore,
    bucket: &BucketName,
    name: &str,
) -> CaseResult<KeyValueEntry> {
    expect::some("the key", store.get(bucket, &key(name)?).await?)
}

/// Checks that the key reads as absent.
pub(super) async fn absent(store: &dyn KeyValueStore, bucket: &BucketName, name: &str) -> CaseResult {
    expect::equal("the key", &store.get(bucket, &key(name)?).await?, &None)
}

/// Checks that the key has this text and revision.
pub(super) async fn holds(
    store: &dyn KeyValueStore,
    bucket: &BucketName,
    name: &str,
    text: &str,
    revision: Revision,
) -> CaseResult {
    let entry = read(store, bucket, name).await?;
    expect::equal("value and revision", &(entry.value, entry.revision), &(bytes(text), revision))
}

/// Returns all keys with the prefix, read in pages of `limit`.
pub(super) async fn listed(
    store: &dyn KeyValueStore,
    bucket: &BucketName,
    prefix: &str,
    limit: usize,
) -> CaseResult<Vec<KeyRevision>> {
    let (mut found, mut page) = (Vec::new(), PageRequest::first(limit));
    for _ in 0..PAGES_MAX {
        let part = store.list(bucket, prefix, page).await?;
        expect::that(part.items.len() <= limit, format!("a page of at most {limit}"), part.items.len())?;
        found.extend(part.items);
        match part.next {
            Some(next) => page = PageRequest::after(next, limit),
            None => return Ok(found),
        }
    }
    Err(expect::broken("the listing to end", format!("{PAGES_MAX} pages and more")))
}

/// Returns the names of all keys with the prefix.
pub(super) async fn names(
    store: &dyn KeyValueStore,
    bucket: &BucketName,
    prefix: &str,
) -> CaseResult<Vec<String>> {
    let found = listed(store, bucket, prefix, 10_000).await?;
    Ok(found.into_iter().map(|item| item.key.into()).collect())
}

/// Returns all buckets, read in pages of `limit`.
pub(super) async fn buckets(store: &dyn KeyValueStore, limit: usize) -> CaseResult<Vec<BucketInfo>> {
    let (mut found, mut page) = (Vec::new(), PageRequest::first(limit));
    for _ in 0..PAGES_MAX {
        let part = store.list_buckets(page).await?;
        expect::that(part.items.len() <= limit, format!("a page of at most {limit}"), part.items.len())?;
        found.extend(part.items);
        match part.next {
            Some(next) => page = PageRequest::after(next, limit),
            None => return Ok(found),
        }
    }
    Err(expect::broken("the listing to end", format!("{PAGES_MAX} pages and more")))
}

/// Returns the next event of a watch.
pub(super) async fn next(events: &mut KeyValueEvents, what: &str) -> CaseResult<KeyValueEvent> {
    match timeout(EVENT_WITHIN, events.next()).await {
        Ok(Some(event)) => Ok(event?),
        Ok(None) => Err(expect::broken(format!("event {what}"), "the end of the stream")),
        Err(_) => Err(expect::broken(format!("event {what}"), "nothing came")),
    }
}

/// Returns the events of a watch up to the one at `last`. Their revisions must increase.
pub(super) async fn events_until(
    events: &mut KeyValueEvents,
    last: Revision,
) -> CaseResult<Vec<KeyValueEvent>> {
    let mut seen: Vec<KeyValueEvent> = Vec::new();
    loop {
        let event = next(events, &format!("at revision {last}")).await?;
        if let Some(before) = seen.last() {
            expect::that(
                event.revision > before.revision,
                format!("a revision over {}", before.revision),
                event.revision,
            )?;
        }
        expect::that(event.revision <= last, format!("no revision over {last}"), event.revision)?;
        let ended = event.revision == last;
        seen.push(event);
        if ended {
            return Ok(seen);
        }
    }
}

/// Sleeps until `ttl` has certainly passed since `written`, an instant after the write returned.
pub(super) async fn past(written: Instant, ttl: Duration) {
    const MARGIN: Duration = Duration::from_millis(50);
    sleep((ttl + MARGIN).saturating_sub(written.elapsed())).await;
}

/// Returns the result of a spawned task.
pub(super) fn joined<T>(result: Result<CaseResult<T>, tokio::task::JoinError>) -> CaseResult<T> {
    result?
}

/// Returns the handle of a worker by its number: workers alternate between the two.
pub(super) fn turn(
    a: &Arc<dyn KeyValueStore>,
    b: &Arc<dyn KeyValueStore>,
    worker: usize,
) -> Arc<dyn KeyValueStore> {
    Arc::clone(if worker.is_multiple_of(2) { a } else { b })
}
