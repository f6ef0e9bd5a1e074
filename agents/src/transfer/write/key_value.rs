//! Writes of values under their keys, several concurrently.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_kernel::limits::TTL_MS_MAX;
use larder_kernel::{KeyValueCondition, KeyValuePutOptions, KeyValueStore, Result, Timestamp};

use super::Change;
use crate::transfer::record::{Record, ValueRecord};

const PUTS: usize = 8;

pub(super) async fn write(store: &Arc<dyn KeyValueStore>, batch: Vec<(Change, Record)>) -> Result<()> {
    let puts = batch.into_iter().filter_map(|(change, record)| match record {
        Record::Value(value) => Some(put(Arc::clone(store), change, value)),
        _ => None,
    });
    stream::iter(puts).buffer_unordered(PUTS).try_collect().await
}

async fn put(store: Arc<dyn KeyValueStore>, change: Change, record: ValueRecord) -> Result<()> {
    let mut options = KeyValuePutOptions::default();
    if change == Change::New {
        options = options.with_condition(KeyValueCondition::Absent);
    }
    if let Some(expires_at) = record.expires_at {
        match remaining(expires_at) {
            Some(ttl) => options = options.with_ttl(ttl),
            // The key expired during the copy, so it is not written.
            None => return Ok(()),
        }
    }
    store.put(&record.bucket, &record.key, record.value, options).await.map(drop)
}

/// Returns the remaining time of the key, in whole milliseconds.
fn remaining(expires_at: Timestamp) -> Option<Duration> {
    let micros = expires_at.as_micros().saturating_sub(Timestamp::now().as_micros());
    let millis = u64::try_from(micros / 1_000).ok().filter(|millis| *millis > 0)?;
    Some(Duration::from_millis(millis.min(TTL_MS_MAX)))
}
