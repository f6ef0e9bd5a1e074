//! The backlog of a watch that begins late.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use larder_kernel::{BucketName, ErrorKind, KeyValueEvent, KeyValueEventKind, KeyValueStore, Revision};
use tokio::task::JoinSet;

use super::support::{bucket, bytes, events_until, joined, key, next, set, turn};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

fn put(name: &str, text: &str, revision: Revision) -> CaseResult<KeyValueEvent> {
    Ok(KeyValueEvent::new(
        key(name)?,
        revision,
        KeyValueEventKind::Put { value: bytes(text), expires_at: None },
    ))
}

/// Returns the last event of each key, in the order of revisions.
fn latest(seen: Vec<KeyValueEvent>) -> Vec<KeyValueEvent> {
    let mut by_key = BTreeMap::new();
    for event in seen {
        by_key.insert(event.key.clone(), event);
    }
    let mut latest: Vec<KeyValueEvent> = by_key.into_values().collect();
    latest.sort_by_key(|event| event.revision);
    latest
}

pub(super) async fn the_latest_change_of_each_key_comes_first(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("backlog")?;
    // The order of the keys differs from the order of their last changes.
    set(&*a, &bucket, "a", "old").await?;
    let zebra = set(&*a, &bucket, "zebra", "1").await?;
    let middle = set(&*b, &bucket, "middle", "1").await?;
    let first = set(&*a, &bucket, "a", "new").await?;
    let last = set(&*b, &bucket, "b", "1").await?;
    let mut events = b.watch(&bucket, "", Revision::ZERO).await?;
    let seen = latest(events_until(&mut events, last).await?);
    let expected = vec![
        put("zebra", "1", zebra)?,
        put("middle", "1", middle)?,
        put("a", "new", first)?,
        put("b", "1", last)?,
    ];
    expect::equal("the backlog", &seen, &expected)?;
    for (store, text) in [(&a, "live"), (&b, "live again")] {
        let revision = set(&**store, &bucket, "a", text).await?;
        expect::equal("the live event", &next(&mut events, "live").await?, &put("a", text, revision)?)?;
    }
    Ok(())
}

pub(super) async fn a_watch_begins_after_its_revision(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("backlog")?;
    let mut revisions = Vec::new();
    for number in 0..5 {
        revisions.push(set(&*a, &bucket, &format!("key-{number}"), "1").await?);
    }
    let last = expect::some("the last revision", revisions.last().copied())?;
    for (position, after) in revisions.iter().enumerate() {
        let mut events = b.watch(&bucket, "", *after).await?;
        if *after == last {
            // The backlog is empty, so the first event is the next write.
            let live = set(&*a, &bucket, "live", "1").await?;
            let event = next(&mut events, "live").await?;
            expect::equal("the live event", &event, &put("live", "1", live)?)?;
            continue;
        }
        let seen: Vec<Revision> =
            events_until(&mut events, last).await?.iter().map(|event| event.revision).collect();
        expect::equal("revisions of the backlog", &seen.as_slice(), &&revisions[position + 1..])?;
    }
    Ok(())
}

pub(super) async fn a_missing_bucket_can_be_watched(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("later")?;
    let mut events = b.watch(&bucket, "", Revision::ZERO).await?;
    expect::equal("the buckets", &super::support::buckets(&*a, 10).await?, &Vec::new())?;
    let revision = set(&*a, &bucket, "key", "1").await?;
    expect::equal("the event", &next(&mut events, "live").await?, &put("key", "1", revision)?)
}

pub(super) async fn a_returning_watcher_receives_deletions(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("backlog")?;
    for name in ["gone", "back", "stays"] {
        set(&*a, &bucket, name, "1").await?;
    }
    let seen = set(&*a, &bucket, "zz", "1").await?;
    let mut events = b.watch(&bucket, "", Revision::ZERO).await?;
    events_until(&mut events, seen).await?;
    drop(events);
    for name in ["gone", "back", "zz"] {
        a.delete(&bucket, &key(name)?, None).await?;
    }
    let back = set(&*a, &bucket, "back", "2").await?;
    let mut events = b.watch(&bucket, "", seen).await?;
    let changes = latest(events_until(&mut events, back).await?);
    let names: Vec<&str> = changes.iter().map(|event| event.key.as_str()).collect();
    expect::equal("the keys that changed", &names, &vec!["gone", "zz", "back"])?;
    for event in &changes[..2] {
        expect::equal("the change", &event.kind, &KeyValueEventKind::Deleted)?;
    }
    expect::equal("the last change", &changes[2], &put("back", "2", back)?)
}

/// Workers on both handles write and delete `count` different keys.
async fn delete_many(stores: &Handles<dyn KeyValueStore>, bucket: &BucketName, count: usize) -> CaseResult {
    const WORKERS: usize = 4;
    let mut workers: JoinSet<CaseResult> = JoinSet::new();
    for worker in 0..WORKERS {
        let (store, bucket) = (turn(&stores.a, &stores.b, worker), bucket.clone());
        workers.spawn(async move {
            for number in (worker..count).step_by(WORKERS) {
                let name = format!("gone-{number:04}");
                set(&*store, &bucket, &name, "1").await?;
                store.delete(&bucket, &key(&name)?, None).await?;
            }
            Ok(())
        });
    }
    while let Some(result) = workers.join_next().await {
        joined(result)?;
    }
    Ok(())
}

