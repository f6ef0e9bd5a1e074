//! Many blobs.

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{BlobKey, BlobStore, BlobStoreExt, Contract, ErrorKind};

use super::key;
use crate::case::{CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::many::{Row, each};

const CONTRACT: Contract = Contract::Blobs;

pub(crate) fn rows() -> Vec<Row> {
    vec![
        ("put", case!(Blobs, "BLOB-033", many_written_blobs_are_listed)),
        ("list", case!(Blobs, "BLOB-030", a_prefix_selects_from_many_blobs)),
        ("list", case!(Blobs, "BLOB-032", a_listing_of_many_blobs_begins_after_a_key)),
        ("erase", case!(Blobs, "STORE-006", erasing_many_blobs_leaves_none)),
    ]
}

/// Returns the key of a blob: the even ones begin with `left`, the last one with `z`.
fn name(number: usize, many: usize) -> String {
    let side = match number {
        last if last + 1 == many => "z",
        even if even.is_multiple_of(2) => "left",
        _ => "right",
    };
    format!("{side}/{number:06}")
}

fn sorted(many: usize, prefix: &str) -> Vec<String> {
    let all = (0..many).map(|number| name(number, many)).filter(|name| name.starts_with(prefix));
    let mut all: Vec<String> = all.collect();
    all.sort_unstable();
    all
}

async fn fill(store: &dyn BlobStore, many: usize) -> CaseResult {
    each(0..many, |number| async move {
        let name = name(number, many);
        store.put_bytes(&key(&name)?, Bytes::from(name)).await?;
        Ok(())
    })
    .await
}

async fn large(context: &Context) -> CaseResult<(Handles<dyn BlobStore>, usize)> {
    let many = context.many(CONTRACT);
    let load = |context: Context| async move { fill(&*context.blobs().await?.a, many).await };
    Ok((context.large(CONTRACT, "many", load).await?.blobs().await?, many))
}

async fn listed(store: &dyn BlobStore, prefix: &str, after: Option<&BlobKey>) -> CaseResult<Vec<String>> {
    let entries = store.list(prefix, after).await?;
    Ok(entries.map_ok(|entry| entry.key.as_str().to_owned()).try_collect().await?)
}

fn are(what: &str, found: &[String], expected: &[String]) -> CaseResult {
    expect::equal(&format!("{what}: the number of keys"), &found.len(), &expected.len())?;
    expect::that(found == expected, format!("{what}: every key in byte order"), found.first())
}

async fn many_written_blobs_are_listed(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    are("all blobs", &listed(&*stores.b, "", None).await?, &sorted(many, ""))
}

async fn a_prefix_selects_from_many_blobs(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    for prefix in ["left/", "right", "z/", "none"] {
        are(prefix, &listed(&*stores.b, prefix, None).await?, &sorted(many, prefix))?;
    }
    Ok(())
}

async fn a_listing_of_many_blobs_begins_after_a_key(context: Context) -> CaseResult {
    let (stores, many) = large(&context).await?;
    let all = sorted(many, "");
    for at in [0, 1_001, many / 2, many - 2, many - 1] {
        let found = listed(&*stores.b, "", Some(&key(&all[at])?)).await?;
        are(&format!("after key {at}"), &found, &all[at + 1..])?;
    }
    Ok(())
}

async fn erasing_many_blobs_leaves_none(context: Context) -> CaseResult {
    let (Handles { a, b }, many) = (context.blobs().await?, context.many(CONTRACT));
    fill(&*a, many).await?;
    a.erase().await?;
    are("the blobs", &listed(&*b, "", None).await?, &[])?;
    for number in [0, many / 2, many - 1] {
        let head = b.head(&key(&name(number, many))?).await;
        expect::error("an erased blob", head, ErrorKind::NotFound)?;
    }
    Ok(())
}
