//! One rule, many places: prefixes, conditions and missing blobs mean the same in every method that evaluates
//! them.

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{
    BlobCondition, BlobKey, BlobPutOptions, BlobStore, BlobStoreExt, Capability, ETag, ErrorKind,
};

use super::key;
use crate::case::{Case, CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;

/// Keys that a pattern, a delimiter or a computed bound takes for each other.
const NAMES: &[&str] = &[
    "A",
    "a",
    "a!",
    "a b",
    "a%2Fb",
    "a%b",
    "a*b",
    "a+b",
    "a.b",
    "a/b",
    "a/b/c",
    "a0",
    "a[b",
    "a_b",
    "aa",
    "ae\u{301}",
    "axb",
    "a\u{e9}",
    "a\u{10ffff}",
    "b",
    "b/",
    "\u{e9}",
];

pub(super) fn cases() -> Vec<Case> {
    vec![
        // Nearly 200 listings, each of which may read the whole bucket.
        case!(Blobs, "BLOB-032", prefix_and_after_combine).with_many_calls(),
        case!(Blobs, "BLOB-010", matches_follows_the_table_of_etags).needing(Capability::BlobIfMatch),
        case!(Blobs, "BLOB-007", absent_follows_the_table_of_blobs).needing(Capability::BlobCreateOnly),
        case!(Blobs, "BLOB-020", every_read_of_a_missing_blob_is_not_found),
    ]
}

/// Returns the valid keys of the table, in byte order.
fn keys() -> Vec<BlobKey> {
    let mut keys: Vec<BlobKey> = NAMES.iter().filter_map(|name| BlobKey::new(name).ok()).collect();
    keys.sort_unstable();
    keys
}

async fn prefix_and_after_combine(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let keys = keys();
    for key in &keys {
        a.put_bytes(key, Bytes::from_static(b"1")).await?;
    }
    let missing = ["a/a", "a~", "0", "z"].map(key).into_iter().collect::<CaseResult<Vec<_>>>()?;
    for prefix in ["", "a", "a/", "a/b", "a%", "a_", "A", "b", "z"] {
        for after in keys.iter().chain(&missing).map(Some).chain([None]) {
            let found: Vec<_> = b.list(prefix, after).await?.map_ok(|entry| entry.key).try_collect().await?;
            let listed =
                |key: &&BlobKey| key.as_str().starts_with(prefix) && after.is_none_or(|after| *key > after);
            let expected: Vec<_> = keys.iter().filter(listed).cloned().collect();
            expect::equal(&format!("keys with prefix {prefix:?} after {after:?}"), &found, &expected)?;
        }
    }
    Ok(())
}

async fn tag(store: &dyn BlobStore, name: &str, text: &'static str) -> CaseResult<ETag> {
    Ok(store.put_bytes(&key(name)?, Bytes::from_static(text.as_bytes())).await?.etag)
}

async fn matches_follows_the_table_of_etags(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let older = tag(&*a, "present", "first").await?;
    let current = tag(&*a, "present", "second").await?;
    let other = tag(&*a, "other", "another").await?;
    let deleted = tag(&*a, "deleted", "gone").await?;
    a.delete(&key("deleted")?).await?;
    let table = [
        ("an older version", "present", &older),
        ("another blob's version", "present", &other),
        ("a version of a missing blob", "absent", &current),
        ("the last version of a deleted blob", "deleted", &deleted),
        ("a version at a longer key", "present/longer", &current),
        ("a version at a shorter key", "presen", &current),
    ];
    for (what, name, etag) in table {
        let options = BlobPutOptions::default().with_condition(BlobCondition::Matches(etag.clone()));
        let put = a.put(&key(name)?, "lost".into(), options).await;
        expect::error(&format!("a write that matches {what}"), put, ErrorKind::Conflict)?;
        let kept = b.get_bytes(&key("present")?).await?;
        expect::equal("the blob", &kept, &Bytes::from_static(b"second"))?;
        if name != "present" {
            expect::error(&format!("{what}: the blob"), b.head(&key(name)?).await, ErrorKind::NotFound)?;
        }
    }
    Ok(())
}

async fn absent_follows_the_table_of_blobs(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let create = BlobPutOptions::default().with_condition(BlobCondition::Absent);
    a.put_bytes(&key("empty")?, Bytes::new()).await?;
    a.put_bytes(&key("full")?, Bytes::from_static(b"1")).await?;
    a.copy(&key("full")?, &key("copied")?).await?;
    a.put(&key("created")?, "1".into(), create.clone()).await?;
    for name in ["empty", "full", "copied", "created"] {
        let before = b.get_bytes(&key(name)?).await?;
        let put = a.put(&key(name)?, "lost".into(), create.clone()).await;
        expect::error(&format!("creating the blob {name}"), put, ErrorKind::Conflict)?;
        expect::equal(name, &b.get_bytes(&key(name)?).await?, &before)?;
        a.delete(&key(name)?).await?;
        a.put(&key(name)?, "again".into(), create.clone()).await?;
    }
    for name in ["full/longer", "ful", "Full"] {
        a.put(&key(name)?, "1".into(), create.clone()).await?;
    }
    Ok(())
}

async fn every_read_of_a_missing_blob_is_not_found(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    a.put_bytes(&key("there")?, Bytes::from_static(b"1")).await?;
    a.put_bytes(&key("deleted")?, Bytes::from_static(b"1")).await?;
    a.delete(&key("deleted")?).await?;
    for name in ["never", "deleted", "there/longer", "ther", "There"] {
        let missing = key(name)?;
        let results = [
            ("get", b.get(&missing, Default::default()).await.map(drop)),
            ("head", b.head(&missing).await.map(drop)),
            ("copy", b.copy(&missing, &key("target")?).await.map(drop)),
            ("copy to itself", b.copy(&missing, &missing).await.map(drop)),
        ];
        for (method, result) in results {
            expect::error(&format!("{method} of {name}"), result, ErrorKind::NotFound)?;
        }
        expect::equal("a deletion", &b.delete(&missing).await?, &false)?;
    }
    expect::error("the target", b.head(&key("target")?).await, ErrorKind::NotFound).map(drop)
}
