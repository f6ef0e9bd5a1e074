//! Conditional writes.

use std::time::{Duration, Instant};

use bytes::Bytes;
use larder_kernel::{
    BlobCondition, BlobInfo, BlobPutOptions, BlobStoreExt, Capability, Contract, ETag, Error, ErrorKind,
};
use tokio::task::{JoinError, JoinSet};

use super::{dump::dump, key};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

fn when(condition: BlobCondition) -> BlobPutOptions {
    BlobPutOptions::default().with_condition(condition)
}

pub(super) async fn absent_refuses_an_existing_blob(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let key = key("once")?;
    a.put(&key, "first".into(), when(BlobCondition::Absent)).await?;
    let before = dump(&*b).await?;
    let again = b.put(&key, "second".into(), when(BlobCondition::Absent)).await;
    expect::error("writing over an existing blob", again, ErrorKind::Conflict)?;
    expect::equal("everything stored", &dump(&*a).await?, &before)?;
    a.delete(&key).await?;
    b.put(&key, "third".into(), when(BlobCondition::Absent)).await?;
    expect::equal("after a deletion", &a.get_bytes(&key).await?, &Bytes::from_static(b"third"))
}

pub(super) async fn one_of_concurrent_creations_succeeds(context: Context) -> CaseResult {
    race(&context, BlobCondition::Absent).await
}

pub(super) async fn one_of_concurrent_replacements_succeeds(context: Context) -> CaseResult {
    let Handles { a, .. } = context.blobs().await?;
    let etag = a.put_bytes(&key("raced")?, Bytes::from_static(b"before")).await?.etag;
    race(&context, BlobCondition::Matches(etag)).await
}

/// Runs eight writers with the same condition: one succeeds and its bytes stay, and the others fail.
async fn race(context: &Context, condition: BlobCondition) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let key = key("raced")?;
    let mut writers = JoinSet::new();
    for writer in 0..8_u8 {
        let (store, key, options) =
            (if writer % 2 == 0 { a.clone() } else { b.clone() }, key.clone(), when(condition.clone()));
        writers.spawn(async move { (writer, store.put(&key, vec![writer; 50_000].into(), options).await) });
    }
    let mut winners = Vec::new();
    for (writer, result) in writers.join_all().await {
        match result {
            Ok(_) => winners.push(writer),
            refused => {
                expect::error("a writer that lost", refused, ErrorKind::Conflict)?;
            }
        }
    }
    expect::equal("number of successes", &winners.len(), &1)?;
    let bytes = b.get_bytes(&key).await?;
    let whole = bytes.len() == 50_000 && bytes.iter().all(|byte| *byte == winners[0]);
    expect::that(whole, "the winner's bytes", format!("{} bytes of another", bytes.len()))
}

/// Checks that a replacement and a deletion of one version are ordered: if both succeed, the blob is deleted.
pub(super) async fn a_replacement_during_a_deletion_restores_nothing(context: Context) -> CaseResult {
    const ROUNDS: u32 = 80;
    let Handles { a, b } = context.blobs().await?;
    let mut takes = Duration::ZERO;
    for round in 0..ROUNDS {
        let key = key(&format!("raced-{round}"))?;
        let etag = a.put_bytes(&key, Bytes::from_static(b"1")).await?.etag;
        let (writer, written) = (a.clone(), key.clone());
        let begun = Instant::now();
        let writing = tokio::spawn(async move {
            writer.put(&written, "2".into(), when(BlobCondition::Matches(etag))).await
        });
        if round == 0 {
            // Runs alone first, to measure its duration.
            joined(writing.await)?;
            takes = begun.elapsed().min(Duration::from_millis(20));
            continue;
        }
        // Starts later in each round, so that some deletion falls between the comparison and the write.
        while begun.elapsed() < takes * round / ROUNDS {
            tokio::task::yield_now().await;
        }
        expect::that(b.delete(&key).await?, "a deletion that found the blob", "none")?;
        let replaced = joined(writing.await)?;
        let left = b.get_bytes(&key).await;
        expect::error(
            &format!("a deleted blob, replaced just before: {replaced}"),
            left,
            ErrorKind::NotFound,
        )?;
    }
    Ok(())
}

/// Returns `true` if a replacement succeeded; any error except `Conflict` is a failure.
fn joined(written: Result<Result<BlobInfo, Error>, JoinError>) -> CaseResult<bool> {
    match written? {
        Ok(_) => Ok(true),
        refused => {
            expect::error("a replacement of a deleted blob", refused, ErrorKind::Conflict).map(|_| false)
        }
    }
}

pub(super) async fn matches_replaces_the_matching_version(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let key = key("versioned")?;
    let first = a.put_bytes(&key, Bytes::from_static(b"1")).await?;
    let second = b.put(&key, "2".into(), when(BlobCondition::Matches(first.etag.clone()))).await?;
    expect::equal("bytes", &a.get_bytes(&key).await?, &Bytes::from_static(b"2"))?;
    expect::that(second.etag != first.etag, "another tag", &second.etag)?;
    a.put(&key, "3".into(), when(BlobCondition::Matches(second.etag))).await?;
    expect::equal("bytes", &b.get_bytes(&key).await?, &Bytes::from_static(b"3"))
}

pub(super) async fn matches_refuses_another_version_and_a_missing_blob(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let (kept, absent) = (key("kept")?, key("absent")?);
    let stale = a.put_bytes(&kept, Bytes::from_static(b"1")).await?.etag;
    a.put_bytes(&kept, Bytes::from_static(b"2")).await?;
    let before = dump(&*b).await?;
    for (key, etag) in [(&kept, stale.clone()), (&kept, ETag::new("\"no-such-tag\"")?), (&absent, stale)] {
        let result = b.put(key, "lost".into(), when(BlobCondition::Matches(etag))).await;
        expect::error("writing over another version", result, ErrorKind::Conflict)?;
    }
    expect::equal("everything stored", &dump(&*a).await?, &before)
}

pub(super) async fn an_undeclared_condition_is_unsupported(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let key = key("conditional")?;
    let declared = context.open().await?.capabilities(Contract::Blobs).unwrap_or_default();
    let etag = a.put_bytes(&key, Bytes::from_static(b"1")).await?.etag;
    let before = dump(&*b).await?;
    for (capability, condition) in [
        (Capability::BlobCreateOnly, BlobCondition::Absent),
        (Capability::BlobIfMatch, BlobCondition::Matches(etag)),
    ] {
        let result = a.put(&key, "2".into(), when(condition)).await;
        if !declared.has(capability) {
            expect::error("a condition that is not declared", result, ErrorKind::Unsupported)?;
            expect::equal("everything stored", &dump(&*b).await?, &before)?;
        } else if capability == Capability::BlobCreateOnly {
            // The capability is declared: the store must apply the condition, and not return Unsupported or
            // ignore it.
            expect::error("a declared condition that does not hold", result, ErrorKind::Conflict)?;
            expect::equal("everything stored", &dump(&*b).await?, &before)?;
        } else {
            result?;
            expect::equal(
                "bytes after a declared condition",
                &b.get_bytes(&key).await?,
                &Bytes::from_static(b"2"),
            )?;
        }
    }
    Ok(())
}
