//! Invalid calls of [`KeyValueStore`](larder_kernel::KeyValueStore).

mod batch;

use std::time::Duration;

use bytes::Bytes;
use larder_kernel::limits::VALUE_BYTES_MAX;
use larder_kernel::{BucketName, Key, KeyValueCondition, KeyValuePutOptions, PageRequest, Revision};

use super::inputs::{Rule, at_most, durations, limits, prefixes, refused_ids};
use super::{Refusal, Table, table};

/// The targets of a put: an existing key, a missing key, a deleted key, and a missing bucket.
const PLACES: [(&str, &str); 4] = [
    ("kept-bucket", "kept/key-0"),
    ("kept-bucket", "new"),
    ("kept-bucket", "deleted kept"),
    ("absent", "new"),
];

/// Conditions that hold and that do not: invalid input takes precedence over them.
const CONDITIONS: [KeyValueCondition; 4] = [
    KeyValueCondition::None,
    KeyValueCondition::Absent,
    KeyValueCondition::AtRevision(Revision::new(1)),
    KeyValueCondition::AtRevision(Revision::new(u64::MAX)),
];

pub(super) fn tables() -> Vec<Table> {
    let own = vec![
        table("value_that_is_too_large", values()),
        table("time_to_live", lives()),
        table("page_that_is_too_long", pages()),
        table("prefix_of_a_list", listed()),
        table("prefix_of_a_watch", watched()),
        table("id", ids()),
    ];
    own.into_iter().chain(batch::tables()).collect()
}

fn put(what: &str, field: &'static str, limit: Rule, value: &Bytes, ttl: Option<Duration>) -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (bucket, key) in PLACES {
        for condition in CONDITIONS {
            let value = value.clone();
            let what = format!("{what} at {key} of {bucket}, {condition:?}");
            rows.push(Refusal::new("key_value.put", what, field, limit, move |stores| {
                let value = value.clone();
                Box::pin(async move {
                    let (bucket, key) = (BucketName::new(bucket)?, Key::new(key)?);
                    let options = KeyValuePutOptions::default().with_condition(condition).with_ttl(ttl);
                    stores.key_value()?.put(&bucket, &key, value, options).await.map(drop)
                })
            }));
        }
    }
    rows
}

fn values() -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (what, size) in [("a byte too many", VALUE_BYTES_MAX + 1), ("twice too many", VALUE_BYTES_MAX * 2)] {
        let value = Bytes::from(vec![b'x'; size]);
        rows.extend(put(what, "value", at_most(VALUE_BYTES_MAX), &value, None));
    }
    rows
}

fn lives() -> Vec<Refusal> {
    let value = Bytes::from_static(b"lost");
    let row = |(what, limit, time)| put(what, "ttl", limit, &value, Some(time));
    durations().into_iter().flat_map(row).collect()
}

fn pages() -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (what, most, count) in limits() {
        for after in [None, Some("kept/key-0")] {
            for bucket in ["kept-bucket", "absent"] {
                for prefix in ["", "kept"] {
                    let what = format!("{prefix:?} of {bucket} after {after:?}: {what}");
                    rows.push(Refusal::new("key_value.list", what, "limit", most, move |stores| {
                        Box::pin(async move {
                            let page = PageRequest::first(count).with_after(after.map(Key::new).transpose()?);
                            let bucket = BucketName::new(bucket)?;
                            stores.key_value()?.list(&bucket, prefix, page).await.map(drop)
                        })
                    }));
                }
            }
            rows.push(Refusal::new(
                "key_value.list_buckets",
                format!("buckets after {after:?}: {what}"),
                "limit",
                most,
                move |stores| {
                    Box::pin(async move {
                        let page =
                            PageRequest::first(count).with_after(after.map(BucketName::new).transpose()?);
                        stores.key_value()?.list_buckets(page).await.map(drop)
                    })
                },
            ));
        }
    }
    rows
}

fn listed() -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (what, limit, prefix) in prefixes() {
        for bucket in ["kept-bucket", "absent"] {
            for count in [0, 1, 10_000] {
                for after in [None, Some("kept/key-0")] {
                    let what = format!("{what} in {bucket}, {count} after {after:?}");
                    rows.push(Refusal::new("key_value.list", what, "prefix", limit, move |stores| {
                        Box::pin(async move {
                            let page = PageRequest::first(count).with_after(after.map(Key::new).transpose()?);
                            let bucket = BucketName::new(bucket)?;
                            stores.key_value()?.list(&bucket, prefix, page).await.map(drop)
                        })
                    }));
                }
            }
        }
    }
    rows
}

fn watched() -> Vec<Refusal> {
    let mut rows = Vec::new();
    for (what, limit, prefix) in prefixes() {
        for bucket in ["kept-bucket", "absent"] {
            for after in [0, 1, u64::MAX] {
                let what = format!("{what} in {bucket} after {after}");
                rows.push(Refusal::new("key_value.watch", what, "prefix", limit, move |stores| {
                    Box::pin(async move {
                        let (bucket, after) = (BucketName::new(bucket)?, Revision::new(after));
                        stores.key_value()?.watch(&bucket, prefix, after).await.map(drop)
                    })
                }));
            }
        }
    }
    rows
}

fn ids() -> Vec<Refusal> {
    [refused_ids("bucket", BucketName::new), refused_ids("key", Key::new)].concat()
}
