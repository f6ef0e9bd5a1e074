//! A dump of all readable data, and sample data.

use std::time::Duration;

use bytes::Bytes;
use larder_kernel::{BucketName, KeyValuePutOptions, KeyValueStore, KeyValueStoreExt, PageRequest};
use serde_json::{Map, Value};

use super::support::{bucket, buckets, bytes, key, listed};
use crate::case::{CaseResult, Failure, implemented};
use crate::suites::known;

/// Reads all buckets with their keys, values, revisions and times to live.
pub(crate) async fn dump(store: &dyn KeyValueStore) -> CaseResult<Value> {
    let mut whole = Map::new();
    if implemented(store.list_buckets(PageRequest::first(1)).await)?.is_none() {
        return known_buckets(store).await;
    }
    for info in buckets(store, 100).await? {
        let mut entries = vec![Value::from(info.keys)];
        entries.extend(keys(store, &info.bucket).await?);
        whole.insert(info.bucket.into(), Value::from(entries));
    }
    Ok(Value::Object(whole))
}

/// Reads the buckets that the suite writes, from a store that cannot list them yet.
async fn known_buckets(store: &dyn KeyValueStore) -> CaseResult<Value> {
    let mut names: Vec<String> = ["bucket", "other", "their", "new"].map(str::to_owned).into();
    names.extend(known::marked(|marker| [format!("{marker}-bucket"), format!("{marker}:bucket")]).flatten());
    let mut whole = Map::new();
    for name in names {
        let keys = keys(store, &bucket(&name)?).await?;
        if !keys.is_empty() {
            whole.insert(name, Value::from(keys));
        }
    }
    Ok(Value::Object(whole))
}

/// Reads the keys of a bucket. If the store cannot list yet, reads the keys that the suite writes.
async fn keys(store: &dyn KeyValueStore, bucket: &BucketName) -> CaseResult<Vec<Value>> {
    let mut rows = Vec::new();
    let mut push = |row: Result<Value, serde_json::Error>| {
        rows.push(row.map_err(|error| Failure::Engine(format!("cannot write a dump: {error}")))?);
        CaseResult::Ok(())
    };
    if implemented(store.list(bucket, "", PageRequest::first(1)).await)?.is_some() {
        for item in listed(store, bucket, "", 100).await? {
            push(serde_json::to_value((&item, store.get(bucket, &item.key).await?)))?;
        }
        return Ok(rows);
    }
    let called = ["brief", "k", "k/1", "z", "k/their", "their", "gone", "live", "more", "new"];
    let mut names: Vec<String> = called.map(str::to_owned).into();
    for marker in known::marked(|marker| marker) {
        names.extend((0..3).map(|number| format!("{marker}/key-{number}")));
        names.extend(["brief", "empty", "deleted"].map(|name| format!("{name} {marker}")));
    }
    for name in names {
        if let Some(entry) = store.get(bucket, &key(&name)?).await? {
            push(serde_json::to_value((name, entry)))?;
        }
    }
    Ok(rows)
}

/// Writes a few keys in two buckets, with and without a time to live; one key is deleted again if the store
/// implements that.
pub(crate) async fn populate(store: &dyn KeyValueStore, marker: &str) -> CaseResult {
    for name in [format!("{marker}-bucket"), format!("{marker}:bucket")] {
        let bucket = bucket(&name)?;
        for number in 0..3 {
            let value = bytes(&format!("{marker} value {number}"));
            store.set(&bucket, &key(&format!("{marker}/key-{number}"))?, value).await?;
        }
        let hour = KeyValuePutOptions::default().with_ttl(Duration::from_secs(3600));
        store.put(&bucket, &key(&format!("brief {marker}"))?, bytes(marker), hour).await?;
        store.set(&bucket, &key(&format!("empty {marker}"))?, Bytes::new()).await?;
        let deleted = key(&format!("deleted {marker}"))?;
        store.set(&bucket, &deleted, bytes(marker)).await?;
        implemented(store.delete(&bucket, &deleted, None).await)?;
    }
    Ok(())
}
