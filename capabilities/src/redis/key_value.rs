//! The key-value store in Redis.
//!
//! A bucket is seven keys in one slot. `meta` holds the last revision, the greatest
//! forgotten one and the format number.
//! `values` holds the values. Three sorted sets hold the keys by name (`names`), by revision (`revisions`)
//! and by expiry (`expiries`). Two more hold the removed keys: by the revision of the deletion (`deleted`),
//! or of the put that expired (`expired`).
//!
//! The scripts evaluate expiry by the server's clock, so reads and conditions agree to the millisecond.
//! Writes remove entries that expired more than a minute ago. If all keys of a bucket have a time to live,
//! its values also get an expiry on the server, one minute after the last of them. So their memory is freed
//! even without another write.

mod batch;
mod rows;
pub(super) mod verify;
mod watch;

use async_trait::async_trait;
use bytes::Bytes;
use larder_kernel::storage::key_value::{
    check_get_many, check_list, check_list_entries, check_put, check_write,
};
use larder_kernel::{
    BucketInfo, BucketName, Key, KeyRevision, KeyValueEntry, KeyValueEvents, KeyValueItem,
    KeyValuePutOptions, KeyValueQuery, KeyValueStore, KeyValueWrite, Namespace, Page, PageRequest,
    PrefixDeletion, Result, Revision,
};

use super::engine::Engine;
use super::index::Index;

/// The parts of a bucket in addition to `meta`.
const PARTS: &[&str] = &["values", "names", "revisions", "expiries", "deleted", "expired"];

/// A [`KeyValueStore`] on a Redis server or cluster: the buckets of one namespace.
pub struct RedisKeyValueStore {
    engine: Engine,
    namespace: Namespace,
    index: Index,
}

impl RedisKeyValueStore {
    pub(crate) fn new(engine: Engine, namespace: Namespace) -> Self {
        let index = Index::new(engine.prefix(), "kv", &namespace);
        Self { engine, namespace, index }
    }
}

store! {
    RedisKeyValueStore as store,
    shows: { engine: &store.engine },
    capabilities: store.engine.capabilities(),
    options: [ValueCondition, ValueTtl, EntriesFrom, EntriesTo, EntriesOrder, EntriesValues],
    erase: store.engine.erase("key_value.erase", &store.index, PARTS).await,
}

#[async_trait]
impl KeyValueStore for RedisKeyValueStore {
    async fn put(
        &self,
        bucket: &BucketName,
        key: &Key,
        value: Bytes,
        options: KeyValuePutOptions,
    ) -> Result<Revision> {
        check_put(&value, &options)?;
        rows::put(&self.engine, &self.index, bucket, key, value, options).await
    }

    async fn get(&self, bucket: &BucketName, key: &Key) -> Result<Option<KeyValueEntry>> {
        rows::get(&self.engine, &self.index, bucket, key).await
    }

    async fn get_many(
        &self,
        bucket: &BucketName,
        keys: &[Key],
    ) -> Result<Page<Option<KeyValueEntry>, usize>> {
        check_get_many(keys)?;
        batch::get_many(&self.engine, &self.index, bucket, keys).await
    }

    async fn write(&self, bucket: &BucketName, writes: Vec<KeyValueWrite>) -> Result<Vec<Option<Revision>>> {
        check_write(&writes)?;
        batch::write(&self.engine, &self.index, bucket, writes).await
    }

    async fn delete(&self, bucket: &BucketName, key: &Key, at: Option<Revision>) -> Result<bool> {
        rows::delete(&self.engine, &self.index, bucket, key, at).await
    }

    async fn delete_prefix(&self, bucket: &BucketName, prefix: &str) -> Result<PrefixDeletion> {
        check_list("key_value.delete_prefix", prefix, None)?;
        batch::delete_prefix(&self.engine, &self.index, bucket, prefix).await
    }

    async fn list_entries(
        &self,
        bucket: &BucketName,
        query: &KeyValueQuery,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyValueItem, Key>> {
        check_list_entries(query, &page)?;
        batch::entries(&self.engine, &self.index, bucket, query, &page).await
    }

    async fn list(
        &self,
        bucket: &BucketName,
        prefix: &str,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyRevision, Key>> {
        check_list("key_value.list", prefix, Some(&page))?;
        rows::list(&self.engine, &self.index, bucket, prefix, &page).await
    }

    async fn list_buckets(&self, page: PageRequest<BucketName>) -> Result<Page<BucketInfo, BucketName>> {
        page.check("key_value.list_buckets")?;
        let found = rows::buckets(&self.engine, &self.index, &page).await?;
        Ok(Page::from_surplus(found, page.limit, |found| found.bucket.clone()))
    }

    async fn watch(&self, bucket: &BucketName, prefix: &str, after: Revision) -> Result<KeyValueEvents> {
        check_list("key_value.watch", prefix, None)?;
        watch::follow(self.engine.clone(), self.index.entity(bucket.as_str()), prefix, after).await
    }
}
