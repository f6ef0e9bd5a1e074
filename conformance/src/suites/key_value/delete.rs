//! Deletions of keys.

use larder_kernel::{ErrorKind, KeyValueStoreExt, Revision};

use super::support::{absent, bucket, bytes, holds, key, listed, names, set};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

pub(super) async fn a_deleted_key_reads_as_absent(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("deleted")?;
    set(&*a, &bucket, "key", "1").await?;
    set(&*a, &bucket, "empty", "").await?;
    for name in ["key", "empty"] {
        expect::equal("the reported existence", &a.delete(&bucket, &key(name)?, None).await?, &true)?;
        absent(&*b, &bucket, name).await?;
        absent(&*a, &bucket, name).await?;
    }
    Ok(())
}

pub(super) async fn a_key_at_the_revision_is_deleted(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("deleted")?;
    let revision = set(&*a, &bucket, "key", "1").await?;
    set(&*a, &bucket, "other", "1").await?;
    expect::equal("the reported existence", &b.delete(&bucket, &key("key")?, Some(revision)).await?, &true)?;
    absent(&*a, &bucket, "key").await
}

pub(super) async fn deleting_an_absent_key_changes_nothing(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("deleted")?;
    set(&*a, &bucket, "key", "1").await?;
    let other = set(&*a, &bucket, "other", "1").await?;
    a.delete(&bucket, &key("key")?, None).await?;
    let before = listed(&*a, &bucket, "", 100).await?;
    let mut events = a.watch(&bucket, "", Revision::ZERO).await?;
    for name in ["key", "never", "ke", "othe"] {
        let there = b.delete(&bucket, &key(name)?, None).await?;
        expect::equal("the reported existence", &there, &false)?;
    }
    let elsewhere = super::support::bucket("nowhere")?;
    expect::equal("the reported existence", &b.delete(&elsewhere, &key("key")?, None).await?, &false)?;
    expect::equal("the keys", &listed(&*a, &bucket, "", 100).await?, &before)?;
    holds(&*a, &bucket, "other", "1", other).await?;
    // It creates no event either: the next write is the event after the first deletion.
    let last = set(&*b, &bucket, "last", "1").await?;
    let seen = super::support::events_until(&mut events, last).await?;
    let deletions: Vec<_> =
        seen.iter().filter(|event| matches!(event.kind, larder_kernel::KeyValueEventKind::Deleted)).collect();
    expect::that(deletions.len() == 1, "one deletion among the events", &deletions)?;
    expect::equal("the buckets", &super::support::buckets(&*a, 10).await?.len(), &1)
}

pub(super) async fn a_deletion_at_another_revision_conflicts(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("deleted")?;
    let old = set(&*a, &bucket, "key", "1").await?;
    let now = set(&*a, &bucket, "key", "2").await?;
    let other = set(&*a, &bucket, "other", "1").await?;
    for at in [old, other, Revision::ZERO, Revision::new(now.get() + 1), Revision::new(u64::MAX)] {
        let deleted = b.delete(&bucket, &key("key")?, Some(at)).await;
        expect::error(&format!("a deletion at {at} of a key at {now}"), deleted, ErrorKind::Conflict)?;
        holds(&*a, &bucket, "key", "2", now).await?;
    }
    holds(&*b, &bucket, "other", "1", other).await
}

pub(super) async fn a_deletion_at_a_revision_of_an_absent_key_conflicts(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("deleted")?;
    let revision = set(&*a, &bucket, "key", "1").await?;
    a.delete(&bucket, &key("key")?, Some(revision)).await?;
    for at in [Revision::ZERO, revision, Revision::new(revision.get() + 1)] {
        for name in ["key", "never"] {
            let deleted = b.delete(&bucket, &key(name)?, Some(at)).await;
            expect::error(&format!("a deletion at {at} of an absent key"), deleted, ErrorKind::Conflict)?;
        }
    }
    let elsewhere = super::support::bucket("nowhere")?;
    let deleted = b.delete(&elsewhere, &key("key")?, Some(revision)).await;
    expect::error("a deletion at a revision in an absent bucket", deleted, ErrorKind::Conflict)?;
    Ok(())
}

pub(super) async fn a_key_written_again_gets_a_greater_revision(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("again")?;
    let mut before = Revision::ZERO;
    for round in 0..4 {
        // The bucket is empty in between, which must not reset its counter.
        let revision = if round % 2 == 0 {
            set(&*a, &bucket, "key", "again").await?
        } else {
            b.create(&bucket, &key("key")?, bytes("again")).await?
        };
        expect::that(revision > before, format!("a revision over {before}"), revision)?;
        before = Revision::new(revision.get());
        a.delete(&bucket, &key("key")?, None).await?;
    }
    let stale = b.put_at(&bucket, &key("key")?, bytes("stale"), before).await;
    expect::error("a put at the revision from before the deletion", stale, ErrorKind::Conflict)?;
    Ok(())
}

pub(super) async fn keys_that_begin_with_a_deleted_one_remain(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("prefixes")?;
    let all = ["user", "user%", "user/1", "user1", "use", "user:1", "userr"];
    for name in all {
        set(&*a, &bucket, name, name).await?;
    }
    b.delete(&bucket, &key("user")?, None).await?;
    b.delete(&bucket, &key("user%")?, None).await?;
    let mut rest: Vec<String> = all
        .iter()
        .filter(|name| !matches!(**name, "user" | "user%"))
        .map(|name| (*name).to_owned())
        .collect();
    rest.sort_unstable();
    expect::equal("the keys that stay", &names(&*a, &bucket, "").await?, &rest)
}
