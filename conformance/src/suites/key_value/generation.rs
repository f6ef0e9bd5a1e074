//! Generations of buckets: revisions from before an erasure.

use futures_util::StreamExt;
use larder_kernel::{BucketName, ErrorKind, KeyValueStoreExt, PageRequest, Revision};

use super::support::{EVENT_WITHIN, bucket, bytes, holds, key, next, read, set};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

pub(super) type Stores = Handles<dyn larder_kernel::KeyValueStore>;

/// Writes a key, erases the bucket, and writes the key so often that it is at the revision from before, or
/// past it. Returns the revision from before and the new one.
pub(super) async fn written_again(
    stores: &Stores,
    bucket: &BucketName,
    times: usize,
) -> CaseResult<[Revision; 2]> {
    set(&*stores.a, bucket, "one", "1").await?;
    let lost = set(&*stores.a, bucket, "one", "2").await?;
    stores.a.erase().await?;
    let mut now = lost;
    for number in 0..times {
        now = set(&*stores.a, bucket, "one", &format!("new {number}")).await?;
    }
    Ok([lost, now])
}

fn one_generation(revisions: &[Revision]) -> CaseResult {
    let first = expect::some("a revision", revisions.first())?.generation();
    let texts: Vec<String> = revisions.iter().map(|revision| revision.to_text()).collect();
    let one = first.is_some() && revisions.iter().all(|revision| revision.generation() == first);
    expect::that(one, "one generation in each revision", texts)
}

/// KV-049.
pub(super) async fn every_revision_of_a_bucket_names_its_generation(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let Handles { a, b } = &stores;
    let bucket = bucket("named")?;
    let mut events = b.watch(&bucket, "", Revision::ZERO).await?;
    let first = set(&**a, &bucket, "one", "1").await?;
    let mut seen =
        vec![first, set(&**b, &bucket, "two", "2").await?, read(&**b, &bucket, "one").await?.revision];
    seen.extend(a.list(&bucket, "", PageRequest::first(10)).await?.items.iter().map(|item| item.revision));
    a.delete(&bucket, &key("one")?, None).await?;
    b.delete(&bucket, &key("two")?, None).await?;
    seen.push(set(&**b, &bucket, "three", "3").await?);
    seen.push(next(&mut events, "of a key").await?.revision);
    let mut late = a.watch(&bucket, "", first).await?;
    for _ in 0..3 {
        seen.push(next(&mut late, "of a key").await?.revision);
    }
    one_generation(&seen)?;
    a.erase().await?;
    let again = set(&**b, &bucket, "one", "1").await?;
    expect::that(
        again.generation().is_some() && again.generation() != first.generation(),
        "another generation after the erasure",
        again.to_text(),
    )
}

/// KV-050.
pub(super) async fn a_put_at_a_revision_of_another_generation_conflicts(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("conditional")?;
    let [lost, now] = written_again(&stores, &bucket, 2).await?;
    expect::equal("the number of the revision", &now.get(), &lost.get())?;
    let put = stores.b.put_at(&bucket, &key("one")?, bytes("late"), lost).await;
    expect::error("a put at a revision from before the erasure", put, ErrorKind::Conflict)?;
    holds(&*stores.a, &bucket, "one", "new 1", now).await?;
    stores.b.put_at(&bucket, &key("one")?, bytes("number"), Revision::new(now.get())).await?;
    let now = read(&*stores.a, &bucket, "one").await?.revision;
    stores.b.put_at(&bucket, &key("one")?, bytes("named"), now).await.map(drop).map_err(Into::into)
}

/// KV-051.
pub(super) async fn a_deletion_at_a_revision_of_another_generation_conflicts(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("conditional")?;
    let [lost, now] = written_again(&stores, &bucket, 2).await?;
    let deleted = stores.b.delete(&bucket, &key("one")?, Some(lost)).await;
    expect::error("a deletion at a revision from before the erasure", deleted, ErrorKind::Conflict)?;
    holds(&*stores.a, &bucket, "one", "new 1", now).await?;
    expect::equal("a deletion", &stores.b.delete(&bucket, &key("one")?, Some(now)).await?, &true)
}

/// KV-052.
pub(super) async fn watching_from_a_lost_revision_conflicts(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("watched")?;
    let [lost, now] = written_again(&stores, &bucket, 5).await?;
    let beyond = Revision::new(now.get() + 1);
    let absent = BucketName::new("absent")?;
    for (bucket, after) in [
        (&bucket, lost),
        (&bucket, beyond),
        (&bucket, beyond.in_generation(now.generation())),
        (&absent, now),
        (&absent, Revision::new(1)),
    ] {
        let watched = stores.b.watch(bucket, "", after).await.map(drop);
        expect::error(&format!("a watch from {}", after.to_text()), watched, ErrorKind::Conflict)?;
    }
    let mut events = stores.b.watch(&bucket, "", now).await?;
    set(&*stores.a, &bucket, "two", "2").await?;
    expect::equal("the key", &next(&mut events, "of the new key").await?.key, &key("two")?)
}

/// KV-048: the bucket is written past the revision before the watch reads again.
pub(super) async fn a_watch_does_not_continue_in_another_generation(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    let bucket = bucket("watched")?;
    set(&*stores.a, &bucket, "one", "1").await?;
    let last = set(&*stores.a, &bucket, "one", "2").await?;
    let mut delivered = stores.b.watch(&bucket, "", Revision::ZERO).await?;
    next(&mut delivered, "of the key").await?;
    // Neither has delivered a change.
    let resumed = stores.b.watch(&bucket, "", last).await?;
    let bare = stores.b.watch(&bucket, "", Revision::new(last.get())).await?;
    stores.a.erase().await?;
    for number in 0..5 {
        set(&*stores.a, &bucket, &format!("key {number}"), "new").await?;
    }
    for (what, mut events) in [("delivered", delivered), ("resumed", resumed), ("bare", bare)] {
        let Ok(told) = tokio::time::timeout(EVENT_WITHIN, events.next()).await else {
            return Err(expect::broken(format!("Conflict for {what}"), "nothing came"));
        };
        let told = expect::some("Conflict", told)?;
        expect::error(&format!("the watch ({what})"), told, ErrorKind::Conflict)?;
    }
    Ok(())
}
