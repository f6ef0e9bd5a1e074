//! Watches of a bucket during changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use larder_kernel::{
    BucketName, KeyValueEvent, KeyValueEventKind, KeyValueEvents, KeyValuePutOptions, KeyValueStore,
    KeyValueStoreExt, KeyValueWrite, Revision,
};
use tokio::task::JoinSet;

use super::support::{bucket, bytes, events_until, joined, key, listed, next, read, set, set_for, turn};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::background::BackgroundTask;

/// Long enough for a watcher to read everything and wait.
const WAITED: Duration = Duration::from_millis(30);

pub(super) async fn events_carry_the_written_values(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("watched")?;
    let mut live = b.watch(&bucket, "", Revision::ZERO).await?;
    let raw = Bytes::from_static(&[0, 0xFF, 0x80, b'\n', 0]);
    let mut expected = Vec::new();
    for (name, value) in [("raw", raw), ("empty", Bytes::new()), ("é", bytes("text"))] {
        let revision = a.set(&bucket, &key(name)?, value.clone()).await?;
        let kind = KeyValueEventKind::Put { value, expires_at: None };
        expected.push(KeyValueEvent::new(key(name)?, revision, kind));
    }
    let revision = set_for(&*a, &bucket, "brief", Duration::from_secs(3600)).await?;
    let expires_at = read(&*b, &bucket, "brief").await?.expires_at;
    expect::that(expires_at.is_some(), "the instant of expiry", expires_at)?;
    let kind = KeyValueEventKind::Put { value: bytes("brief"), expires_at };
    expected.push(KeyValueEvent::new(key("brief")?, revision, kind));
    expect::equal("the live events", &events_until(&mut live, revision).await?, &expected)?;
    let mut backlog = a.watch(&bucket, "", Revision::ZERO).await?;
    expect::equal("the backlog", &events_until(&mut backlog, revision).await?, &expected)?;

    a.delete(&bucket, &key("empty")?, None).await?;
    for events in [&mut live, &mut backlog] {
        let event = next(events, "of the deletion").await?;
        expect::equal(
            "key and change",
            &(event.key, event.kind),
            &(key("empty")?, KeyValueEventKind::Deleted),
        )?;
        expect::that(event.revision > revision, format!("a revision over {revision}"), event.revision)?;
    }
    Ok(())
}

/// Runs workers on both handles that write, rewrite and delete a few keys. Returns the revision of a last
/// write after all of theirs.
async fn work(stores: &Handles<dyn KeyValueStore>, bucket: &BucketName) -> CaseResult<Revision> {
    let mut workers: JoinSet<CaseResult> = JoinSet::new();
    for worker in 0..8 {
        let (store, bucket) = (turn(&stores.a, &stores.b, worker), bucket.clone());
        workers.spawn(async move {
            for round in 0..8 {
                let name = format!("key-{}", (worker + round) % 6);
                if round % 4 == 3 {
                    store.delete(&bucket, &key(&name)?, None).await?;
                } else {
                    set(&*store, &bucket, &name, &format!("{worker} {round}")).await?;
                }
            }
            Ok(())
        });
    }
    while let Some(result) = workers.join_next().await {
        joined(result)?;
    }
    stores.a.delete(bucket, &key("key-0")?, None).await?;
    set(&*stores.b, bucket, "last", "1").await
}

/// Checks that the last event of each key matches its current state.
async fn agrees(store: &dyn KeyValueStore, bucket: &BucketName, seen: Vec<KeyValueEvent>) -> CaseResult {
    let mut latest = BTreeMap::new();
    for event in seen {
        latest.insert(event.key.clone(), event);
    }
    for item in listed(store, bucket, "", 100).await? {
        let event = expect::some(&format!("an event of {:?}", item.key), latest.remove(&item.key))?;
        let entry = read(store, bucket, item.key.as_str()).await?;
        let kind = KeyValueEventKind::Put { value: entry.value, expires_at: entry.expires_at };
        let now = KeyValueEvent::new(item.key, entry.revision, kind);
        expect::equal("the last event of the key", &event, &now)?;
    }
    for event in latest.into_values() {
        expect::equal("the last event of an absent key", &event.kind, &KeyValueEventKind::Deleted)?;
    }
    Ok(())
}

/// Reads a watch in a separate task: the events up to the one of the key `last`.
async fn read_until_last(mut events: KeyValueEvents) -> CaseResult<Vec<KeyValueEvent>> {
    let mut seen = Vec::new();
    loop {
        let event = next(&mut events, "of the last write").await?;
        let ended = event.key.as_str() == "last";
        seen.push(event);
        if ended {
            return Ok(seen);
        }
    }
}

pub(super) async fn no_last_change_is_missed_under_concurrent_writers(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("busy")?;
    let mut readers: JoinSet<CaseResult<Vec<KeyValueEvent>>> = JoinSet::new();
    for reader in 0..2 {
        readers.spawn(read_until_last(
            turn(&stores.a, &stores.b, reader).watch(&bucket, "", Revision::ZERO).await?,
        ));
    }
    // Two more watches begin while the writers work.
    for reader in 0..2 {
        let (store, bucket) = (turn(&stores.a, &stores.b, reader), bucket.clone());
        readers.spawn(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            read_until_last(store.watch(&bucket, "", Revision::ZERO).await?).await
        });
    }
    // One watch reads nothing until all writes are done.
    let late = stores.a.watch(&bucket, "", Revision::ZERO).await?;
    work(&stores, &bucket).await?;
    readers.spawn(read_until_last(late));
    while let Some(result) = readers.join_next().await {
        agrees(&*stores.b, &bucket, joined(result)?).await?;
    }
    Ok(())
}

