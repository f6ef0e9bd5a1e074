//! Writes of several keys during reads, watches and other writes: they are whole.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use larder_kernel::{
    BucketName, ErrorKind, Key, KeyValueCondition, KeyValueEvents, KeyValuePutOptions, KeyValueQuery,
    KeyValueStore, KeyValueWrite, PageRequest, Revision,
};
use tokio::task::JoinSet;

use super::batch_write::{delete, put};
use super::support::{absent, bucket, bytes, holds, joined, key, next, read, set, turn};
use crate::case::{Case, CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::background::BackgroundTask;

/// The number of writes during the reads.
const ROUNDS: usize = 40;
/// The keys of a write, in the order of the writes.
const NAMES: [&str; 4] = ["m", "c", "x", "a"];
/// The key that each odd write deletes.
const FLIP: &str = "flip";
const TTL: Duration = Duration::from_millis(200);

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(KeyValue, "KV-054", get_many_sees_whole_writes),
        case!(KeyValue, "KV-054", get_many_sees_keys_that_expire_together_together),
        case!(KeyValue, "KV-059", no_read_sees_a_part_of_a_write),
        case!(KeyValue, "KV-059", the_times_to_live_of_a_write_begin_together),
        case!(KeyValue, "KV-060", one_of_concurrent_writes_at_a_revision_succeeds),
        case!(KeyValue, "KV-060", counters_kept_by_writes_lose_no_update),
        case!(KeyValue, "KV-061", a_watch_delivers_whole_writes_in_order),
        case!(KeyValue, "KV-071", a_page_of_entries_sees_whole_writes),
    ]
}

/// The write number `round`: each key gets the number, and the key `flip` exists after even ones.
fn write(round: usize) -> CaseResult<Vec<KeyValueWrite>> {
    let text = round.to_string();
    let mut writes = vec![put(NAMES[0], &text, KeyValueCondition::None)?];
    writes.push(match round % 2 {
        0 => put(FLIP, &text, KeyValueCondition::None)?,
        _ => delete(FLIP, None)?,
    });
    for name in &NAMES[1..] {
        writes.push(put(name, &text, KeyValueCondition::None)?);
    }
    Ok(writes)
}

/// Writes all rounds through alternating handles.
fn writer(stores: &Handles<dyn KeyValueStore>, bucket: &BucketName) -> BackgroundTask<CaseResult> {
    let (a, b, bucket) = (Arc::clone(&stores.a), Arc::clone(&stores.b), bucket.clone());
    BackgroundTask::start(async move {
        for round in 1..=ROUNDS {
            turn(&a, &b, round).write(&bucket, write(round)?).await?;
            // Otherwise a store that never waits would let no reader in between.
            tokio::task::yield_now().await;
        }
        Ok(())
    })
}

fn number(value: &[u8]) -> CaseResult<usize> {
    let text = std::str::from_utf8(value).unwrap_or_default();
    text.parse().map_err(|_| expect::broken("the digits of a round", format!("{text:?}")))
}

/// Checks that the values of the keys in [`NAMES`] and then of [`FLIP`] are those of one write.
fn whole(values: &[Option<usize>]) -> CaseResult<usize> {
    let round = values.first().copied().flatten();
    let (flip, others) = values.split_last().map_or((None, &[][..]), |(flip, others)| (*flip, others));
    let round = expect::some("a round", round)?;
    let right = others.iter().all(|value| *value == Some(round));
    expect::that(right, format!("only values of the write {round}"), values)?;
    expect::equal("the flipping key", &flip, &(round % 2 == 0).then_some(round))?;
    Ok(round)
}

/// Repeats a read until the writer has ended, and once more.
async fn during_writes<R: Future<Output = CaseResult<usize>>>(
    stores: &Handles<dyn KeyValueStore>,
    bucket: &BucketName,
    mut read: impl FnMut(Arc<dyn KeyValueStore>) -> R,
) -> CaseResult {
    stores.a.write(bucket, write(0)?).await?;
    let writer = writer(stores, bucket);
    let (mut reads, mut seen) = (0, 0);
    loop {
        let last = writer.is_finished();
        seen = read(turn(&stores.a, &stores.b, reads)).await?.max(seen);
        reads += 1;
        if last {
            break;
        }
        tokio::task::yield_now().await;
    }
    writer.end().await??;
    expect::equal("the last write that was seen", &seen, &ROUNDS)
}

fn asked() -> CaseResult<Vec<Key>> {
    NAMES.iter().chain([&FLIP]).map(|name| key(name)).collect()
}

