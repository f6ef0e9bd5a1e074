//! Buckets in order, each with its keys and values.

use std::sync::Arc;

use futures_util::{StreamExt, TryStreamExt, stream};
use larder_kernel::{
    BucketInfo, BucketName, Contract, Key, KeyValueEntry, KeyValueStore, Page, PageRequest, Result,
};

use super::pages::Pages;
use crate::transfer::missing::Skips;
use crate::transfer::record::{Record, ValueRecord};

const BUCKETS: usize = 500;
/// The number of values in memory; each may have 4 MiB.
const VALUES: usize = 64;
/// The number of concurrent reads.
const GETS: usize = 8;

pub(crate) struct ValueScan {
    store: Arc<dyn KeyValueStore>,
    buckets: Pages<BucketInfo, BucketName>,
    current: Option<Pages<ValueRecord, Key>>,
    skips: Skips,
}

impl ValueScan {
    pub(super) fn new(store: &Arc<dyn KeyValueStore>, skips: &Skips) -> Self {
        let listed = Arc::clone(store);
        let buckets = Pages::new(BUCKETS, move |page| {
            let store = Arc::clone(&listed);
            Box::pin(async move { store.list_buckets(page).await })
        });
        let buckets = buckets.skipping(skips, Contract::KeyValue, |after: Option<&BucketName>| match after {
            Some(bucket) => format!("the buckets after {bucket}"),
            None => "all buckets".to_owned(),
        });
        Self { store: Arc::clone(store), buckets, current: None, skips: skips.clone() }
    }

    pub(super) async fn next(&mut self) -> Result<Option<Record>> {
        loop {
            if let Some(values) = &mut self.current {
                if let Some(value) = values.next().await? {
                    return Ok(Some(Record::Value(value)));
                }
                self.current = None;
            }
            let Some(info) = self.buckets.next().await? else { return Ok(None) };
            let (store, bucket, name) = (Arc::clone(&self.store), info.bucket.clone(), info.bucket);
            let skips = self.skips.clone();
            let pages = Pages::new(VALUES, move |page| {
                Box::pin(values(Arc::clone(&store), bucket.clone(), page, skips.clone()))
            });
            self.current = Some(pages.skipping(&self.skips, Contract::KeyValue, move |after| match after {
                Some(key) => format!("the keys of the bucket {name} after {key}"),
                None => format!("the keys of the bucket {name}"),
            }));
        }
    }
}

async fn values(
    store: Arc<dyn KeyValueStore>,
    bucket: BucketName,
    page: PageRequest<Key>,
    skips: Skips,
) -> Result<Page<ValueRecord, Key>> {
    let listed = store.list(&bucket, "", page).await?;
    let gets = listed
        .items
        .into_iter()
        .map(|item| value(Arc::clone(&store), bucket.clone(), item.key, skips.clone()));
    let items: Vec<Option<ValueRecord>> = stream::iter(gets).buffered(GETS).try_collect().await?;
    Ok(Page::new(items.into_iter().flatten().collect(), listed.next))
}

/// Returns the value of a listed key, or `None` if it was deleted or has expired since.
async fn value(
    store: Arc<dyn KeyValueStore>,
    bucket: BucketName,
    key: Key,
    skips: Skips,
) -> Result<Option<ValueRecord>> {
    let entry = match store.get(&bucket, &key).await {
        Err(error) => {
            skips.skip(Contract::KeyValue, || format!("the key {key} of the bucket {bucket}"), error)?;
            return Ok(None);
        }
        Ok(entry) => entry,
    };
    Ok(entry.map(|KeyValueEntry { value, expires_at, .. }| ValueRecord { bucket, key, value, expires_at }))
}
