//! Cases that `object_store`'s integration tests do not cover.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use larder_kernel::{BlobKey, BlobStoreExt, Capability};
use object_store::path::Path;
use object_store::{
    Attribute, Attributes, Error, GetOptions, GetRange, MultipartUpload, ObjectStore, ObjectStoreExt,
    PutMode, PutPayload, UpdateVersion,
};

use super::TestStore;

const PART: usize = 5 * 1024 * 1024;

async fn exists(under_test: &TestStore, location: &Path) -> bool {
    match under_test.store.head(location).await {
        Ok(_) => true,
        Err(Error::NotFound { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

pub(crate) async fn content_type_and_metadata_are_kept(under_test: &TestStore) {
    let attributes = Attributes::from_iter([
        (Attribute::ContentType, "text/html; charset=utf-8"),
        (Attribute::Metadata("test_key".into()), "hello   world"),
    ]);
    let (whole, parts, copy) = (Path::from("whole"), Path::from("parts"), Path::from("copy"));
    under_test.store.put_opts(&whole, "foo".into(), attributes.clone().into()).await.unwrap();
    let mut upload = under_test.store.put_multipart_opts(&parts, attributes.clone().into()).await.unwrap();
    upload.put_part("foo".into()).await.unwrap();
    let put = upload.complete().await.unwrap();
    under_test.store.copy(&parts, &copy).await.unwrap();
    for location in [&whole, &parts, &copy] {
        assert_eq!(under_test.store.get(location).await.unwrap().attributes, attributes);
    }
    assert_eq!(under_test.store.head(&parts).await.unwrap().e_tag, put.e_tag);
    if under_test.has(Capability::BlobCreateOnly) {
        let absent = Path::from("absent");
        under_test.store.copy_if_not_exists(&parts, &absent).await.unwrap();
        assert_eq!(under_test.store.get(&absent).await.unwrap().attributes, attributes);
    }
}

pub(crate) async fn other_attributes_are_not_implemented_and_write_nothing(under_test: &TestStore) {
    let location = Path::from("attributes");
    for attribute in [
        Attribute::CacheControl,
        Attribute::ContentDisposition,
        Attribute::ContentEncoding,
        Attribute::ContentLanguage,
        Attribute::StorageClass,
    ] {
        let attributes = Attributes::from_iter([(attribute, "x")]);
        let error = under_test.store.put_opts(&location, "foo".into(), attributes.clone().into()).await;
        assert!(matches!(error, Err(Error::NotImplemented { .. })), "{error:?}");
        let error = under_test.store.put_multipart_opts(&location, attributes.into()).await;
        assert!(matches!(error, Err(Error::NotImplemented { .. })), "{error:?}");
    }
    assert!(!exists(under_test, &location).await);
}

pub(crate) async fn undeclared_conditions_are_not_implemented(under_test: &TestStore) {
    let (source, target) = (Path::from("source"), Path::from("target"));
    under_test.store.put(&source, "foo".into()).await.unwrap();
    let mode = PutMode::Create;
    let error = under_test.store.put_opts(&target, "bar".into(), mode.into()).await;
    assert!(matches!(error, Err(Error::NotImplemented { .. })), "{error:?}");
    let error = under_test.store.copy_if_not_exists(&source, &target).await;
    assert!(matches!(error, Err(Error::NotImplemented { .. })), "{error:?}");
    let error = under_test.store.rename_if_not_exists(&source, &target).await;
    assert!(matches!(error, Err(Error::NotImplemented { .. })), "{error:?}");
    assert!(exists(under_test, &source).await && !exists(under_test, &target).await);
    if !under_test.has(Capability::BlobIfMatch) {
        let e_tag = under_test.store.head(&source).await.unwrap().e_tag;
        let mode = PutMode::Update(UpdateVersion { e_tag, version: None });
        let error = under_test.store.put_opts(&source, "bar".into(), mode.into()).await;
        assert!(matches!(error, Err(Error::NotImplemented { .. })), "{error:?}");
        assert_eq!(under_test.store.get(&source).await.unwrap().bytes().await.unwrap(), "foo");
    }
}

pub(crate) async fn an_incomplete_upload_leaves_nothing(under_test: &TestStore) {
    let location = Path::from("upload");
    let part = PutPayload::from(vec![7; PART]);
    let mut dropped = under_test.store.put_multipart(&location).await.unwrap();
    dropped.put_part(part.clone()).await.unwrap();
    drop(dropped.put_part(part.clone()));
    drop(dropped);
    let mut aborted = under_test.store.put_multipart(&location).await.unwrap();
    aborted.put_part(part.clone()).await.unwrap();
    aborted.abort().await.unwrap();
    aborted.put_part(part.clone()).await.unwrap_err();
    aborted.complete().await.unwrap_err();
    // The dropped future ends later.
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!exists(under_test, &location).await);

    // Dropping a future aborts its part no more than never awaiting it does.
    let mut upload = under_test.store.put_multipart(&location).await.unwrap();
    drop(upload.put_part(part));
    upload.complete().await.unwrap();
    assert_eq!(under_test.store.head(&location).await.unwrap().size, PART as u64);
    upload.complete().await.unwrap_err();
}

pub(crate) async fn an_upload_that_fails_says_why_in_each_part(under_test: &TestStore) {
    let location = Path::from("upload");
    let attributes = Attributes::from_iter([(Attribute::Metadata("UPPER".into()), "refused")]);
    let error = under_test.store.put_multipart_opts(&location, attributes.into()).await.unwrap_err();
    assert!(error.to_string().contains("metadata.name"), "{error}");

    if under_test.has(Capability::BlobLongKeys) {
        return;
    }
    let long = Path::from("k".repeat(512));
    let mut upload = under_test.store.put_multipart(&long).await.unwrap();
    let first = upload.put_part("a".into()).await;
    let second = upload.put_part("b".into()).await;
    let end = upload.complete().await.map(drop);
    for answer in [first, second, end] {
        assert!(matches!(answer, Err(Error::NotSupported { .. })), "{answer:?}");
    }
}

pub(crate) async fn ranges_and_conditions_are_judged_in_their_order(under_test: &TestStore) {
    let location = Path::from("range");
    under_test.store.put(&location, "0123456789".into()).await.unwrap();
    let get = async |options: GetOptions| {
        let result = under_test.store.get_opts(&location, options).await?;
        let range = result.range.clone();
        Ok::<_, Error>((range, result.bytes().await?))
    };
    let (range, bytes) = get(GetOptions::new().with_range(Some(GetRange::Suffix(0)))).await.unwrap();
    assert_eq!((range, bytes.as_ref()), (10..10, b"".as_ref()));
    for range in [GetRange::Offset(10), GetRange::Bounded(4..4), GetRange::Bounded(10..11)] {
        let error = get(GetOptions::new().with_range(Some(range.clone()))).await.unwrap_err();
        assert!(matches!(error, Error::Generic { .. }), "{error}");
        let conditioned = GetOptions::new().with_range(Some(range)).with_if_match(Some("other"));
        let error = get(conditioned).await.unwrap_err();
        assert!(matches!(error, Error::Precondition { .. }), "{error}");
    }
    let head = GetOptions::new().with_head(true).with_if_none_match(Some("*"));
    let error = under_test.store.get_opts(&location, head).await.unwrap_err();
    assert!(matches!(error, Error::NotModified { .. }), "{error}");
    let error = get(GetOptions::new().with_version(Some("1"))).await.unwrap_err();
    assert!(matches!(error, Error::NotSupported { .. }), "{error}");

    let empty = Path::from("empty");
    under_test.store.put(&empty, PutPayload::default()).await.unwrap();
    let suffix = GetOptions::new().with_range(Some(GetRange::Suffix(5)));
    let result = under_test.store.get_opts(&empty, suffix).await.unwrap();
    assert_eq!(result.range, 0..0);
    assert!(result.bytes().await.unwrap().is_empty());
}

/// Enough keys that the listing skips a folder in the middle, including one whose keys are the greatest
/// possible.
pub(crate) async fn folders_with_many_objects_are_listed_once(under_test: &TestStore) {
    // Writes to a server are slow; the skip is the same everywhere.
    let many = if under_test.remote { 12 } else { 2_100 };
    let last = char::MAX;
    let keys = (0..many)
        .map(|number| format!("a/many/{number:04}"))
        .chain((0..3).map(|number| format!("a/many/{last}{number}")))
        .chain(["a/before/x", "a/many0", "a/many.txt", "a/more/y", "a/z", "b"].map(str::to_owned));
    let written: BTreeSet<String> = keys.collect();
    futures_util::stream::iter(&written)
        .map(|key| async move { under_test.blobs.put_bytes(&BlobKey::new(key)?, "x".into()).await })
        .buffer_unordered(16)
        .try_collect::<Vec<_>>()
        .await
        .unwrap();
    let level = under_test.store.list_with_delimiter(Some(&Path::from("a"))).await.unwrap();
    let folders: Vec<_> = level.common_prefixes.iter().map(AsRef::as_ref).collect();
    assert_eq!(folders, ["a/before", "a/many", "a/more"]);
    let objects: Vec<_> = level.objects.iter().map(|object| object.location.as_ref()).collect();
    assert_eq!(objects, ["a/many.txt", "a/many0", "a/z"]);
    let listed: Vec<_> =
        under_test.store.list(None).map_ok(|object| object.location.to_string()).try_collect().await.unwrap();
    assert_eq!(listed, Vec::from_iter(written));
}

pub(crate) async fn a_rename_onto_itself_loses_nothing(under_test: &TestStore) {
    let location = Path::from("same");
    let error = under_test.store.rename(&location, &location).await.unwrap_err();
    assert!(matches!(error, Error::NotFound { .. }), "{error}");
    under_test.store.put(&location, "foo".into()).await.unwrap();
    under_test.store.rename(&location, &location).await.unwrap();
    under_test.store.copy(&location, &location).await.unwrap();
    let error = under_test.store.rename_if_not_exists(&location, &location).await.unwrap_err();
    assert!(matches!(error, Error::AlreadyExists { .. }), "{error}");
    assert_eq!(under_test.store.get(&location).await.unwrap().bytes().await.unwrap(), "foo");
}

pub(crate) async fn a_location_that_is_no_key_holds_nothing(under_test: &TestStore) {
    let deep = Path::from("d/".repeat(300));
    let here = Path::from("here");
    under_test.store.put(&here, "foo".into()).await.unwrap();
    for location in [Path::ROOT, deep] {
        for error in [
            under_test.store.get(&location).await.map(drop),
            under_test.store.head(&location).await.map(drop),
            under_test.store.copy(&location, &here).await,
            under_test.store.rename(&location, &here).await,
        ] {
            assert!(matches!(error, Err(Error::NotFound { .. })), "{error:?}");
        }
        let error = under_test.store.put(&location, "foo".into()).await.unwrap_err();
        assert!(error.to_string().contains("blob_key"), "{error}");
        under_test.store.put_multipart(&location).await.unwrap_err();
        under_test.store.copy(&here, &location).await.unwrap_err();
        under_test.store.delete(&location).await.unwrap();
    }
    let deep = Path::from("d/".repeat(300));
    assert!(under_test.store.list(Some(&deep)).next().await.is_none());
    assert!(under_test.store.list_with_delimiter(Some(&deep)).await.unwrap().objects.is_empty());
    let behind: Vec<_> = under_test.store.list_with_offset(None, &deep).try_collect().await.unwrap();
    assert_eq!(behind.len(), 1);
    assert!(exists(under_test, &here).await);
}
