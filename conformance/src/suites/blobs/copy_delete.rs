//! Copies and deletions.

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{BlobEntry, BlobPutOptions, BlobStoreExt, ErrorKind};
use tokio::task::JoinSet;

use super::{dump::dump, key, noise};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;

fn described() -> BlobPutOptions {
    BlobPutOptions::default().with_content_type("image/png").with_metadata("origin", "camera")
}

pub(super) async fn a_copy_is_equal_and_independent(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let (source, target) = (key("source")?, key("copies/target")?);
    let bytes = Bytes::from(noise(600_000, context.random(0)));
    a.put(&source, bytes.clone().into(), described()).await?;
    let answer = a.copy(&source, &target).await?;
    expect::equal("the key answered", &answer.key, &target)?;
    let head = b.head(&target).await?;
    expect::equal("content type", &head.content_type.as_deref(), &Some("image/png"))?;
    expect::equal("user metadata", &head.metadata, &described().metadata)?;
    expect::that(b.get_bytes(&target).await? == bytes, "the source's bytes", "others")?;
    a.put_bytes(&source, Bytes::from_static(b"changed")).await?;
    expect::that(b.get_bytes(&target).await? == bytes, "the copy as it was", "changed with its source")?;
    a.delete(&source).await?;
    expect::that(b.get_bytes(&target).await? == bytes, "the copy as it was", "missing, like its source")
}

pub(super) async fn copying_a_missing_blob_is_not_found(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let target = key("target")?;
    a.put_bytes(&target, Bytes::from_static(b"kept")).await?;
    let before = dump(&*b).await?;
    expect::error("copying nothing", a.copy(&key("absent")?, &target).await, ErrorKind::NotFound)?;
    expect::error(
        "copying a missing blob \
                   again",
        a.copy(&key("absent")?, &key("new")?).await,
        ErrorKind::NotFound,
    )?;
    expect::equal("everything stored", &dump(&*b).await?, &before)
}

pub(super) async fn a_copy_replaces_its_target_completely(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let (source, target) = (key("source")?, key("target")?);
    a.put(&target, noise(90_000, 7).into(), described()).await?;
    a.put_bytes(&source, Bytes::from_static(b"new")).await?;
    a.copy(&source, &target).await?;
    let head = b.head(&target).await?;
    expect::equal(
        "size, type and metadata",
        &(head.size, head.content_type, head.metadata.len()),
        &(3, None, 0),
    )?;
    expect::equal("bytes", &b.get_bytes(&target).await?, &Bytes::from_static(b"new"))
}

pub(super) async fn copying_onto_itself_changes_nothing(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let key = key("self")?;
    a.put(&key, "bytes".into(), described()).await?;
    a.copy(&key, &key).await?;
    let head = b.head(&key).await?;
    expect::equal("content type", &head.content_type.as_deref(), &Some("image/png"))?;
    expect::equal("user metadata", &head.metadata, &described().metadata)?;
    expect::equal("bytes", &b.get_bytes(&key).await?, &Bytes::from_static(b"bytes"))
}

pub(super) async fn a_deleted_blob_is_not_found(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let key = key("brief")?;
    a.put_bytes(&key, Bytes::from_static(b"1")).await?;
    expect::equal("the reported existence", &b.delete(&key).await?, &true)?;
    expect::error("head", a.head(&key).await, ErrorKind::NotFound)?;
    expect::error("reading", a.get_bytes(&key).await, ErrorKind::NotFound)?;
    let listed: Vec<BlobEntry> = a.list("", None).await?.try_collect().await?;
    expect::equal("listed", &listed, &Vec::new())?;
    a.put_bytes(&key, Bytes::from_static(b"2")).await?;
    expect::equal("written again", &b.get_bytes(&key).await?, &Bytes::from_static(b"2"))
}

pub(super) async fn deleting_a_missing_blob_returns_false(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    a.put_bytes(&key("there/below")?, Bytes::from_static(b"1")).await?;
    let before = dump(&*b).await?;
    for name in ["absent", "there", "there/below/more"] {
        expect::equal("the reported existence", &a.delete(&key(name)?).await?, &false)?;
    }
    expect::equal("everything stored", &dump(&*b).await?, &before)
}

pub(super) async fn deleting_keeps_longer_keys(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    for name in ["p", "p/q", "pq", "p.q", "P"] {
        a.put_bytes(&key(name)?, Bytes::from(name)).await?;
    }
    expect::equal("the reported existence", &a.delete(&key("p")?).await?, &true)?;
    for name in ["p/q", "pq", "p.q", "P"] {
        expect::equal("a blob that stays", &b.get_bytes(&key(name)?).await?, &Bytes::from(name))?;
    }
    Ok(())
}

pub(super) async fn concurrent_deletions_all_succeed(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    for round in 0..8 {
        let name = key(&format!("gone/{round}"))?;
        a.put_bytes(&name, Bytes::from_static(b"1")).await?;
        a.put_bytes(&key(&format!("gone/{round}/stays"))?, Bytes::from_static(b"2")).await?;
        let mut deletions = JoinSet::new();
        for deletion in 0..8 {
            let (store, name) = (if deletion % 2 == 0 { a.clone() } else { b.clone() }, name.clone());
            deletions.spawn(async move { store.delete(&name).await });
        }
        let mut found = 0;
        for deleted in deletions.join_all().await {
            found += usize::from(deleted?);
        }
        expect::that(found > 0, "at least one that found the blob", found)?;
        expect::error("head", a.head(&name).await, ErrorKind::NotFound)?;
        expect::equal("deleting it again", &b.delete(&name).await?, &false)?;
    }
    let listed: Vec<BlobEntry> = b.list("", None).await?.try_collect().await?;
    expect::equal("number of remaining blobs", &listed.len(), &8)
}
