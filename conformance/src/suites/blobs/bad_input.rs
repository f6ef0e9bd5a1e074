//! Invalid input is rejected with its field, before any change.

use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use larder_kernel::{
    BlobBody, BlobGetOptions, BlobKey, BlobPutOptions, BlobStore, ByteRange, Contract, Error, PresignRequest,
};

use super::dump::{dump, populate};
use super::key;
use crate::case::{Case, CaseResult, Level};
use crate::context::Handles;
use crate::expect;

type Attempt = fn(&dyn BlobStore) -> BoxFuture<'_, Result<(), Error>>;

pub(super) fn cases() -> Vec<Case> {
    refused_keys().into_iter().chain(refused_calls()).collect()
}

fn refused_keys() -> Vec<Case> {
    let long = "k".repeat(513);
    let bad = [
        ("an_empty_key", String::new(), None),
        ("a_key_of_513_bytes", long, Some(512)),
        ("a_key_with_nul", "a\0b".to_owned(), None),
        ("a_key_that_begins_with_a_slash", "/a".to_owned(), None),
        ("a_key_that_ends_with_a_slash", "a/".to_owned(), None),
        ("a_key_with_an_empty_segment", "a//b".to_owned(), None),
        ("a_key_with_a_dot_segment", "a/./b".to_owned(), None),
        ("a_key_that_climbs", "a/../../b".to_owned(), None),
        ("a_key_of_two_dots", "..".to_owned(), None),
    ];
    let make = |(name, text, limit): (&str, String, Option<u64>)| {
        Case::new(Contract::Blobs, "STORE-010", format!("refuses_{name}"), move |context| {
            let text = text.clone();
            async move {
                let Handles { a, b } = context.blobs().await?;
                populate(&*a, "marker").await?;
                let before = dump(&*b).await?;
                let error = expect::invalid("the key", BlobKey::new(&text), "blob_key")?;
                if limit.is_some() {
                    expect::equal("the limit named", &error.limit(), &limit)?;
                }
                expect::equal("everything stored", &dump(&*b).await?, &before)
            }
        })
        .at_level(Level::Hostile)
    };
    bad.into_iter().map(make).collect()
}

fn put(store: &dyn BlobStore, options: BlobPutOptions) -> BoxFuture<'_, Result<(), Error>> {
    async move { store.put(&BlobKey::new("marker/plain")?, BlobBody::from("lost"), options).await.map(drop) }
        .boxed()
}

fn get(store: &dyn BlobStore, range: ByteRange) -> BoxFuture<'_, Result<(), Error>> {
    async move {
        let options = BlobGetOptions::default().with_range(range);
        store.get(&BlobKey::new("marker/plain")?, options).await.map(drop)
    }
    .boxed()
}

fn presign(store: &dyn BlobStore, request: PresignRequest) -> BoxFuture<'_, Result<(), Error>> {
    async move { store.presign(&BlobKey::new("marker/plain")?, &request).await.map(drop) }.boxed()
}

fn list(store: &dyn BlobStore, prefix: String) -> BoxFuture<'_, Result<(), Error>> {
    async move { store.list(&prefix, None).await.map(drop) }.boxed()
}

fn calls() -> Vec<(&'static str, &'static str, Attempt)> {
    vec![
        ("65_metadata_entries", "metadata", |store| {
            let options =
                (0..65).fold(BlobPutOptions::default(), |all, n| all.with_metadata(format!("n{n}"), "v"));
            put(store, options)
        }),
        ("metadata_of_2049_bytes", "metadata.bytes", |store| {
            put(store, BlobPutOptions::default().with_metadata("n", "v".repeat(2_048)))
        }),
        ("an_empty_metadata_name", "metadata.name", |store| {
            put(store, BlobPutOptions::default().with_metadata("", "v"))
        }),
        ("an_upper_case_metadata_name", "metadata.name", |store| {
            put(store, BlobPutOptions::default().with_metadata("Name", "v"))
        }),
        ("a_metadata_name_with_a_colon", "metadata.name", |store| {
            put(store, BlobPutOptions::default().with_metadata("a:b", "v"))
        }),
        ("a_metadata_value_with_a_line_break", "metadata.value", |store| {
            put(store, BlobPutOptions::default().with_metadata("a", "v\r\nx: y"))
        }),
        ("a_metadata_value_beyond_ascii", "metadata.value", |store| {
            put(store, BlobPutOptions::default().with_metadata("a", "ü"))
        }),
        ("a_metadata_value_that_ends_in_a_space", "metadata.value", |store| {
            put(store, BlobPutOptions::default().with_metadata("a", "v "))
        }),
        ("an_empty_content_type", "content_type", |store| {
            put(store, BlobPutOptions::default().with_content_type(""))
        }),
        ("a_content_type_of_257_bytes", "content_type", |store| {
            put(store, BlobPutOptions::default().with_content_type("t".repeat(257)))
        }),
        ("a_content_type_with_a_line_break", "content_type", |store| {
            put(store, BlobPutOptions::default().with_content_type("text/plain\n"))
        }),
        ("an_empty_range", "range", |store| get(store, ByteRange::Bounded { start: 3, end: 3 })),
        ("a_range_that_ends_before_it_begins", "range", |store| {
            get(store, ByteRange::Bounded { start: 4, end: 3 })
        }),
        ("a_suffix_of_nothing", "range", |store| get(store, ByteRange::Suffix(0))),
        ("a_range_past_the_end", "range", |store| get(store, ByteRange::From(1_000_000))),
        ("a_prefix_of_513_bytes", "prefix", |store| list(store, "p".repeat(513))),
        ("a_prefix_with_nul", "prefix", |store| list(store, "a\0".to_owned())),
        ("a_presign_of_no_time", "valid_for", |store| presign(store, PresignRequest::get(Duration::ZERO))),
        ("a_presign_of_eight_days", "valid_for", |store| {
            presign(store, PresignRequest::put(Duration::from_secs(8 * 24 * 3600)))
        }),
        ("a_presigned_read_with_a_content_type", "content_type", |store| {
            presign(store, PresignRequest::get(Duration::from_secs(60)).with_content_type("text/plain"))
        }),
    ]
}

fn refused_calls() -> impl Iterator<Item = Case> {
    calls().into_iter().map(|(name, field, attempt)| {
        Case::new(Contract::Blobs, "STORE-010", format!("refuses_{name}"), move |context| async move {
            let Handles { a, b } = context.blobs().await?;
            populate(&*a, "marker").await?;
            let before = dump(&*b).await?;
            expect::invalid("the call", attempt(&*a).await, field)?;
            expect::equal("everything stored", &dump(&*b).await?, &before)?;
            stays_usable(&*a).await
        })
        .at_level(Level::Hostile)
    })
}

async fn stays_usable(store: &dyn BlobStore) -> CaseResult {
    store.put(&key("after")?, BlobBody::from("1"), BlobPutOptions::default()).await?;
    Ok(())
}