pub(super) async fn every_watcher_receives_a_change(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("shared")?;
    let mut watchers = Vec::new();
    for watcher in 0..4 {
        watchers.push(turn(&a, &b, watcher).watch(&bucket, "", Revision::ZERO).await?);
    }
    // A dropped watch takes no event from the others.
    drop(watchers.remove(1));
    for round in 0..3 {
        let revision = set(&*turn(&a, &b, round), &bucket, "key", &format!("{round}")).await?;
        for events in &mut watchers {
            let event = next(events, "of the put").await?;
            expect::equal("the revision", &event.revision, &revision)?;
        }
    }
    Ok(())
}

/// Checks that a change of any kind wakes a watcher that has read everything and waits.
pub(super) async fn a_waiting_watcher_is_woken_by_every_kind_of_change(context: Context) -> CaseResult {
    let quiet = context.quiet().await?;
    waits(&quiet).await?;
    quiet.leave(&context).await
}

async fn waits(context: &Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("quiet")?;
    let mut revision = set(&*a, &bucket, "key", "first").await?;
    let mut events = a.watch(&bucket, "", Revision::ZERO).await?;
    next(&mut events, "of the first put").await?;
    let kinds = ["put", "put at a revision", "deletion", "creation", "write", "deletion by prefix"];
    for (round, kind) in kinds.into_iter().enumerate() {
        let waiting = BackgroundTask::start(async move {
            let event = next(&mut events, &format!("of the {kind}")).await?;
            CaseResult::Ok((events, event))
        });
        tokio::time::sleep(WAITED).await;
        // Through the watcher's handle and through the other.
        let (store, key, value) = (turn(&a, &b, round), key("key")?, bytes(kind));
        match kind {
            "put" => revision = store.set(&bucket, &key, value).await?,
            "put at a revision" => revision = store.put_at(&bucket, &key, value, revision).await?,
            "deletion" => drop(store.delete(&bucket, &key, None).await?),
            "write" => {
                let write = KeyValueWrite::put(key, value, KeyValuePutOptions::default());
                store.write(&bucket, vec![write]).await?;
            }
            "deletion by prefix" => drop(store.delete_prefix(&bucket, "k").await?),
            _ => drop(store.create(&bucket, &key, value).await?),
        }
        let (back, event) = waiting.end().await??;
        events = back;
        let deleted = event.kind == KeyValueEventKind::Deleted;
        expect::equal(&format!("the {kind} is a deletion"), &deleted, &kind.starts_with("deletion"))?;
    }
    Ok(())
}

pub(super) async fn revisions_of_events_only_increase(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("busy")?;
    for number in 0..6 {
        set(&*stores.a, &bucket, &format!("key-{number}"), "start").await?;
    }
    let mut readers: JoinSet<CaseResult<Vec<KeyValueEvent>>> = JoinSet::new();
    for reader in 0..4_u64 {
        let (store, bucket) = (Arc::clone(if reader < 2 { &stores.a } else { &stores.b }), bucket.clone());
        readers.spawn(async move {
            // They begin one after another, so that some switch from backlog to live events during the
            // writes.
            tokio::time::sleep(Duration::from_millis(reader * 3)).await;
            read_until_last(store.watch(&bucket, "", Revision::ZERO).await?).await
        });
    }
    work(&stores, &bucket).await?;
    while let Some(result) = readers.join_next().await {
        let revisions: Vec<Revision> = joined(result)?.iter().map(|event| event.revision).collect();
        expect::that(revisions.is_sorted_by(|left, right| left < right), "growing revisions", &revisions)?;
    }
    Ok(())
}

pub(super) async fn only_keys_with_the_prefix_are_delivered(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("watched")?;
    let all = ["a", "a_b", "axb", "a_", "A_b", "b", "a%", "a_é", "ba_b"];
    let mut live = b.watch(&bucket, "a_", Revision::ZERO).await?;
    for name in all {
        set(&*a, &bucket, name, "1").await?;
    }
    for name in ["axb", "a_b", "a"] {
        a.delete(&bucket, &key(name)?, None).await?;
    }
    let last = set(&*a, &bucket, "a_last", "1").await?;
    let mut backlog = a.watch(&bucket, "a_", Revision::ZERO).await?;
    for events in [&mut live, &mut backlog] {
        let seen = events_until(events, last).await?;
        let strangers: Vec<_> = seen.iter().filter(|event| !event.key.as_str().starts_with("a_")).collect();
        expect::that(strangers.is_empty(), "only keys that begin with a_", &strangers)?;
        for name in ["a_", "a_b", "a_é"] {
            expect::some(name, seen.iter().find(|event| event.key.as_str() == name))?;
        }
    }
    Ok(())
}

pub(super) async fn only_changes_of_the_bucket_are_delivered(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let (watched, other) = (bucket("bucket")?, bucket("bucket:2")?);
    set(&*a, &other, "key", "before").await?;
    let mut events = b.watch(&watched, "", Revision::ZERO).await?;
    set(&*a, &other, "key", "1").await?;
    a.delete(&other, &key("key")?, None).await?;
    let revision = set(&*a, &watched, "key", "2").await?;
    let event = next(&mut events, "of the bucket").await?;
    let kind = KeyValueEventKind::Put { value: bytes("2"), expires_at: None };
    expect::equal("the event", &event, &KeyValueEvent::new(key("key")?, revision, kind))
}