async fn get_many_sees_whole_writes(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("whole")?;
    let asked = asked()?;
    during_writes(&stores, &bucket, |store| {
        let (bucket, asked) = (bucket.clone(), asked.clone());
        async move {
            let found = store.get_many(&bucket, &asked).await?.items;
            let values =
                found.iter().map(|entry| entry.as_ref().map(|entry| number(&entry.value)).transpose());
            whole(&values.collect::<CaseResult<Vec<_>>>()?)
        }
    })
    .await
}

async fn get_many_sees_keys_that_expire_together_together(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("brief")?;
    let asked = write_for(TTL, 200, &*a, &bucket).await?;
    let deadline = Instant::now() + 10 * TTL;
    loop {
        let found = b.get_many(&bucket, &asked).await?.items;
        let there = found.iter().flatten().count();
        expect::that(there == 0 || there == asked.len(), "all keys or none", there)?;
        if there == 0 {
            return Ok(());
        }
        expect::that(Instant::now() < deadline, "the keys to expire", there)?;
        tokio::task::yield_now().await;
    }
}

/// Writes a number of keys with a time to live in one call, and returns them.
async fn write_for(
    ttl: Duration,
    count: usize,
    store: &dyn KeyValueStore,
    bucket: &BucketName,
) -> CaseResult<Vec<Key>> {
    let keys: Vec<Key> = (0..count).map(|number| key(&format!("key-{number}"))).collect::<CaseResult<_>>()?;
    let options = KeyValuePutOptions::default().with_ttl(ttl);
    let writes = keys.iter().map(|key| KeyValueWrite::put(key.clone(), bytes("brief"), options));
    store.write(bucket, writes.collect()).await?;
    Ok(keys)
}

async fn the_times_to_live_of_a_write_begin_together(context: Context) -> CaseResult {
    let store = context.key_value().await?.a;
    let bucket = bucket("brief")?;
    let asked = write_for(Duration::from_secs(600), 1_000, &*store, &bucket).await?;
    let found = store.get_many(&bucket, &asked).await?.items;
    let ends = found.iter().flatten().map(|entry| entry.expires_at);
    let ends: BTreeSet<_> = ends.collect::<Option<_>>().unwrap_or_default();
    expect::that(ends.len() == 1, "one instant at which all keys expire", &ends)
}

/// Two reads one after the other: the second sees the write that the first one saw, or a later one, for every
/// order of the keys.
async fn no_read_sees_a_part_of_a_write(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("whole")?;
    during_writes(&stores, &bucket, |store| {
        let bucket = bucket.clone();
        async move {
            let mut seen = 0;
            for name in NAMES.iter().chain(NAMES.iter().rev()) {
                let round = number(&read(&*store, &bucket, name).await?.value)?;
                expect::that(round >= seen, format!("the write {seen} or a later one"), round)?;
                seen = round;
            }
            // The first key of a write has its least revision, and the last one its greatest.
            let page = store.list(&bucket, "", PageRequest::first(10)).await?;
            let at = |name: &str| {
                let item = page.items.iter().find(|item| item.key.as_str() == name);
                expect::some("a key of the write", item.map(|item| item.revision))
            };
            let (first, last) = (at(NAMES[0])?, at(NAMES[3])?);
            let within = page.items.iter().all(|item| (first..=last).contains(&item.revision));
            expect::that(within, "revisions of one write", &page.items)?;
            Ok(seen)
        }
    })
    .await
}

async fn a_page_of_entries_sees_whole_writes(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("whole")?;
    during_writes(&stores, &bucket, |store| {
        let bucket = bucket.clone();
        async move {
            let query = KeyValueQuery::prefix("").with_values();
            let page = store.list_entries(&bucket, &query, PageRequest::first(10)).await?;
            let value = |name: &&str| {
                let item = page.items.iter().find(|item| item.key.as_str() == *name);
                item.and_then(|item| item.value.as_ref()).map(|value| number(value)).transpose()
            };
            whole(&NAMES.iter().chain([&FLIP]).map(value).collect::<CaseResult<Vec<_>>>()?)
        }
    })
    .await
}

const WORKERS: usize = 8;
/// A worker, and the revisions of its writes if it won.
type Attempt = (usize, Option<Vec<Option<Revision>>>);

