//! Listing.

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{
    BlobBody, BlobEntry, BlobKey, BlobPutOptions, BlobStore, BlobStoreExt, Error, ErrorKind,
};

use super::key;
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::background::BackgroundTask;

const NAMES: [&str; 14] =
    ["A", "a", "a!", "a%2Fb", "a.b", "a/b", "a/b/c", "a/bb", "a0", "a_b", "b", "b%", "zz/top", "é"];

async fn fill(store: &dyn BlobStore) -> CaseResult {
    // Not in order, so that a listing in order of writing is detected.
    for name in NAMES.iter().rev().step_by(2).chain(NAMES.iter().rev().skip(1).step_by(2)) {
        store.put_bytes(&key(name)?, Bytes::from(*name)).await?;
    }
    Ok(())
}

async fn keys(store: &dyn BlobStore, prefix: &str, after: Option<&BlobKey>) -> CaseResult<Vec<String>> {
    let entries: Vec<BlobEntry> = store.list(prefix, after).await?.try_collect().await?;
    Ok(entries.into_iter().map(|entry| entry.key.as_str().to_owned()).collect())
}

fn wanted(keep: impl Fn(&str) -> bool) -> Vec<String> {
    NAMES.iter().filter(|name| keep(name)).map(|name| (*name).to_owned()).collect()
}

pub(super) async fn a_prefix_selects_by_bytes(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    fill(&*a).await?;
    let prefixes = [
        "", "a", "a/", "a/b", "a/b/", "a%", "a_", "b%", "A", "z", "zz/", "zz/t", "é", "none", "a/b/c/d", "*",
        "/",
    ];
    for prefix in prefixes {
        let got = keys(&*b, prefix, None).await?;
        expect::equal(
            &format!("keys that begin with {prefix:?}"),
            &got,
            &wanted(|name| name.starts_with(prefix)),
        )?;
    }
    Ok(())
}

pub(super) async fn keys_are_listed_in_byte_order(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    fill(&*a).await?;
    let got = keys(&*b, "", None).await?;
    let mut sorted = got.clone();
    sorted.sort_unstable();
    expect::equal("the order", &got, &sorted)?;
    expect::equal("all keys", &got.len(), &NAMES.len())
}

pub(super) async fn after_skips_up_to_the_key(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    fill(&*a).await?;
    for after in ["A", "a", "a/a", "a/b", "a/b/c", "a/b/d", "a0", "b", "zz", "zz/top", "é", "ü"] {
        let after_key = key(after)?;
        let got = keys(&*b, "", Some(&after_key)).await?;
        expect::equal(&format!("keys after {after:?}"), &got, &wanted(|name| name > after))?;
        let got = keys(&*b, "a/", Some(&after_key)).await?;
        let both = wanted(|name| name > after && name.starts_with("a/"));
        expect::equal(&format!("keys in a/ after {after:?}"), &got, &both)?;
    }
    Ok(())
}

pub(super) async fn a_listing_misses_no_blob_that_stays(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    for index in 0..60 {
        a.put_bytes(&key(&format!("stay/{index:03}"))?, Bytes::from_static(b"1")).await?;
        a.put_bytes(&key(&format!("go/{index:03}"))?, Bytes::from_static(b"1")).await?;
    }
    let churn = BackgroundTask::start(async move {
        for index in 0..60 {
            a.delete(&BlobKey::new(format!("go/{index:03}"))?).await?;
            a.put_bytes(&BlobKey::new(format!("stay/{index:03}-new"))?, Bytes::from_static(b"2")).await?;
        }
        Ok::<_, Error>(())
    });
    let mut rounds = 0;
    while rounds == 0 || !churn.is_finished() {
        let got = keys(&*b, "stay/", None).await?;
        let kept = got.iter().filter(|name| name.len() == "stay/000".len()).count();
        expect::equal("blobs that stay, in a listing while others come and go", &kept, &60)?;
        rounds += 1;
        // Otherwise a store that never waits would block the concurrent writer.
        tokio::task::yield_now().await;
    }
    churn.end().await??;
    Ok(())
}

pub(super) async fn only_finished_blobs_are_listed(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    a.put_bytes(&key("kept")?, Bytes::from_static(b"1")).await?;
    a.put_bytes(&key("deleted")?, Bytes::from_static(b"1")).await?;
    a.delete(&key("deleted")?).await?;
    let broken =
        [Ok(Bytes::from_static(b"part")), Err(Error::new(ErrorKind::Conflict, "case.stream", "broke off"))];
    let body = BlobBody::stream(futures_util::stream::iter(broken));
    let failed = a.put(&key("failed")?, body, BlobPutOptions::default()).await;
    expect::error("a stream that fails", failed, ErrorKind::Conflict)?;
    let (sender, receiver) = tokio::sync::oneshot::channel::<Bytes>();
    let pieces = futures_util::stream::iter([Ok(Bytes::from_static(b"half"))]);
    let last = futures_util::stream::once(async { Ok(receiver.await.unwrap_or_default()) });
    let body = BlobBody::stream(futures_util::StreamExt::chain(pieces, last));
    let (writer, open) = (a.clone(), key("unfinished")?);
    let writing =
        BackgroundTask::start(async move { writer.put(&open, body, BlobPutOptions::default()).await });
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    expect::equal(
        "listed while a write is in progress",
        &keys(&*b, "", None).await?,
        &vec!["kept".to_owned()],
    )?;
    expect::that(
        sender.send(Bytes::from_static(b"done")).is_ok(),
        "the write to be in progress",
        "it had ended",
    )?;
    writing.end().await??;
    let both = vec!["kept".to_owned(), "unfinished".to_owned()];
    expect::equal("listed once it is finished", &keys(&*b, "", None).await?, &both)
}

pub(super) async fn items_have_size_and_etag(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    fill(&*a).await?;
    let entries: Vec<BlobEntry> = b.list("", None).await?.try_collect().await?;
    for entry in entries {
        let head = b.head(&entry.key).await?;
        expect::equal("size", &entry.size, &(entry.key.as_str().len() as u64))?;
        expect::equal("size and tag of head", &(head.size, head.etag), &(entry.size, entry.etag))?;
    }
    Ok(())
}
