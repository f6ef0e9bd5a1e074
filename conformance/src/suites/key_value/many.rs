//! Buckets with many keys, and many buckets.

use std::collections::BTreeSet;

use larder_kernel::limits::BATCH_KEYS_MAX;
use larder_kernel::{
    BucketName, Contract, Key, KeyValueQuery, KeyValueStore, KeyValueWrite, PageRequest, Revision,
};

use super::batch_read::entries;
use super::support::{absent, bucket, buckets, key, listed, next, set};
use crate::case::{CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::many::{Row, count, each};

const CONTRACT: Contract = Contract::KeyValue;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        ("put", case!(KeyValue, "KV-002", many_writes_get_distinct_revisions)),
        ("list", case!(KeyValue, "KV-032", many_keys_are_listed_once)),
        ("list", case!(KeyValue, "KV-030", a_prefix_selects_from_many_keys)),
        ("get_many", case!(KeyValue, "KV-053", many_keys_are_read_by_the_thousand)),
        ("write", case!(KeyValue, "KV-058", many_keys_are_written_by_the_thousand)),
        ("delete_prefix", case!(KeyValue, "KV-064", many_keys_are_deleted_by_their_prefix)),
        ("list_entries", case!(KeyValue, "KV-069", many_entries_are_listed_once_in_both_orders)),
        ("list_buckets", case!(KeyValue, "KV-035", many_buckets_are_listed_with_their_number_of_keys)),
        ("watch", case!(KeyValue, "KV-040", a_backlog_of_many_keys_is_delivered)),
        ("watch", case!(KeyValue, "KV-042", a_watcher_behind_many_changes_misses_none)),
        ("erase", case!(KeyValue, "STORE-006", erasing_many_keys_leaves_none)),
    ]
}

/// Returns the name of a key: the even ones begin with `left`, the last one with `z`.
fn name(number: usize, many: usize) -> String {
    let side = match number {
        last if last + 1 == many => "z",
        even if even.is_multiple_of(2) => "left",
        _ => "right",
    };
    format!("{side}-{number:06}")
}

fn sorted(many: usize, prefix: &str) -> Vec<String> {
    let all = (0..many).map(|number| name(number, many)).filter(|name| name.starts_with(prefix));
    all.collect::<BTreeSet<_>>().into_iter().collect()
}

async fn fill(store: &dyn KeyValueStore, bucket: &BucketName, many: usize) -> CaseResult {
    each(0..many, |number| async move {
        let name = name(number, many);
        set(store, bucket, &name, &name).await.map(drop)
    })
    .await
}

/// One bucket with many keys, and many buckets with one.
async fn large(context: &Context) -> CaseResult<(Handles<dyn KeyValueStore>, usize)> {
    let many = context.many(CONTRACT);
    let load = |context: Context| async move {
        let store = context.key_value().await?.a;
        fill(&*store, &bucket("long")?, many).await?;
        let store = &*store;
        each(0..many, |number| async move {
            set(store, &bucket(&format!("many-{number:06}"))?, "key", "value").await.map(drop)
        })
        .await
    };
    Ok((context.large(CONTRACT, "many", load).await?.key_value().await?, many))
}

async fn many_writes_get_distinct_revisions(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    let found = listed(&*stores.b, &bucket("long")?, "", 10_000).await?;
    let revisions: BTreeSet<u64> = found.iter().map(|item| item.revision.get()).collect();
    expect::equal("the number of distinct revisions", &revisions.len(), &many)
}

async fn many_keys_are_listed_once(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    let expected = sorted(many, "");
    for limit in [10_000, 977] {
        let found = listed(&*stores.b, &bucket("long")?, "", limit).await?;
        let found: Vec<String> = found.into_iter().map(|item| item.key.into()).collect();
        expect::equal("the number of keys", &found.len(), &many)?;
        expect::that(found == expected, "every key in byte order", found.first())?;
    }
    let first = stores.b.list(&bucket("long")?, "", PageRequest::first(10_000)).await?.items.len();
    expect::equal("the keys of the longest page", &first, &many.min(10_000))
}

async fn a_prefix_selects_from_many_keys(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    for prefix in ["left-", "right-", "z-", "none"] {
        let found = listed(&*stores.b, &bucket("long")?, prefix, 10_000).await?;
        let found: Vec<String> = found.into_iter().map(|item| item.key.into()).collect();
        let expected = sorted(many, prefix);
        expect::equal(&format!("the number of keys with {prefix:?}"), &found.len(), &expected.len())?;
        expect::that(found == expected, format!("the keys with {prefix:?}"), found.first())?;
    }
    Ok(())
}

async fn many_keys_are_read_by_the_thousand(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    let names: Vec<String> = (0..many).map(|number| name(number, many)).collect();
    for chunk in names.chunks(BATCH_KEYS_MAX) {
        let keys = chunk.iter().map(|name| key(name)).collect::<CaseResult<Vec<Key>>>()?;
        let found = stores.b.get_many(&bucket("long")?, &keys).await?;
        let values: Vec<Option<&[u8]>> =
            found.items.iter().map(|entry| entry.as_ref().map(|entry| &entry.value[..])).collect();
        let expected: Vec<Option<&[u8]>> = chunk.iter().map(|name| Some(name.as_bytes())).collect();
        expect::that(values == expected, "every value in the order of the keys", keys.first())?;
    }
    Ok(())
}

