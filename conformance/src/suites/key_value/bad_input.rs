//! Invalid calls, which change nothing.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use larder_kernel::limits::{TTL_MS_MAX, VALUE_BYTES_MAX};
use larder_kernel::{
    BucketName, Contract, Key, KeyValueCondition, KeyValuePutOptions, KeyValueStore, PageRequest, Result,
    Revision,
};

use super::dump::{dump, populate};
use crate::case::{Case, CaseResult, Level};
use crate::context::{Context, Handles};
use crate::expect;

/// The marker of the records that `populate` writes, so that invalid calls can name an existing one.
const MARKER: &str = "kept";

type Call = for<'a> fn(&'a dyn KeyValueStore) -> BoxFuture<'a, Result<()>>;

/// A call, the field that its error names, and the limit, if any.
type Row = (&'static str, &'static str, Option<u64>, Call);

/// Returns the cases, one for each invalid call.
pub(super) fn cases() -> Vec<Case> {
    [puts(), lists(), watches(), ids()].into_iter().flatten().map(case).collect()
}

fn case((name, field, limit, call): Row) -> Case {
    Case::new(Contract::KeyValue, "STORE-010", format!("refuses_{name}"), move |context| {
        refused(context, name, field, limit, call)
    })
    .at_level(Level::Hostile)
}

async fn refused(
    context: Context,
    name: &'static str,
    field: &'static str,
    limit: Option<u64>,
    call: Call,
) -> CaseResult {
    let Handles { a, b } = context.key_value().await?;
    populate(&*a, MARKER).await?;
    let before = dump(&*b).await?;
    let refusal = expect::invalid(name, call(&*a).await, field)?;
    expect::equal("the limit named", &refusal.limit(), &limit)?;
    expect::equal("everything that can be read", &dump(&*b).await?, &before)
}

async fn put(store: &dyn KeyValueStore, value_bytes: usize, options: KeyValuePutOptions) -> Result<()> {
    let (bucket, key) = (BucketName::new("kept-bucket")?, Key::new("kept/key-0")?);
    store.put(&bucket, &key, Bytes::from(vec![b'x'; value_bytes]), options).await.map(|_| ())
}

async fn put_for(store: &dyn KeyValueStore, ttl: Duration) -> Result<()> {
    put(store, 1, KeyValuePutOptions::default().with_ttl(ttl)).await
}

async fn list(store: &dyn KeyValueStore, prefix: &str, limit: usize) -> Result<()> {
    store.list(&BucketName::new("kept-bucket")?, prefix, PageRequest::first(limit)).await.map(|_| ())
}

async fn watch(store: &dyn KeyValueStore, prefix: &str) -> Result<()> {
    store.watch(&BucketName::new("kept-bucket")?, prefix, Revision::ZERO).await.map(|_| ())
}

fn puts() -> Vec<Row> {
    const TOO_LONG: usize = VALUE_BYTES_MAX + 1;
    vec![
        ("a_value_over_the_limit", "value", Some(4_194_304), |store| {
            put(store, TOO_LONG, KeyValuePutOptions::default()).boxed()
        }),
        // Invalid input takes precedence over the condition, which would not hold either.
        ("a_value_over_the_limit_for_a_present_key", "value", Some(4_194_304), |store| {
            put(store, TOO_LONG, KeyValuePutOptions::default().with_condition(KeyValueCondition::Absent))
                .boxed()
        }),
        ("a_value_over_the_limit_at_a_revision", "value", Some(4_194_304), |store| {
            let at = KeyValueCondition::AtRevision(Revision::new(u64::MAX));
            put(store, TOO_LONG, KeyValuePutOptions::default().with_condition(at)).boxed()
        }),
        ("a_value_over_the_limit_in_a_new_bucket", "value", Some(4_194_304), |store| {
            async move {
                let value = Bytes::from(vec![0; TOO_LONG * 2]);
                let (bucket, key) = (BucketName::new("new")?, Key::new("new")?);
                store.put(&bucket, &key, value, KeyValuePutOptions::default()).await.map(|_| ())
            }
            .boxed()
        }),
        ("a_time_to_live_of_zero", "ttl", Some(1), |store| put_for(store, Duration::ZERO).boxed()),
        ("a_time_to_live_under_a_millisecond", "ttl", Some(1), |store| {
            put_for(store, Duration::from_micros(999)).boxed()
        }),
        ("a_time_to_live_over_a_hundred_years", "ttl", Some(TTL_MS_MAX), |store| {
            put_for(store, Duration::from_millis(TTL_MS_MAX + 1)).boxed()
        }),
        ("a_time_to_live_without_end", "ttl", Some(TTL_MS_MAX), |store| {
            put_for(store, Duration::MAX).boxed()
        }),
        ("a_time_to_live_past_64_bits_of_milliseconds", "ttl", Some(TTL_MS_MAX), |store| {
            put_for(store, Duration::from_secs(u64::MAX / 1000 + 1)).boxed()
        }),
        ("a_time_to_live_of_zero_where_the_condition_fails", "ttl", Some(1), |store| {
            let options = KeyValuePutOptions::default().with_ttl(Duration::ZERO);
            put(store, 1, options.with_condition(KeyValueCondition::Absent)).boxed()
        }),
    ]
}

