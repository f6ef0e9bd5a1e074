//! Fields × values: content types, user metadata, ETags, times and headers are exact, in every method that
//! returns them.

use std::time::Duration;

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{
    BlobCondition, BlobInfo, BlobPutOptions, BlobStore, BlobStoreExt, Capability, ETag, ErrorKind,
    PresignRequest, Timestamp,
};

use super::key;
use crate::case::{Case, CaseResult, case};
use crate::context::{Context, Handles};
use crate::expect;
use crate::suites::values::TEXTS;

/// Content types that a store or a server may complete, lower or cut.
const CONTENT_TYPES: &[&str] = &[
    "text/plain",
    "TEXT/Plain; Charset=UTF-8",
    "text/html;charset=\"utf-8\"; x=\"a;b,c\"",
    "application/vnd.api+json",
    "application/octet-stream",
    "binary/octet-stream",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=----a",
    "x",
    "image/*",
    "a b c",
];

/// The largest difference between the store's clock and the suite's.
const SKEW: Duration = Duration::from_secs(120);

pub(super) fn cases() -> Vec<Case> {
    vec![
        case!(Blobs, "BLOB-002", every_content_type_and_metadata_value_reads_back),
        case!(Blobs, "BLOB-026", every_method_returns_the_same_properties),
        case!(Blobs, "BLOB-035", a_listing_carries_the_size_and_the_etag_of_each_blob),
        case!(Blobs, "BLOB-010", an_etag_matches_byte_for_byte).needing(Capability::BlobIfMatch),
        case!(Blobs, "BLOB-053", modified_at_is_the_time_of_the_last_write),
        case!(Blobs, "BLOB-054", the_content_type_is_a_header).needing(Capability::BlobPresignPut),
        case!(Blobs, "BLOB-054", a_read_needs_no_content_type).needing(Capability::BlobPresignGet),
    ]
}

/// Returns the texts that user metadata and content types accept: visible ASCII with inner spaces.
fn visible() -> impl Iterator<Item = &'static str> {
    let accepted = |text: &&str| {
        text.trim() == *text && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
    };
    TEXTS.iter().copied().filter(accepted)
}

/// Returns the options of a write for each field and each value.
fn written() -> Vec<BlobPutOptions> {
    let of_type = |text: &str| BlobPutOptions::default().with_content_type(text);
    let types = CONTENT_TYPES.iter().copied().chain(visible()).map(of_type);
    let values = visible().map(|text| BlobPutOptions::default().with_metadata("name", text));
    let names = ["a", "0", "a-b_c", "content-type", "x-amz-meta-a", "etag", "-", "_"];
    let names = names.into_iter().map(|name| BlobPutOptions::default().with_metadata(name, "1"));
    types.chain(values).chain(names).collect()
}

fn same(what: &str, found: &BlobInfo, options: &BlobPutOptions) -> CaseResult {
    expect::equal(&format!("{what}: content type"), &found.content_type, &options.content_type)?;
    expect::equal(&format!("{what}: user metadata"), &found.metadata, &options.metadata)
}

async fn every_content_type_and_metadata_value_reads_back(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    for (number, options) in written().into_iter().enumerate() {
        let key = key(&format!("field/{number}"))?;
        let info = a.put(&key, "1".into(), options.clone()).await?;
        same("put", &info, &options)?;
        same("head", &b.head(&key).await?, &options)?;
        same("get", &b.get(&key, Default::default()).await?.info, &options)?;
    }
    Ok(())
}

async fn every_method_returns_the_same_properties(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let (source, target) = (key("source")?, key("target")?);
    let options = BlobPutOptions::default().with_content_type("text/x-a; b=1").with_metadata("a-b", "1, 2");
    let properties = |info: &BlobInfo| (info.key.clone(), info.size, info.etag.clone());
    let put = a.put(&source, "12345".into(), options.clone()).await?;
    let head = b.head(&source).await?;
    expect::equal("key, size and ETag of head", &properties(&head), &properties(&put))?;
    let get = b.get(&source, Default::default()).await?.info;
    expect::equal("key, size and ETag of get", &properties(&get), &properties(&put))?;
    let copied = a.copy(&source, &target).await?;
    let head = b.head(&target).await?;
    expect::equal("key, size and ETag of a copy", &properties(&head), &properties(&copied))?;
    same("copy", &copied, &options)?;
    same("head of the copy", &head, &options)
}

async fn a_listing_carries_the_size_and_the_etag_of_each_blob(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let mut expected = Vec::new();
    for size in [0, 1, 70_000] {
        let key = key(&format!("size-{size:06}"))?;
        let info = a.put_bytes(&key, Bytes::from(vec![b'x'; size])).await?;
        expected.push((key, info.size, info.etag));
    }
    let found: Vec<_> = b.list("size-", None).await?.try_collect().await?;
    let found: Vec<_> = found.into_iter().map(|entry| (entry.key, entry.size, entry.etag)).collect();
    expect::equal("key, size and ETag of each item", &found, &expected)
}

