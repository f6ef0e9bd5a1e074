//! The key-value store in SQLite.
//!
//! A bucket's row holds its last revision, and each write takes the next one in the same transaction. Watches
//! read entries and tombstones in the order of revisions. An expired entry reads as absent. A later write to
//! its bucket, or the expiry task, replaces it with a tombstone. This frees its value and still reports the
//! removal of the key to a late watcher.

mod batch;
mod expiry;
mod rows;
mod watch;

#[cfg(test)]
mod tests;

use async_trait::async_trait;
use bytes::Bytes;
use larder_kernel::storage::key_value::{
    check_get_many, check_list, check_list_entries, check_put, check_write, entries_page, many_page,
};
use larder_kernel::{
    BucketInfo, BucketName, Key, KeyRevision, KeyValueEntry, KeyValueEvents, KeyValueItem,
    KeyValuePutOptions, KeyValueQuery, KeyValueStore, KeyValueWrite, Namespace, Page, PageRequest,
    PrefixDeletion, Result, Revision,
};
use rusqlite::Connection;

use super::engine::{Engine, ReadBudget};
use super::value::now_ms;
pub(crate) use expiry::{is_due, remove_expired};
use rows::Address;

/// A [`KeyValueStore`] in an SQLite file: the buckets of one namespace.
pub struct SqliteKeyValueStore {
    engine: Engine,
    namespace: Namespace,
}

impl SqliteKeyValueStore {
    pub(crate) fn new(engine: Engine, namespace: Namespace) -> Self {
        Self { engine, namespace }
    }

    fn address(&self, bucket: &BucketName) -> Address {
        Address { namespace: self.namespace.clone(), bucket: bucket.clone() }
    }
}

store! {
    SqliteKeyValueStore as store,
    shows: { engine: &store.engine },
    capabilities: super::capabilities(&store.engine),
    options: [ValueCondition, ValueTtl, EntriesFrom, EntriesTo, EntriesOrder, EntriesValues],
    erase: {
        let namespace = store.namespace.clone();
        let job = move |sql: &Connection| {
            for delete in [
                "DELETE FROM kv_entries WHERE namespace = ?1",
                "DELETE FROM kv_tombstones WHERE namespace = ?1",
                "DELETE FROM kv_buckets WHERE namespace = ?1",
            ] {
                sql.prepare_cached(delete)?.execute([namespace.as_str()])?;
            }
            Ok(())
        };
        store.engine.write("key_value.erase", job).await
    },
}

#[async_trait]
impl KeyValueStore for SqliteKeyValueStore {
    async fn put(
        &self,
        bucket: &BucketName,
        key: &Key,
        value: Bytes,
        options: KeyValuePutOptions,
    ) -> Result<Revision> {
        check_put(&value, &options)?;
        let (address, key) = (self.address(bucket), key.clone());
        self.engine.write("key_value.put", move |sql| rows::put(sql, &address, &key, &value, options)).await
    }

    async fn get(&self, bucket: &BucketName, key: &Key) -> Result<Option<KeyValueEntry>> {
        let (address, key) = (self.address(bucket), key.clone());
        let get =
            move |sql: &Connection, budget: &mut ReadBudget| rows::get(sql, &address, &key, now_ms(), budget);
        self.engine.read_inline("key_value.get", get).await
    }

    async fn get_many(
        &self,
        bucket: &BucketName,
        keys: &[Key],
    ) -> Result<Page<Option<KeyValueEntry>, usize>> {
        check_get_many(keys)?;
        let (address, keys) = (self.address(bucket), keys.to_vec());
        let count = keys.len();
        let job = move |sql: &Connection| batch::get_many(sql, &address, &keys);
        Ok(many_page(self.engine.read("key_value.get_many", job).await?, count))
    }

    async fn write(&self, bucket: &BucketName, writes: Vec<KeyValueWrite>) -> Result<Vec<Option<Revision>>> {
        check_write(&writes)?;
        let address = self.address(bucket);
        self.engine.write("key_value.write", move |sql| batch::write(sql, &address, &writes)).await
    }

    async fn delete(&self, bucket: &BucketName, key: &Key, at: Option<Revision>) -> Result<bool> {
        let (address, key) = (self.address(bucket), key.clone());
        self.engine.write("key_value.delete", move |sql| rows::delete(sql, &address, &key, at)).await
    }

    async fn delete_prefix(&self, bucket: &BucketName, prefix: &str) -> Result<PrefixDeletion> {
        const OPERATION: &str = "key_value.delete_prefix";
        check_list(OPERATION, prefix, None)?;
        let (address, prefix) = (self.address(bucket), prefix.to_owned());
        self.engine.write(OPERATION, move |sql| batch::delete_prefix(sql, &address, &prefix)).await
    }

    async fn list_entries(
        &self,
        bucket: &BucketName,
        query: &KeyValueQuery,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyValueItem, Key>> {
        check_list_entries(query, &page)?;
        let (address, query) = (self.address(bucket), query.clone());
        let (values, limit) = (query.values, page.limit);
        let job = move |sql: &Connection| batch::entries(sql, &address, &query, &page);
        Ok(entries_page(self.engine.read("key_value.list_entries", job).await?, values, limit))
    }

    async fn list(
        &self,
        bucket: &BucketName,
        prefix: &str,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyRevision, Key>> {
        const OPERATION: &str = "key_value.list";
        check_list(OPERATION, prefix, Some(&page))?;
        let (address, prefix, limit) = (self.address(bucket), prefix.to_owned(), page.limit);
        let job = move |sql: &Connection| rows::list(sql, &address, &prefix, &page);
        let found = self.engine.read(OPERATION, job).await?;
        Ok(Page::from_surplus(found, limit, |found| found.key.clone()))
    }

    async fn list_buckets(&self, page: PageRequest<BucketName>) -> Result<Page<BucketInfo, BucketName>> {
        const OPERATION: &str = "key_value.list_buckets";
        page.check(OPERATION)?;
        let (namespace, limit) = (self.namespace.clone(), page.limit);
        let found = self.engine.read(OPERATION, move |sql| rows::buckets(sql, &namespace, &page)).await?;
        Ok(Page::from_surplus(found, limit, |found| found.bucket.clone()))
    }

    async fn watch(&self, bucket: &BucketName, prefix: &str, after: Revision) -> Result<KeyValueEvents> {
        check_list("key_value.watch", prefix, None)?;
        watch::follow(self.engine.clone(), self.address(bucket), prefix, after).await
    }
}