fn lists() -> Vec<Row> {
    vec![
        ("a_list_over_the_limit", "limit", Some(10_000), |store| list(store, "", 10_001).boxed()),
        ("a_list_without_limit", "limit", Some(10_000), |store| list(store, "", usize::MAX).boxed()),
        ("a_list_over_the_limit_in_an_absent_bucket", "limit", Some(10_000), |store| {
            async move {
                let absent = BucketName::new("absent")?;
                store.list(&absent, "", PageRequest::first(10_001)).await.map(|_| ())
            }
            .boxed()
        }),
        ("a_list_by_a_prefix_over_the_limit", "prefix", Some(512), |store| {
            async move { list(store, &"p".repeat(513), 1).await }.boxed()
        }),
        ("a_list_by_a_prefix_over_the_limit_in_bytes", "prefix", Some(512), |store| {
            async move { list(store, &"é".repeat(257), 1).await }.boxed()
        }),
        ("a_list_by_a_prefix_with_nul", "prefix", None, |store| list(store, "kept\0", 1).boxed()),
        ("a_list_of_nothing_by_a_prefix_with_nul", "prefix", None, |store| list(store, "\0", 0).boxed()),
        ("a_list_of_buckets_over_the_limit", "limit", Some(10_000), |store| {
            async move { store.list_buckets(PageRequest::first(10_001)).await.map(|_| ()) }.boxed()
        }),
        ("a_list_of_buckets_without_limit", "limit", Some(10_000), |store| {
            async move { store.list_buckets(PageRequest::first(usize::MAX)).await.map(|_| ()) }.boxed()
        }),
    ]
}

fn watches() -> Vec<Row> {
    vec![
        ("a_watch_of_a_prefix_over_the_limit", "prefix", Some(512), |store| {
            async move { watch(store, &"p".repeat(513)).await }.boxed()
        }),
        ("a_watch_of_a_prefix_over_the_limit_in_bytes", "prefix", Some(512), |store| {
            async move { watch(store, &"🦀".repeat(129)).await }.boxed()
        }),
        ("a_watch_of_a_prefix_with_nul", "prefix", None, |store| watch(store, "a\0b").boxed()),
    ]
}

/// Returns the invalid ids. Their constructors reject them, so no call can contain them.
fn ids() -> Vec<Row> {
    fn made<T>(id: Result<T>) -> BoxFuture<'static, Result<()>> {
        std::future::ready(id.map(|_| ())).boxed()
    }
    vec![
        ("an_empty_bucket_name", "bucket", Some(1), |_| made(BucketName::new(""))),
        ("a_bucket_name_over_the_limit", "bucket", Some(512), |_| made(BucketName::new("b".repeat(513)))),
        ("a_bucket_name_with_nul", "bucket", None, |_| made(BucketName::new("a\0"))),
        ("an_empty_key", "key", Some(1), |_| made(Key::new(""))),
        ("a_key_over_the_limit", "key", Some(512), |_| made(Key::new("k".repeat(513)))),
        ("a_key_over_the_limit_in_bytes", "key", Some(512), |_| made(Key::new("é".repeat(257)))),
        ("a_key_with_nul", "key", None, |_| made(Key::new("\0k"))),
    ]
}
