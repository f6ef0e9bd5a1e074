//! Ids that must stay distinct.

use std::collections::BTreeMap;

use bytes::Bytes;
use larder_kernel::{KeyValueEventKind, KeyValueStore, KeyValueStoreExt, Revision};

use super::support::{absent, bucket, buckets, bytes, events_until, key, listed, names, read, set};
use crate::case::{Case, CaseResult, Level, case};
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::ids::{hostile, hostile_pairs};

/// Returns the cases of hostile ids.
pub(super) fn cases() -> Vec<Case> {
    [
        case!(KeyValue, "STORE-003", hostile_keys_are_separate),
        case!(KeyValue, "STORE-003", hostile_buckets_are_separate),
        case!(KeyValue, "STORE-003", bucket_and_key_do_not_merge),
        case!(KeyValue, "STORE-003", hostile_prefixes_select_by_bytes),
        case!(KeyValue, "STORE-003", hostile_keys_are_watched),
    ]
    .into_iter()
    .map(|case| case.at_level(Level::Hostile))
    .collect()
}

fn sorted() -> Vec<String> {
    let mut ids = hostile();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Checks that each name in the bucket has itself as its value, and that no other key exists.
async fn each_holds_itself(
    store: &dyn KeyValueStore,
    bucket: &larder_kernel::BucketName,
    all: &[String],
) -> CaseResult {
    for name in all {
        expect::equal("the value", &read(store, bucket, name).await?.value, &bytes(name))?;
    }
    expect::equal("the keys in byte order", &names(store, bucket, "").await?.as_slice(), &all)
}

async fn hostile_keys_are_separate(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("hostile")?;
    let mut all = sorted();
    // Creates rather than sets, so that two colliding ids are detected immediately.
    for name in &all {
        a.create(&bucket, &key(name)?, bytes(name)).await?;
    }
    each_holds_itself(&*b, &bucket, &all).await?;
    let single = listed(&*b, &bucket, "", 1).await?.len();
    expect::equal("number of keys, listed one by one", &single, &all.len())?;
    while all.len() > 1 {
        let gone = all.remove(all.len() / 2);
        expect::equal("the reported existence", &b.delete(&bucket, &key(&gone)?, None).await?, &true)?;
        absent(&*a, &bucket, &gone).await?;
        if all.len().is_multiple_of(8) {
            each_holds_itself(&*a, &bucket, &all).await?;
        }
    }
    each_holds_itself(&*a, &bucket, &all).await
}

async fn hostile_buckets_are_separate(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let all = sorted();
    for name in &all {
        a.create(&bucket(name)?, &key("key")?, bytes(name)).await?;
    }
    for name in &all {
        expect::equal("the value", &read(&*b, &bucket(name)?, "key").await?.value, &bytes(name))?;
    }
    for limit in [7, 10_000] {
        let found: Vec<String> =
            buckets(&*b, limit).await?.into_iter().map(|info| info.bucket.into()).collect();
        expect::equal("the buckets in byte order", &found, &all)?;
    }
    let (gone, kept) = all.split_at(all.len() / 2);
    for name in gone {
        b.delete(&bucket(name)?, &key("key")?, None).await?;
    }
    let found: Vec<String> = buckets(&*a, 10_000).await?.into_iter().map(|info| info.bucket.into()).collect();
    expect::equal("the buckets that stay", &found.as_slice(), &kept)
}

async fn bucket_and_key_do_not_merge(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let pairs = hostile_pairs();
    for (left, right) in &pairs {
        let value = bytes(&format!("{left} + {right}"));
        a.create(&bucket(left)?, &key(right)?, value).await?;
    }
    for (left, right) in &pairs {
        let entry = read(&*b, &bucket(left)?, right).await?;
        expect::equal("the value", &entry.value, &bytes(&format!("{left} + {right}")))?;
    }
    let counted: u64 = buckets(&*b, 10_000).await?.iter().map(|info| info.keys).sum();
    expect::equal("keys of all buckets", &counted, &u64::try_from(pairs.len()).unwrap_or_default())
}

async fn hostile_prefixes_select_by_bytes(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("hostile")?;
    let mut all = sorted();
    for name in &all {
        a.set(&bucket, &key(name)?, Bytes::new()).await?;
    }
    all.sort_unstable();
    for prefix in &all {
        let expected: Vec<&String> = all.iter().filter(|name| name.starts_with(prefix.as_str())).collect();
        let got = names(&*b, &bucket, prefix).await?;
        expect::equal("keys with a hostile prefix", &got.iter().collect::<Vec<_>>(), &expected)?;
    }
    Ok(())
}

async fn hostile_keys_are_watched(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("hostile")?;
    let all = sorted();
    let mut live = b.watch(&bucket, "", Revision::ZERO).await?;
    for name in &all {
        set(&*a, &bucket, name, name).await?;
    }
    let last = set(&*a, &bucket, "the last one", "the last one").await?;
    let mut backlog = a.watch(&bucket, "", Revision::ZERO).await?;
    for events in [&mut live, &mut backlog] {
        let mut seen = BTreeMap::new();
        for event in events_until(events, last).await? {
            let KeyValueEventKind::Put { value, .. } = event.kind else {
                return Err(expect::broken("puts only", format!("{event:?}")));
            };
            expect::equal("the value of the event", &value, &bytes(event.key.as_str()))?;
            seen.insert(String::from(event.key), ());
        }
        for name in &all {
            expect::some("the event of a hostile key", seen.get(name))?;
        }
    }
    Ok(())
}
