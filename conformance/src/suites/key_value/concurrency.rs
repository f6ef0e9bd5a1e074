//! Several concurrent workers on both handles.

use std::collections::HashSet;

use bytes::Bytes;
use larder_kernel::{ErrorKind, KeyValueStoreExt, Revision};
use tokio::task::JoinSet;

use super::support::{absent, bucket, bytes, holds, joined, key, read, set, turn};
use crate::case::{CaseResult, Failure};
use crate::context::{Context, Handles};
use crate::expect;

const WORKERS: usize = 8;

pub(super) async fn concurrent_writes_get_distinct_revisions(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("revisions")?;
    let mut workers: JoinSet<CaseResult<(usize, Vec<Revision>)>> = JoinSet::new();
    for worker in 0..WORKERS {
        let (store, bucket) = (turn(&a, &b, worker), bucket.clone());
        workers.spawn(async move {
            let mut revisions = Vec::new();
            for round in 0..5 {
                let text = format!("{worker} {round}");
                revisions.push(set(&*store, &bucket, &format!("key-{worker}"), &text).await?);
            }
            Ok((worker, revisions))
        });
    }
    let mut seen = HashSet::new();
    while let Some(result) = workers.join_next().await {
        let (worker, revisions) = joined(result)?;
        expect::that(revisions.is_sorted_by(|left, right| left < right), "growing revisions", &revisions)?;
        let last = expect::some("the last revision", revisions.last().copied())?;
        holds(&*a, &bucket, &format!("key-{worker}"), &format!("{worker} 4"), last).await?;
        seen.extend(revisions);
    }
    expect::equal("number of different revisions", &seen.len(), &(WORKERS * 5))
}

/// Returns the result of one worker's attempt: the value that it wrote if it won.
fn attempt(result: larder_kernel::Result<Revision>, lost: ErrorKind) -> CaseResult<Option<Revision>> {
    match result {
        Ok(revision) => Ok(Some(revision)),
        Err(error) if error.kind() == lost => Ok(None),
        Err(error) => Err(Failure::from(error)),
    }
}

/// Checks that exactly one worker won and that both handles read its value.
async fn one_won(
    mut workers: JoinSet<CaseResult<(usize, Option<Revision>)>>,
    stores: &Handles<dyn larder_kernel::KeyValueStore>,
    bucket: &larder_kernel::BucketName,
) -> CaseResult {
    let mut winners = Vec::new();
    while let Some(result) = workers.join_next().await {
        let (worker, revision) = joined(result)?;
        winners.extend(revision.map(|revision| (worker, revision)));
    }
    let [(worker, revision)] = winners[..] else {
        return Err(expect::broken("one winner", format!("{winners:?}")));
    };
    for store in [&stores.a, &stores.b] {
        holds(&**store, bucket, "key", &format!("worker {worker}"), revision).await?;
    }
    Ok(())
}

pub(super) async fn one_of_concurrent_puts_at_a_revision_succeeds(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    for round in 0..3 {
        let bucket = bucket(&format!("race-{round}"))?;
        let at = set(&*stores.a, &bucket, "key", "start").await?;
        let mut workers = JoinSet::new();
        for worker in 0..WORKERS {
            let (store, bucket, key) = (turn(&stores.a, &stores.b, worker), bucket.clone(), key("key")?);
            workers.spawn(async move {
                let value = bytes(&format!("worker {worker}"));
                let put = store.put_at(&bucket, &key, value, at).await;
                Ok((worker, attempt(put, ErrorKind::Conflict)?))
            });
        }
        one_won(workers, &stores, &bucket).await?;
    }
    Ok(())
}

pub(super) async fn one_of_concurrent_creations_succeeds(context: Context) -> CaseResult {
    let stores = context.key_value().await?;
    for round in 0..3 {
        let bucket = bucket(&format!("race-{round}"))?;
        let mut workers = JoinSet::new();
        for worker in 0..WORKERS {
            let (store, bucket, key) = (turn(&stores.a, &stores.b, worker), bucket.clone(), key("key")?);
            workers.spawn(async move {
                let created = store.create(&bucket, &key, bytes(&format!("worker {worker}"))).await;
                Ok((worker, attempt(created, ErrorKind::Conflict)?))
            });
        }
        one_won(workers, &stores, &bucket).await?;
    }
    Ok(())
}

pub(super) async fn one_of_concurrent_deletions_at_a_revision_succeeds(context: Context) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("race")?;
    let at = set(&*a, &bucket, "key", "start").await?;
    let mut workers: JoinSet<CaseResult<bool>> = JoinSet::new();
    for worker in 0..WORKERS {
        let (store, bucket, key) = (turn(&a, &b, worker), bucket.clone(), key("key")?);
        workers.spawn(async move {
            match store.delete(&bucket, &key, Some(at)).await {
                Ok(there) => Ok(there),
                Err(error) if error.kind() == ErrorKind::Conflict => Ok(false),
                Err(error) => Err(error.into()),
            }
        });
    }
    let mut deletions = 0;
    while let Some(result) = workers.join_next().await {
        deletions += usize::from(joined(result)?);
    }
    expect::equal("number of successful deletions", &deletions, &1)?;
    absent(&*b, &bucket, "key").await
}

pub(super) async fn counters_lose_no_update(context: Context) -> CaseResult {
    const ROUNDS: usize = 5;
    /// More attempts than any worker needs: each failed attempt means that another worker succeeded.
    const ATTEMPTS_MAX: usize = WORKERS * ROUNDS * 4;
    let Handles { a, b } = context.key_value().await?;
    let bucket = bucket("counters")?;
    set(&*a, &bucket, "counter", "0").await?;
    let mut workers: JoinSet<CaseResult> = JoinSet::new();
    for worker in 0..WORKERS {
        let (store, bucket, key) = (turn(&a, &b, worker), bucket.clone(), key("counter")?);
        workers.spawn(async move {
            let mut done = 0;
            for _ in 0..ATTEMPTS_MAX {
                let entry = read(&*store, &bucket, "counter").await?;
                let more = (number(&entry.value)? + 1).to_string();
                // Otherwise a store that never waits would let no other worker write in between.
                tokio::task::yield_now().await;
                match store.put_at(&bucket, &key, Bytes::from(more), entry.revision).await {
                    Ok(_) => done += 1,
                    Err(error) if error.kind() == ErrorKind::Conflict => {}
                    Err(error) => return Err(error.into()),
                }
                if done == ROUNDS {
                    return Ok(());
                }
            }
            Err(expect::broken("some worker to get on", format!("{ATTEMPTS_MAX} attempts in vain")))
        });
    }
    while let Some(result) = workers.join_next().await {
        joined(result)?;
    }
    let counted = number(&read(&*b, &bucket, "counter").await?.value)?;
    expect::equal("the counter", &counted, &(WORKERS * ROUNDS))
}

fn number(value: &[u8]) -> CaseResult<usize> {
    let text = std::str::from_utf8(value).unwrap_or_default();
    text.parse().map_err(|_| expect::broken("the digits of a counter", format!("{text:?}")))
}
