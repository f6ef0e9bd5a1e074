//! Earlier versions: which exist, and how they are listed.

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{
    BlobBody, BlobCondition, BlobEntry, BlobGetOptions, BlobKey, BlobPutOptions, BlobRead, BlobStore,
    BlobStoreExt, BlobVersion, BlobVersionId, Capability, Contract, Error, ErrorKind, RenameMode,
};
use tokio::task::JoinSet;

use super::{dump::dump, key, noise};
use crate::case::{Case, CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;

pub(super) fn cases() -> Vec<Case> {
    let cases = vec![
        case!(Blobs, "BLOB-070", replaced_and_deleted_blobs_stay_as_versions),
        case!(Blobs, "BLOB-071", versions_are_listed_newest_first),
        case!(Blobs, "BLOB-072", a_version_keeps_its_id_and_its_properties),
        case!(Blobs, "BLOB-073", versions_belong_to_one_key),
        case!(Blobs, "BLOB-074", a_call_without_effect_adds_no_version),
        case!(Blobs, "BLOB-075", every_concurrent_write_leaves_a_version),
        case!(Blobs, "BLOB-076", a_rename_moves_the_current_version_only),
    ];
    let mut cases: Vec<Case> = cases.into_iter().map(|case| case.needing(Capability::BlobVersions)).collect();
    cases.push(case!(Blobs, "BLOB-077", undeclared_versions_are_unsupported));
    cases
}

pub(super) async fn versions(store: &dyn BlobStore, key: &BlobKey) -> CaseResult<Vec<BlobVersion>> {
    Ok(store.list_versions(key).await?.try_collect().await?)
}

pub(super) async fn whole(read: BlobRead) -> CaseResult<Bytes> {
    let pieces: Vec<Bytes> = read.bytes.try_collect().await?;
    Ok(pieces.concat().into())
}

pub(super) async fn read(store: &dyn BlobStore, key: &BlobKey, id: &BlobVersionId) -> CaseResult<Bytes> {
    whole(store.get_version(key, id, BlobGetOptions::default()).await?).await
}

/// Returns the bytes of all versions, the newest first.
pub(super) async fn texts(store: &dyn BlobStore, key: &BlobKey) -> CaseResult<Vec<Bytes>> {
    let mut texts = Vec::new();
    for version in versions(store, key).await? {
        texts.push(read(store, key, &version.id).await?);
    }
    Ok(texts)
}

pub(super) fn described(name: &str) -> BlobPutOptions {
    BlobPutOptions::default().with_content_type(format!("text/{name}")).with_metadata("name", name)
}

async fn replaced_and_deleted_blobs_stay_as_versions(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let (name, other) = (key("in/a/folder")?, key("other")?);
    for text in ["first", "second"] {
        a.put_bytes(&name, Bytes::from(text)).await?;
    }
    a.put_bytes(&other, Bytes::from_static(b"copied")).await?;
    a.copy(&other, &name).await?;
    let mut expected = vec!["copied", "second", "first"];
    if a.capabilities().has(Capability::BlobRename) {
        a.put_bytes(&other, Bytes::from_static(b"renamed")).await?;
        a.rename(&other, &name, RenameMode::Replace).await?;
        expected.insert(0, "renamed");
    }
    let expected: Vec<Bytes> = expected.into_iter().map(Bytes::from).collect();
    expect::equal("the versions", &texts(&*b, &name).await?, &expected)?;
    expect::equal("the reported existence", &b.delete(&name).await?, &true)?;
    expect::error("head of the deleted blob", a.head(&name).await, ErrorKind::NotFound)?;
    expect::error("a read of the deleted blob", a.get_bytes(&name).await, ErrorKind::NotFound)?;
    let listed: Vec<BlobEntry> = a.list("in/", None).await?.try_collect().await?;
    expect::that(listed.is_empty(), "an empty listing", &listed)?;
    expect::equal("the versions of the deleted blob", &texts(&*a, &name).await?, &expected)?;
    expect::equal("a second deletion", &b.delete(&name).await?, &false)?;
    a.put_bytes(&name, Bytes::from_static(b"again")).await?;
    let again: Vec<Bytes> = [Bytes::from_static(b"again")].into_iter().chain(expected).collect();
    expect::equal("the versions of the blob written again", &texts(&*b, &name).await?, &again)
}

async fn versions_are_listed_newest_first(context: Context) -> CaseResult {
    const WRITES: usize = 12;
    let Handles { a, b } = context.blobs().await?;
    let name = key("often")?;
    let mut etags = Vec::new();
    for write in 0..WRITES {
        let store = if write % 2 == 0 { &a } else { &b };
        etags.insert(0, store.put_bytes(&name, vec![7; write].into()).await?.etag);
    }
    let listed = versions(&*b, &name).await?;
    let found: Vec<_> = listed.iter().map(|version| version.etag.clone()).collect();
    expect::equal("the tags", &found, &etags)?;
    let current: Vec<_> = listed.iter().map(|version| version.current).collect();
    expect::equal("the current one", &current, &(0..WRITES).map(|at| at == 0).collect())?;
    expect::equal("the tag of the blob", &b.head(&name).await?.etag, &listed[0].etag)?;
    let distinct: std::collections::HashSet<_> = listed.iter().map(|version| &version.id).collect();
    expect::equal("number of ids", &distinct.len(), &WRITES)?;
    a.delete(&name).await?;
    let listed = versions(&*b, &name).await?;
    let none = listed.len() == WRITES && listed.iter().all(|version| !version.current);
    expect::that(none, "no current version after a deletion", &listed)
}

async fn a_version_keeps_its_id_and_its_properties(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let name = key("kept")?;
    a.put(&name, noise(70_000, 3).into(), described("one")).await?;
    let head = b.head(&name).await?;
    let before = versions(&*b, &name).await?;
    expect::equal("number of versions", &before.len(), &1)?;
    let one = &before[0];
    expect::equal("the properties", &(one.size, &one.etag), &(head.size, &head.etag))?;
    let apart = (one.modified_at.as_micros() - head.modified_at.as_micros()).abs();
    expect::that(apart < 1_000_000, "the time of the write, to the second", one.modified_at)?;
    // A store could take the time of the next write.
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    a.put_bytes(&name, Bytes::from_static(b"two")).await?;
    let after = versions(&*b, &name).await?;
    expect::equal("the earlier version", &after[1..].to_vec(), &vec![one.clone().with_current(false)])?;
    a.delete(&name).await?;
    let last = versions(&*b, &name).await?;
    expect::equal("the version of the deleted blob", &last[1..].to_vec(), &after[1..].to_vec())
}

async fn versions_belong_to_one_key(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    for name in ["p", "p/q", "pq", "p.q", "P"] {
        a.put_bytes(&key(name)?, Bytes::from(format!("first of {name}"))).await?;
        a.put_bytes(&key(name)?, Bytes::from(format!("second of {name}"))).await?;
    }
    a.delete(&key("p/q")?).await?;
    for name in ["p", "p/q", "pq", "p.q", "P"] {
        let expected = [format!("second of {name}"), format!("first of {name}")].map(Bytes::from);
        expect::equal(
            &format!("the versions of {name}"),
            &texts(&*b, &key(name)?).await?,
            &expected.to_vec(),
        )?;
    }
    for name in ["absent", "p/q/r", "p/", "Pq"] {
        let Ok(name) = BlobKey::new(name) else { continue };
        let found = versions(&*b, &name).await?;
        expect::that(found.is_empty(), "no versions of a key that never had a blob", &found)?;
    }
    Ok(())
}

async fn a_call_without_effect_adds_no_version(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let name = key("steady")?;
    let etag = a.put_bytes(&name, Bytes::from_static(b"1")).await?.etag;
    a.put_bytes(&name, Bytes::from_static(b"2")).await?;
    let before = versions(&*b, &name).await?;
    let broken =
        [Ok(Bytes::from_static(b"part")), Err(Error::new(ErrorKind::Conflict, "case.stream", "broke off"))];
    let body = BlobBody::stream(futures_util::stream::iter(broken));
    expect::error("a stream that fails", a.put(&name, body, Default::default()).await, ErrorKind::Conflict)?;
    for (needed, condition) in [
        (Capability::BlobCreateOnly, BlobCondition::Absent),
        (Capability::BlobIfMatch, BlobCondition::Matches(etag)),
    ] {
        if a.capabilities().has(needed) {
            let options = BlobPutOptions::default().with_condition(condition);
            expect::error("a lost condition", a.put(&name, "3".into(), options).await, ErrorKind::Conflict)?;
        }
    }
    expect::error("a copy", a.copy(&key("absent")?, &name).await, ErrorKind::NotFound)?;
    if a.capabilities().has(Capability::BlobRename) {
        let renamed = a.rename(&key("absent")?, &name, RenameMode::Replace).await;
        expect::error("a rename", renamed, ErrorKind::NotFound)?;
        a.put_bytes(&key("source")?, Bytes::from_static(b"4")).await?;
        let renamed = a.rename(&key("source")?, &name, RenameMode::Refuse).await;
        expect::error("a refused rename", renamed, ErrorKind::Conflict)?;
    }
    expect::equal("the versions", &versions(&*b, &name).await?, &before)?;
    expect::equal("a deletion", &a.delete(&key("absent")?).await?, &false)?;
    let none = versions(&*b, &key("absent")?).await?;
    expect::that(none.is_empty(), "no version of a blob that never existed", &none)
}

async fn every_concurrent_write_leaves_a_version(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let name = key("contended")?;
    let mut writers = JoinSet::new();
    for writer in 0..8_u8 {
        let (store, name) = (if writer % 2 == 0 { a.clone() } else { b.clone() }, name.clone());
        writers.spawn(async move { store.put_bytes(&name, vec![writer; 20_000].into()).await });
    }
    for written in writers.join_all().await {
        written?;
    }
    let mut found = Vec::new();
    for text in texts(&*b, &name).await? {
        let whole = text.len() == 20_000 && text.iter().all(|byte| *byte == text[0]);
        expect::that(whole, "one of the writes, whole", format!("{} bytes of several", text.len()))?;
        found.push(text[0]);
    }
    found.sort_unstable();
    expect::equal("the writers of the versions", &found, &(0..8).collect())
}

async fn a_rename_moves_the_current_version_only(context: Context) -> CaseResult {
    context.require(Contract::Blobs, Capability::BlobRename).await?;
    let Handles { a, b } = context.blobs().await?;
    let (source, target) = (key("source")?, key("folder/target")?);
    for (name, text) in [(&source, "s1"), (&source, "s2"), (&target, "t1"), (&target, "t2")] {
        a.put_bytes(name, Bytes::from(text)).await?;
    }
    a.rename(&source, &target, RenameMode::Replace).await?;
    let all = |texts: &[&'static str]| texts.iter().copied().map(Bytes::from).collect::<Vec<_>>();
    expect::equal("the versions of the target", &texts(&*b, &target).await?, &all(&["s2", "t2", "t1"]))?;
    expect::equal("the versions of the source", &texts(&*b, &source).await?, &all(&["s1"]))?;
    a.put_bytes(&source, Bytes::from_static(b"s3")).await?;
    expect::equal("the versions written later", &texts(&*b, &source).await?, &all(&["s3", "s1"]))?;
    a.rename(&target, &target, RenameMode::Replace).await?;
    expect::equal("a rename onto itself", &texts(&*b, &target).await?, &all(&["s2", "t2", "t1"]))
}

async fn undeclared_versions_are_unsupported(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let declared = context.open().await?.capabilities(Contract::Blobs).unwrap_or_default();
    let name = key("name")?;
    a.put_bytes(&name, Bytes::from_static(b"1")).await?;
    a.put_bytes(&name, Bytes::from_static(b"2")).await?;
    if declared.has(Capability::BlobVersions) {
        // The capability is declared, so the store must keep versions.
        let expected = [Bytes::from_static(b"2"), Bytes::from_static(b"1")];
        return expect::equal("the versions", &texts(&*b, &name).await?, &expected.to_vec());
    }
    let before = dump(&*b).await?;
    let id = BlobVersionId::new("some-version")?;
    let listed = a.list_versions(&name).await.map(drop);
    expect::error("a listing of versions", listed, ErrorKind::Unsupported)?;
    let read = a.get_version(&name, &id, BlobGetOptions::default()).await.map(drop);
    expect::error("a read of a version", read, ErrorKind::Unsupported)?;
    expect::error("a deletion", a.delete_version(&name, &id).await, ErrorKind::Unsupported)?;
    expect::equal("everything stored", &dump(&*b).await?, &before)
}