async fn one_of_concurrent_writes_at_a_revision_succeeds(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    for round in 0..4 {
        let bucket = bucket(&format!("race-{round}"))?;
        let condition = match round % 2 {
            0 => KeyValueCondition::AtRevision(set(&*stores.a, &bucket, "head", "start").await?),
            _ => KeyValueCondition::Absent,
        };
        let mut workers: JoinSet<CaseResult<Attempt>> = JoinSet::new();
        for worker in 0..WORKERS {
            let (store, bucket) = (turn(&stores.a, &stores.b, worker), bucket.clone());
            let text = worker.to_string();
            let writes = vec![
                put(&format!("turn-{worker}"), &text, KeyValueCondition::None)?,
                put("head", &text, condition)?,
            ];
            workers.spawn(async move {
                match store.write(&bucket, writes).await {
                    Ok(revisions) => Ok((worker, Some(revisions))),
                    Err(error) if error.kind() == ErrorKind::Conflict => Ok((worker, None)),
                    Err(error) => Err(error.into()),
                }
            });
        }
        let (mut winners, mut losers) = (Vec::new(), Vec::new());
        while let Some(result) = workers.join_next().await {
            match joined(result)? {
                (worker, Some(revisions)) => winners.push((worker, revisions)),
                (worker, None) => losers.push(worker),
            }
        }
        let [(worker, revisions)] = &winners[..] else {
            return Err(expect::broken("one winner", format!("{winners:?}")));
        };
        let given = |index: usize| expect::some("a revision", revisions.get(index).copied().flatten());
        holds(&*stores.b, &bucket, &format!("turn-{worker}"), &worker.to_string(), given(0)?).await?;
        holds(&*stores.b, &bucket, "head", &worker.to_string(), given(1)?).await?;
        for loser in losers {
            absent(&*stores.b, &bucket, &format!("turn-{loser}")).await?;
        }
    }
    Ok(())
}

async fn counters_kept_by_writes_lose_no_update(context: Context) -> CaseResult {
    const EACH: usize = 4;
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("counters")?;
    set(&*a, &bucket, "counter", "0").await?;
    let mut workers: JoinSet<CaseResult> = JoinSet::new();
    for worker in 0..WORKERS {
        let (store, bucket) = (turn(&a, &b, worker), bucket.clone());
        workers.spawn(async move {
            let mut done = 0;
            // Each failed attempt means that another worker succeeded.
            for _ in 0..WORKERS * EACH * 4 {
                let entry = read(&*store, &bucket, "counter").await?;
                let count = number(&entry.value)? + 1;
                tokio::task::yield_now().await;
                let writes = vec![
                    put("counter", &count.to_string(), KeyValueCondition::AtRevision(entry.revision))?,
                    put(&format!("log-{count:03}"), &worker.to_string(), KeyValueCondition::Absent)?,
                ];
                match store.write(&bucket, writes).await {
                    Ok(_) => done += 1,
                    Err(error) if error.kind() == ErrorKind::Conflict => {}
                    Err(error) => return Err(error.into()),
                }
                if done == EACH {
                    return Ok(());
                }
            }
            Err(expect::broken("some worker to get on", "attempts in vain"))
        });
    }
    while let Some(result) = workers.join_next().await {
        joined(result)?;
    }
    let counted = number(&read(&*b, &bucket, "counter").await?.value)?;
    expect::equal("the counter", &counted, &(WORKERS * EACH))?;
    let logged = super::support::names(&*b, &bucket, "log-").await?.len();
    expect::equal("the number of entries of the log", &logged, &(WORKERS * EACH))
}

/// Returns the next change's key and its round; `None` for a deletion.
async fn change(events: &mut KeyValueEvents) -> CaseResult<(String, Option<usize>)> {
    let event = next(events, "of a write").await?;
    let round = match &event.kind {
        larder_kernel::KeyValueEventKind::Put { value, .. } => Some(number(value)?),
        _ => None,
    };
    Ok((event.key.into(), round))
}

async fn a_watch_delivers_whole_writes_in_order(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("watched")?;
    let Handles { a, b } = &stores;
    let mut events = b.watch(&bucket, "", Revision::ZERO).await?;
    // One write at a time: the changes come in the order of the writes.
    let expected = ["m", FLIP, "c", "x", "a"].map(str::to_owned);
    for round in [0, 1] {
        a.write(&bucket, write(round)?).await?;
        for name in &expected {
            let delivered = change(&mut events).await?;
            let gone = round == 1 && name == FLIP;
            expect::equal("the change", &delivered, &(name.clone(), (!gone).then_some(round)))?;
        }
    }
    // During other writes: at the first change of a write, all of it is readable.
    let writer = writer(&stores, &bucket);
    loop {
        let (_, Some(round)) = change(&mut events).await? else { continue };
        let found = a.get_many(&bucket, &asked()?).await?.items;
        let values = found.iter().map(|entry| entry.as_ref().map(|entry| number(&entry.value)).transpose());
        let least = values.take(NAMES.len()).collect::<CaseResult<Vec<_>>>()?.into_iter().min().flatten();
        expect::that(least >= Some(round), format!("the write {round} or a later one"), least)?;
        if round == ROUNDS {
            break;
        }
    }
    writer.end().await?
}