pub(super) async fn the_last_thousand_deletions_are_remembered(context: Context) -> CaseResult {
    const REMEMBERED: usize = 1_000;
    const BEFORE: usize = 50;
    let stores = context.key_value().await?;
    let bucket = bucket("forgetful")?;
    for number in 0..BEFORE {
        let name = format!("early-{number}");
        set(&*stores.a, &bucket, &name, "1").await?;
        stores.a.delete(&bucket, &key(&name)?, None).await?;
    }
    let after = set(&*stores.a, &bucket, "between", "1").await?;
    delete_many(&stores, &bucket, REMEMBERED).await?;
    let last = set(&*stores.b, &bucket, "last", "1").await?;
    let mut events = stores.b.watch(&bucket, "", after).await?;
    expect::equal("deletions remembered", &deletions(events_until(&mut events, last).await?), &REMEMBERED)?;
    // From an older revision, the store returns all events or reports that it cannot.
    match stores.a.watch(&bucket, "", Revision::new(1)).await {
        Ok(mut events) => {
            let seen = deletions(events_until(&mut events, last).await?);
            expect::equal("deletions remembered", &seen, &(BEFORE + REMEMBERED))
        }
        refused => {
            let refused = refused.map(|_| "a stream");
            expect::error("a watch from a forgotten revision", refused, ErrorKind::Conflict).map(|_| ())
        }
    }
}

/// KV-047: the next step of a watcher that was rejected.
pub(super) async fn a_watch_from_0_is_never_refused(context: Context) -> CaseResult {
    const DELETED: usize = 1_300;
    let stores = context.key_value().await?;
    let bucket = bucket("forgetful")?;
    set(&*stores.a, &bucket, "kept", "1").await?;
    delete_many(&stores, &bucket, DELETED).await?;
    // All forgotten deletions are newer than the one remaining key.
    for store in [&stores.a, &stores.b] {
        let mut events = store.watch(&bucket, "", Revision::ZERO).await?;
        let last = set(&*stores.b, &bucket, "last", "1").await?;
        let mut names: Vec<String> = latest(events_until(&mut events, last).await?)
            .into_iter()
            .filter(|event| event.kind != KeyValueEventKind::Deleted)
            .map(|event| event.key.as_str().to_owned())
            .collect();
        names.sort_unstable();
        expect::equal("the keys that are there", &names, &vec!["kept".to_owned(), "last".to_owned()])?;
    }
    Ok(())
}

/// KV-047: a watch that began before the first write, and reads after more deletions than the store
/// remembers.
pub(super) async fn a_watch_from_0_that_reads_late_is_never_refused(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    finds_only_the_last(&stores, "").await
}

/// KV-047: a watch that skipped other keys and has found no matching one.
pub(super) async fn a_watch_from_0_of_future_keys_is_never_refused(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    set(&*stores.a, &bucket("forgetful")?, "other", "1").await?;
    finds_only_the_last(&stores, "last").await
}

/// KV-047: a watch without any event continues after an erasure, and returns the new writes.
pub(super) async fn a_watch_from_0_survives_an_erasure(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("erased")?;
    let mut of_nothing = stores.b.watch(&bucket, "", Revision::ZERO).await?;
    expect::that(of_nothing.next().now_or_never().is_none(), "a watch of nothing to wait", "an event")?;
    stores.a.erase().await?;
    for value in ["1", "2", "3"] {
        set(&*stores.a, &bucket, "other", value).await?;
    }
    let mut of_others = stores.b.watch(&bucket, "last", Revision::ZERO).await?;
    let early = tokio::time::timeout(Duration::from_millis(100), of_others.next()).await;
    expect::that(early.is_err(), "a watch of future keys that waits", &early)?;
    stores.a.erase().await?;
    // Before the revision that the second watch has reached.
    let last = set(&*stores.a, &bucket, "last", "1").await?;
    for events in [&mut of_nothing, &mut of_others] {
        let seen = latest(events_until(events, last).await?);
        let names: Vec<&str> = seen.iter().map(|event| event.key.as_str()).collect();
        expect::equal("the keys of the events", &names, &vec!["last"])?;
    }
    Ok(())
}

/// Watches missing keys while more other keys are deleted than the store remembers; then a matching key is
/// written.
async fn finds_only_the_last(stores: &Handles<dyn KeyValueStore>, prefix: &str) -> CaseResult {
    const DELETED: usize = 1_300;
    let bucket = bucket("forgetful")?;
    let mut unseen = stores.a.watch(&bucket, prefix, Revision::ZERO).await?;
    let mut waiting = stores.b.watch(&bucket, prefix, Revision::ZERO).await?;
    // One watch has read and found nothing.
    expect::that(waiting.next().now_or_never().is_none(), "a watch of nothing to wait", "an event")?;
    delete_many(stores, &bucket, DELETED).await?;
    let last = set(&*stores.b, &bucket, "last", "1").await?;
    for events in [&mut unseen, &mut waiting] {
        let seen = latest(events_until(events, last).await?);
        let there = seen.iter().filter(|event| event.kind != KeyValueEventKind::Deleted);
        let names: Vec<&str> = there.map(|event| event.key.as_str()).collect();
        expect::equal("the keys that are there", &names, &vec!["last"])?;
    }
    Ok(())
}

/// Returns the number of keys whose last change is a deletion.
fn deletions(seen: Vec<KeyValueEvent>) -> usize {
    latest(seen).iter().filter(|event| event.kind == KeyValueEventKind::Deleted).count()
}