/// Writes many keys by the thousand, and returns the revisions.
async fn write_all(store: &dyn KeyValueStore, bucket: &BucketName, many: usize) -> CaseResult<Vec<Revision>> {
    let names: Vec<String> = (0..many).map(|number| name(number, many)).collect();
    let mut revisions = Vec::new();
    for chunk in names.chunks(BATCH_KEYS_MAX) {
        let put = |name: &String| Ok(KeyValueWrite::put(key(name)?, name.clone(), Default::default()));
        let writes = chunk.iter().map(put).collect::<CaseResult<Vec<_>>>()?;
        revisions.extend(store.write(bucket, writes).await?.into_iter().flatten());
    }
    Ok(revisions)
}

async fn many_keys_are_written_by_the_thousand(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let (bucket, many) = (bucket("long")?, context.many(CONTRACT));
    let revisions = write_all(&*a, &bucket, many).await?;
    expect::equal("the number of revisions", &revisions.len(), &many)?;
    let growing = revisions.is_sorted_by(|left, right| left < right);
    expect::that(growing, "growing revisions", revisions.first())?;
    let found = listed(&*b, &bucket, "", 10_000).await?;
    let found: Vec<(String, Revision)> =
        found.into_iter().map(|item| (item.key.into(), item.revision)).collect();
    let mut expected: Vec<(String, Revision)> =
        (0..many).map(|number| name(number, many)).zip(revisions).collect();
    expected.sort_unstable();
    expect::that(found == expected, "every key at its revision", found.first())
}

async fn many_keys_are_deleted_by_their_prefix(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let (bucket, many) = (bucket("long")?, context.many(CONTRACT));
    write_all(&*a, &bucket, many).await?;
    let (left, right) = (sorted(many, "left"), sorted(many, "right"));
    let mut deleted = 0;
    loop {
        let step = b.delete_prefix(&bucket, "left").await?;
        deleted += step.deleted;
        let rest = count(left.len()) - deleted;
        expect::equal("whether keys remain", &step.more, &(rest > 0))?;
        expect::that(step.deleted <= count(BATCH_KEYS_MAX), "at most 1,000 keys", step.deleted)?;
        if !step.more {
            break;
        }
    }
    expect::equal("the number of deleted keys", &deleted, &count(left.len()))?;
    let found = listed(&*a, &bucket, "", 10_000).await?;
    let found: Vec<String> = found.into_iter().map(|item| item.key.into()).collect();
    expect::equal("the number of remaining keys", &found.len(), &(right.len() + 1))?;
    expect::that(found.starts_with(&right), "the keys with another prefix", found.first())
}

async fn many_entries_are_listed_once_in_both_orders(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    let mut expected = sorted(many, "");
    let query = KeyValueQuery::prefix("").with_values();
    for query in [query.clone(), query.descending()] {
        for limit in [10_000, 977] {
            let found = entries(&*stores.b, &bucket("long")?, &query, limit).await?;
            let values = found.iter().all(|item| item.value.as_deref() == Some(item.key.as_str().as_bytes()));
            expect::that(values, "the value of each key", found.first())?;
            let found: Vec<String> = found.into_iter().map(|item| item.key.into()).collect();
            expect::equal("the number of entries", &found.len(), &many)?;
            expect::that(found == expected, "every entry in order", found.first())?;
        }
        expected.reverse();
    }
    Ok(())
}

async fn many_buckets_are_listed_with_their_number_of_keys(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    let found = buckets(&*stores.b, 10_000).await?;
    expect::equal("the number of buckets", &found.len(), &(many + 1))?;
    let long = found.iter().find(|info| info.bucket.as_str() == "long").map(|info| info.keys);
    expect::equal("the number of keys in the long bucket", &long, &Some(count(many)))?;
    let single = found.iter().filter(|info| info.keys == 1).count();
    expect::equal("the number of buckets with one key", &single, &many)
}

async fn a_backlog_of_many_keys_is_delivered(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    let mut events = stores.b.watch(&bucket("long")?, "", Revision::ZERO).await?;
    let mut seen = BTreeSet::new();
    for number in 0..many {
        seen.insert(next(&mut events, &format!("{number} of the backlog")).await?.key);
    }
    expect::equal("the number of keys in the backlog", &seen.len(), &many)
}

async fn a_watcher_behind_many_changes_misses_none(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let (bucket, many) = (bucket("long")?, context.many(CONTRACT));
    let mut events = b.watch(&bucket, "", Revision::ZERO).await?;
    set(&*a, &bucket, "before", "1").await?;
    next(&mut events, "before the others").await?;
    fill(&*a, &bucket, many).await?;
    let mut seen = BTreeSet::new();
    for number in 0..many {
        seen.insert(next(&mut events, &format!("{number} after the wait")).await?.key);
    }
    expect::equal("the number of changed keys", &seen.len(), &many)
}

async fn erasing_many_keys_leaves_none(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let (bucket, many) = (bucket("long")?, context.many(CONTRACT));
    fill(&*a, &bucket, many).await?;
    a.erase().await?;
    expect::equal("the buckets", &buckets(&*b, 10).await?, &Vec::new())?;
    expect::equal("the keys", &listed(&*b, &bucket, "", 10_000).await?, &Vec::new())?;
    for number in [0, many / 2, many - 1] {
        absent(&*b, &bucket, &name(number, many)).await?;
    }
    Ok(())
}
