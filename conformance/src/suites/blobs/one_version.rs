//! Reading and deleting one version of a blob.

use bytes::Bytes;
use larder_kernel::{
    BlobGetOptions, BlobPutOptions, BlobStoreExt, BlobVersionId, ByteRange, Capability, ErrorKind, Store,
};

use super::versions::{described, texts, versions, whole};
use super::{key, noise};
use crate::case::{Case, CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;

pub(super) fn cases() -> Vec<Case> {
    let cases = vec![
        case!(Blobs, "BLOB-080", a_version_reads_back_as_written),
        case!(Blobs, "BLOB-081", a_range_of_a_version_returns_exactly_its_bytes),
        case!(Blobs, "BLOB-082", a_missing_version_is_not_found),
        case!(Blobs, "BLOB-085", a_deleted_version_is_gone_and_no_other),
        case!(Blobs, "BLOB-086", deleting_a_missing_version_returns_false),
        case!(Blobs, "BLOB-087", the_current_version_is_not_deleted),
        case!(Blobs, "BLOB-088", an_erasure_removes_all_versions),
    ];
    cases.into_iter().map(|case| case.needing(Capability::BlobVersions)).collect()
}

async fn a_version_reads_back_as_written(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let name = key("written")?;
    let mut written = Vec::new();
    for (at, len) in [600_000, 0, 70_000].into_iter().enumerate() {
        let bytes = Bytes::from(noise(len, context.random(1) + u64::try_from(at).unwrap_or(0)));
        let options = if at == 1 { BlobPutOptions::default() } else { described(&format!("v{at}")) };
        a.put(&name, bytes.clone().into(), options).await?;
        written.push((b.head(&name).await?, bytes));
    }
    for deleted in [false, true] {
        if deleted {
            a.delete(&name).await?;
        }
        let listed = versions(&*b, &name).await?;
        expect::equal("number of versions", &listed.len(), &written.len())?;
        for (version, (info, bytes)) in listed.iter().rev().zip(&written) {
            let read = b.get_version(&name, &version.id, BlobGetOptions::default()).await?;
            expect::equal("the properties", &read.info, info)?;
            expect::equal("the range", &read.range, &(0..info.size))?;
            expect::that(whole(read).await? == *bytes, "the bytes of the version", "others")?;
        }
    }
    Ok(())
}

async fn a_range_of_a_version_returns_exactly_its_bytes(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let name = key("ranged")?;
    let bytes = noise(200_000, context.random(1));
    a.put_bytes(&name, bytes.clone().into()).await?;
    a.put_bytes(&name, noise(300_000, context.random(2)).into()).await?;
    let id = versions(&*b, &name).await?[1].id.clone();
    for (range, expected) in [
        (ByteRange::Bounded { start: 5, end: 70_001 }, 5..70_001),
        (ByteRange::Bounded { start: 199_999, end: u64::MAX }, 199_999..200_000),
        (ByteRange::From(131_072), 131_072..200_000),
        (ByteRange::Suffix(3), 199_997..200_000),
        (ByteRange::Suffix(u64::MAX), 0..200_000),
    ] {
        let read = b.get_version(&name, &id, BlobGetOptions::default().with_range(range)).await?;
        let size = usize::try_from(read.info.size).unwrap_or(0);
        expect::equal("size", &size, &bytes.len())?;
        let delivered =
            usize::try_from(read.range.start).unwrap_or(0)..usize::try_from(read.range.end).unwrap_or(0);
        expect::equal("the range", &delivered, &expected)?;
        let same = whole(read).await? == bytes[expected];
        expect::that(same, format!("the bytes of {range:?}"), "others")?;
    }
    for range in [ByteRange::From(200_000), ByteRange::Bounded { start: 3, end: 3 }, ByteRange::Suffix(0)] {
        let read = b.get_version(&name, &id, BlobGetOptions::default().with_range(range)).await;
        expect::invalid(&format!("{range:?}"), read.map(drop), "range")?;
    }
    Ok(())
}

async fn a_missing_version_is_not_found(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let (name, other) = (key("one")?, key("one/other")?);
    for key in [&name, &other] {
        a.put_bytes(key, Bytes::from_static(b"1")).await?;
        a.put_bytes(key, Bytes::from_static(b"2")).await?;
    }
    let foreign = versions(&*b, &other).await?;
    let unknown = BlobVersionId::new("no-such-version")?;
    for id in foreign.iter().map(|version| &version.id).chain([&unknown]) {
        for key in [&name, &key("absent")?] {
            let read = b.get_version(key, id, BlobGetOptions::default()).await.map(drop);
            expect::error("a version that the key does not have", read, ErrorKind::NotFound)?;
        }
    }
    Ok(())
}

async fn a_deleted_version_is_gone_and_no_other(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let name = key("thinned")?;
    for text in ["1", "2", "3", "4"] {
        a.put_bytes(&name, Bytes::from(text)).await?;
    }
    let all = versions(&*b, &name).await?;
    expect::equal("the reported existence", &a.delete_version(&name, &all[2].id).await?, &true)?;
    let left = versions(&*b, &name).await?;
    expect::equal("the other versions", &left, &vec![all[0].clone(), all[1].clone(), all[3].clone()])?;
    let read = b.get_version(&name, &all[2].id, BlobGetOptions::default()).await.map(drop);
    expect::error("the deleted version", read, ErrorKind::NotFound)?;
    expect::equal("again", &b.delete_version(&name, &all[2].id).await?, &false)?;
    expect::equal("the blob", &b.get_bytes(&name).await?, &Bytes::from_static(b"4"))?;
    a.delete(&name).await?;
    for version in [&all[0], &all[3], &all[1]] {
        expect::equal("the reported existence", &b.delete_version(&name, &version.id).await?, &true)?;
    }
    let left = versions(&*a, &name).await?;
    expect::that(left.is_empty(), "no versions", &left)?;
    expect::error("head", a.head(&name).await, ErrorKind::NotFound)?;
    a.put_bytes(&name, Bytes::from_static(b"5")).await?;
    expect::equal("written again", &texts(&*b, &name).await?, &vec![Bytes::from_static(b"5")])
}

async fn deleting_a_missing_version_returns_false(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let (name, other) = (key("one")?, key("other")?);
    for key in [&name, &other] {
        a.put_bytes(key, Bytes::from_static(b"1")).await?;
        a.put_bytes(key, Bytes::from_static(b"2")).await?;
    }
    let before = (texts(&*b, &name).await?, texts(&*b, &other).await?);
    let foreign = versions(&*b, &other).await?;
    let unknown = BlobVersionId::new("no-such-version")?;
    for id in foreign.iter().map(|version| &version.id).chain([&unknown]) {
        for key in [&name, &key("absent")?] {
            expect::equal("the reported existence", &a.delete_version(key, id).await?, &false)?;
        }
    }
    expect::equal("all versions", &(texts(&*b, &name).await?, texts(&*b, &other).await?), &before)
}

async fn the_current_version_is_not_deleted(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let name = key("current")?;
    for text in ["1", "2"] {
        a.put_bytes(&name, Bytes::from(text)).await?;
        let before = versions(&*b, &name).await?;
        let deleted = a.delete_version(&name, &before[0].id).await;
        expect::error("deleting the current version", deleted, ErrorKind::Conflict)?;
        expect::equal("the versions", &versions(&*b, &name).await?, &before)?;
        expect::equal("the blob", &b.get_bytes(&name).await?, &Bytes::from(text))?;
    }
    Ok(())
}

async fn an_erasure_removes_all_versions(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let names = [key("kept")?, key("deleted")?, key("in/a/folder")?];
    for name in &names {
        a.put_bytes(name, Bytes::from_static(b"1")).await?;
        a.put_bytes(name, Bytes::from_static(b"2")).await?;
    }
    a.delete(&names[1]).await?;
    let ids = versions(&*b, &names[1]).await?;
    Store::erase(&*a).await?;
    for name in &names {
        let left = versions(&*b, name).await?;
        expect::that(left.is_empty(), "no versions after an erasure", &left)?;
        for version in &ids {
            let read = b.get_version(name, &version.id, BlobGetOptions::default()).await.map(drop);
            expect::error("an erased version", read, ErrorKind::NotFound)?;
        }
        a.put_bytes(name, Bytes::from_static(b"new")).await?;
        expect::equal(
            "the versions of a new blob",
            &texts(&*b, name).await?,
            &vec![Bytes::from_static(b"new")],
        )?;
    }
    Ok(())
}
