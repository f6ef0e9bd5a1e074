//! One rule, many places: prefixes and revisions mean the same in every method that evaluates them.

use std::collections::BTreeSet;

use larder_kernel::{
    BucketName, ErrorKind, KeyValueEvent, KeyValueEvents, KeyValueStore, KeyValueStoreExt, Revision,
};

use super::support::{absent, bucket, bytes, key, names, next, read, set};
use crate::case::{Case, CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;

/// Keys that a pattern, a fold or a computed bound takes for each other.
const NAMES: &[&str] = &[
    "a",
    "A",
    "ab",
    "a_b",
    "axb",
    "a%b",
    "a*b",
    "a\\_b",
    "a[b",
    "a/b",
    "a:b",
    "a b",
    "aé",
    "ae\u{301}",
    "b",
    "a\u{d7ff}",
    "a\u{ffff}",
    "a\u{10ffff}",
    "a\u{10ffff}x",
    "%",
    "_",
    "*",
    "[a]",
    "ß",
    "ss",
    "é",
    " a",
];

/// Prefixes of these keys, and prefixes of none.
const PREFIXES: &[&str] = &[
    "",
    "a",
    "A",
    "a_",
    "a%",
    "a*",
    "a\\",
    "a[",
    "a/",
    "a:",
    "a ",
    "aé",
    "ae",
    "ab",
    "a\u{10ffff}",
    "a\u{ffff}",
    "%",
    "_",
    "*",
    "[",
    "s",
    "é",
    " ",
    "z",
    "abc",
];

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(KeyValue, "KV-030", a_listing_follows_the_table_of_prefixes),
        case!(KeyValue, "KV-044", a_watch_follows_the_table_of_prefixes),
        case!(KeyValue, "KV-006", a_put_follows_the_table_of_revisions),
        case!(KeyValue, "KV-025", a_deletion_follows_the_table_of_revisions),
    ]
}

fn expected(prefix: &str) -> Vec<String> {
    let sorted: BTreeSet<&str> = NAMES.iter().copied().filter(|name| name.starts_with(prefix)).collect();
    sorted.into_iter().map(str::to_owned).collect()
}

async fn a_listing_follows_the_table_of_prefixes(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("prefixes")?;
    for name in NAMES {
        set(&*a, &bucket, name, name).await?;
    }
    for prefix in PREFIXES {
        let found = names(&*b, &bucket, prefix).await?;
        expect::equal(&format!("the keys with prefix {prefix:?}"), &found, &expected(prefix))?;
    }
    Ok(())
}

/// Returns the keys of the events before that of the last key, which every prefix selects.
async fn seen(events: &mut KeyValueEvents, last: &str) -> CaseResult<Vec<String>> {
    let mut seen: Vec<KeyValueEvent> = Vec::new();
    loop {
        let event = next(events, &format!("of {last:?}")).await?;
        if event.key.as_str() == last {
            let names: BTreeSet<String> = seen.into_iter().map(|event| event.key.into()).collect();
            return Ok(names.into_iter().collect());
        }
        seen.push(event);
    }
}

async fn a_watch_follows_the_table_of_prefixes(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("prefixes")?;
    let mut live = Vec::new();
    for prefix in PREFIXES {
        live.push(b.watch(&bucket, prefix, Revision::ZERO).await?);
    }
    for name in NAMES {
        set(&*a, &bucket, name, name).await?;
    }
    for (prefix, live) in PREFIXES.iter().zip(&mut live) {
        let last = format!("{prefix}\u{10fffe}last");
        set(&*a, &bucket, &last, "last").await?;
        let mut backlog = b.watch(&bucket, prefix, Revision::ZERO).await?;
        for (what, events) in [("live", live), ("backlog", &mut backlog)] {
            let mut found = seen(events, &last).await?;
            found.retain(|name| !name.ends_with("last"));
            expect::equal(&format!("{what} changes with prefix {prefix:?}"), &found, &expected(prefix))?;
        }
    }
    Ok(())
}

/// Keys at several states, each with revisions at which it is not.
async fn wrong_revisions(
    store: &dyn KeyValueStore,
    bucket: &BucketName,
) -> CaseResult<Vec<(&'static str, &'static str, Revision)>> {
    let older = set(store, bucket, "present", "1").await?;
    let other = set(store, bucket, "other", "1").await?;
    let current = set(store, bucket, "present", "2").await?;
    let newer = set(store, bucket, "newer", "1").await?;
    let deleted = set(store, bucket, "deleted", "1").await?;
    store.delete(bucket, &key("deleted")?, None).await?;
    let again = set(store, bucket, "again", "1").await?;
    store.delete(bucket, &key("again")?, None).await?;
    set(store, bucket, "again", "2").await?;
    Ok(vec![
        ("an older revision", "present", older),
        ("a revision between the key's", "present", other),
        ("a newer revision", "present", newer),
        ("revision 0", "present", Revision::ZERO),
        ("a revision of another key", "absent", current),
        ("revision 0 of an absent key", "absent", Revision::ZERO),
        ("the last revision of a deleted key", "deleted", deleted),
        ("revision 0 of a deleted key", "deleted", Revision::ZERO),
        ("the revision before a deletion", "again", again),
    ])
}

async fn unchanged(what: &str, store: &dyn KeyValueStore, bucket: &BucketName) -> CaseResult {
    for (name, text) in [("present", "2"), ("again", "2")] {
        expect::equal(what, &read(store, bucket, name).await?.value, &bytes(text))?;
    }
    absent(store, bucket, "absent").await?;
    absent(store, bucket, "deleted").await
}

async fn a_put_follows_the_table_of_revisions(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("revisions")?;
    for (what, name, revision) in wrong_revisions(&*a, &bucket).await? {
        let put = a.put_at(&bucket, &key(name)?, bytes("lost"), revision).await;
        expect::error(&format!("a put at {what}"), put, ErrorKind::Conflict)?;
        unchanged(what, &*b, &bucket).await?;
    }
    Ok(())
}

async fn a_deletion_follows_the_table_of_revisions(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("revisions")?;
    for (what, name, revision) in wrong_revisions(&*a, &bucket).await? {
        let deleted = a.delete(&bucket, &key(name)?, Some(revision)).await;
        expect::error(&format!("a deletion at {what}"), deleted, ErrorKind::Conflict)?;
        unchanged(what, &*b, &bucket).await?;
    }
    Ok(())
}
