//! A dump of all readable data, and sample data.

use std::time::Duration;

use bytes::Bytes;
use larder_kernel::{KeyValuePutOptions, KeyValueStore, KeyValueStoreExt};
use serde_json::{Map, Value};

use super::support::{bucket, buckets, bytes, key, listed};
use crate::case::{CaseResult, Failure};

/// Reads all buckets with their keys, values, revisions and times to live.
pub(crate) async fn dump(store: &dyn KeyValueStore) -> CaseResult<Value> {
    let mut whole = Map::new();
    for info in buckets(store, 100).await? {
        let mut entries = vec![Value::from(info.keys)];
        for item in listed(store, &info.bucket, "", 100).await? {
            let entry = store.get(&info.bucket, &item.key).await?;
            let row = serde_json::to_value((&item, &entry));
            entries.push(row.map_err(|error| Failure::Engine(format!("cannot write a dump: {error}")))?);
        }
        whole.insert(info.bucket.into(), Value::from(entries));
    }
    Ok(Value::Object(whole))
}

/// Writes a few keys in two buckets, with and without a time to live; one key is deleted again.
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
        store.delete(&bucket, &deleted, None).await?;
    }
    Ok(())
}