/// Returns texts that a server may take for the tag: lists, wildcards, weak forms and other spellings.
fn near(tag: &str) -> Vec<String> {
    let bare = tag.trim_matches('"');
    let swapped: String =
        bare.chars()
            .map(|letter| {
                if letter.is_lowercase() { letter.to_ascii_uppercase() } else { letter.to_ascii_lowercase() }
            })
            .collect();
    let quoted = |text: &str| if tag.starts_with('"') { format!("\"{text}\"") } else { text.to_owned() };
    let cut = bare.char_indices().last().map_or("", |(end, _)| &bare[..end]);
    let mut near = vec![
        "*".to_owned(),
        "\"*\"".to_owned(),
        format!("W/{tag}"),
        format!("W/\"{bare}\""),
        format!("\"other\",{tag}"),
        format!("{tag},\"other\""),
        format!("\"other\",\"{bare}\""),
        quoted(&swapped),
        quoted(cut),
        quoted(&format!("{bare}0")),
        quoted(&format!("0{bare}")),
        if tag.starts_with('"') { bare.to_owned() } else { format!("\"{bare}\"") },
    ];
    near.retain(|other| other != tag && !other.is_empty());
    near
}

async fn an_etag_matches_byte_for_byte(context: Context) -> CaseResult {
    let Handles { a, b } = context.blobs().await?;
    let key = key("tagged")?;
    let etag = a.put_bytes(&key, Bytes::from_static(b"first")).await?.etag;
    for other in near(etag.as_str()) {
        let options = BlobPutOptions::default().with_condition(BlobCondition::Matches(ETag::new(&other)?));
        let put = a.put(&key, "second".into(), options).await;
        expect::error(&format!("a write that matches {other} and not {etag}"), put, ErrorKind::Conflict)?;
    }
    expect::equal("the blob", &b.get_bytes(&key).await?, &Bytes::from_static(b"first"))?;
    expect::equal("the ETag", &b.head(&key).await?.etag, &etag)
}

/// Returns every time that the store reports for the blob.
async fn times(store: &dyn BlobStore, name: &str) -> CaseResult<Vec<(&'static str, Timestamp)>> {
    let key = key(name)?;
    let mut times = vec![
        ("head", store.head(&key).await?.modified_at),
        ("get", store.get(&key, Default::default()).await?.info.modified_at),
    ];
    let listed: Vec<_> = store.list(name, None).await?.try_collect().await?;
    times.extend(listed.into_iter().map(|entry| ("list", entry.modified_at)));
    Ok(times)
}

async fn modified_at_is_the_time_of_the_last_write(context: Context) -> CaseResult {
    /// A time may be cut to the second, so two writes differ by more than that.
    const PAUSE: Duration = Duration::from_millis(2_100);
    let Handles { a, b } = context.blobs().await?;
    let earliest = Timestamp::now();
    let first = a.put_bytes(&key("written")?, Bytes::from_static(b"1")).await?.modified_at;
    tokio::time::sleep(PAUSE).await;
    let second = a.put_bytes(&key("written")?, Bytes::from_static(b"1")).await?.modified_at;
    let copied = a.copy(&key("written")?, &key("copy")?).await?.modified_at;
    let latest = Timestamp::now().saturating_add(SKEW);
    let mut found = vec![("put", second), ("copy", copied)];
    found.extend(times(&*b, "written").await?);
    found.extend(times(&*b, "copy").await?);
    let after_first = first.saturating_add(Duration::from_secs(1));
    for (method, time) in found {
        expect::that(time >= after_first, format!("{method}: the time of the last write"), (first, time))?;
        let plausible = time.saturating_add(SKEW) >= earliest && time <= latest;
        expect::that(plausible, format!("{method}: a time near {earliest:?}"), time)?;
    }
    Ok(())
}

/// Returns the headers of a presigned request, with their names in lower case.
async fn headers(store: &dyn BlobStore, request: &PresignRequest) -> CaseResult<Vec<(String, String)>> {
    let url = store.presign(&key("signed")?, request).await?;
    Ok(url.headers.into_iter().map(|(name, value)| (name.to_lowercase(), value)).collect())
}

async fn the_content_type_is_a_header(context: Context) -> CaseResult {
    let Handles { a, .. } = context.blobs().await?;
    for content_type in CONTENT_TYPES {
        let request = PresignRequest::put(Duration::from_secs(60)).with_content_type(*content_type);
        let found = headers(&*a, &request).await?;
        let found: Vec<_> = found.iter().filter(|(name, _)| name == "content-type").collect();
        let expected = ("content-type".to_owned(), (*content_type).to_owned());
        expect::equal("the header of the content type", &found, &vec![&expected])?;
    }
    let found = headers(&*a, &PresignRequest::put(Duration::from_secs(60))).await?;
    let none = found.iter().all(|(name, _)| name != "content-type");
    expect::that(none, "no content type where none is requested", found)
}

async fn a_read_needs_no_content_type(context: Context) -> CaseResult {
    let Handles { a, .. } = context.blobs().await?;
    a.put_bytes(&key("signed")?, Bytes::from_static(b"1")).await?;
    let found = headers(&*a, &PresignRequest::get(Duration::from_secs(60))).await?;
    let none = found.iter().all(|(name, _)| name != "content-type");
    expect::that(none, "no content type for a read", found)
}
