//! Buckets with many keys, and many buckets.

use std::collections::BTreeSet;

use larder_kernel::{BucketName, Contract, KeyValueStore, PageRequest, Revision};

use super::support::{absent, bucket, buckets, listed, next, set};
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
