//! The key-value store in Postgres.
//!
//! A bucket's row holds its last revision and orders its writers. Each write is one call of a function in the
//! database. Watches read entries and tombstones in the order of revisions.

mod batch;
mod rows;
mod watch;

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

use super::engine::Engine;
use rows::Address;

/// A [`KeyValueStore`] in a Postgres database: the buckets of one namespace.
pub struct PostgresKeyValueStore {
    engine: Engine,
    namespace: Namespace,
}

impl PostgresKeyValueStore {
    pub(crate) fn new(engine: Engine, namespace: Namespace) -> Self {
        Self { engine, namespace }
    }

    fn address(&self, bucket: &BucketName) -> Address {
        Address { namespace: self.namespace.clone(), bucket: bucket.clone() }
    }
}

store! {
    PostgresKeyValueStore as store,
    shows: { engine: &store.engine },
    capabilities: store.engine.capabilities(),
    options: [ValueCondition, ValueTtl, EntriesFrom, EntriesTo, EntriesOrder, EntriesValues],
    erase: store.engine
        .transaction("key_value.erase", &store.namespace, |sql, namespace| rows::erase(sql, namespace))
        .await,
}

#[async_trait]
impl KeyValueStore for PostgresKeyValueStore {
    async fn put(
        &self,
        bucket: &BucketName,
        key: &Key,
        value: Bytes,
        options: KeyValuePutOptions,
    ) -> Result<Revision> {
        check_put(&value, &options)?;
        let put = rows::Put { address: self.address(bucket), key: key.clone(), value, options };
        self.engine.statement("key_value.put", &put, rows::put).await
    }

    async fn get(&self, bucket: &BucketName, key: &Key) -> Result<Option<KeyValueEntry>> {
        let wanted = (self.address(bucket), key.clone());
        self.engine.read("key_value.get", &wanted, |sql, (address, key)| rows::get(sql, address, key)).await
    }

    async fn get_many(
        &self,
        bucket: &BucketName,
        keys: &[Key],
    ) -> Result<Page<Option<KeyValueEntry>, usize>> {
        check_get_many(keys)?;
        let wanted = (self.address(bucket), keys);
        let found = self
            .engine
            .read("key_value.get_many", &wanted, |sql, (address, keys)| batch::get_many(sql, address, keys))
            .await?;
        Ok(many_page(found, keys.len()))
    }

    async fn write(&self, bucket: &BucketName, writes: Vec<KeyValueWrite>) -> Result<Vec<Option<Revision>>> {
        check_write(&writes)?;
        self.engine.statement("key_value.write", &(self.address(bucket), writes), batch::write).await
    }

    async fn delete(&self, bucket: &BucketName, key: &Key, at: Option<Revision>) -> Result<bool> {
        let wanted = (self.address(bucket), key.clone());
        self.engine
            .statement("key_value.delete", &wanted, |sql, write, (address, key)| {
                rows::delete(sql, write, address, key, at)
            })
            .await
    }

    async fn delete_prefix(&self, bucket: &BucketName, prefix: &str) -> Result<PrefixDeletion> {
        const OPERATION: &str = "key_value.delete_prefix";
        check_list(OPERATION, prefix, None)?;
        let wanted = (self.address(bucket), prefix.to_owned());
        self.engine.statement(OPERATION, &wanted, batch::delete_prefix).await
    }

    async fn list_entries(
        &self,
        bucket: &BucketName,
        query: &KeyValueQuery,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyValueItem, Key>> {
        check_list_entries(query, &page)?;
        let wanted = (self.address(bucket), query.clone(), page);
        let found = self.engine.read("key_value.list_entries", &wanted, batch::entries).await?;
        Ok(entries_page(found, query.values, wanted.2.limit))
    }

    async fn list(
        &self,
        bucket: &BucketName,
        prefix: &str,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyRevision, Key>> {
        const OPERATION: &str = "key_value.list";
        check_list(OPERATION, prefix, Some(&page))?;
        let limit = page.limit;
        let wanted = (self.address(bucket), prefix.to_owned(), page);
        let found = self
            .engine
            .read(OPERATION, &wanted, |sql, (address, prefix, page)| rows::list(sql, address, prefix, page))
            .await?;
        Ok(Page::from_surplus(found, limit, |found| found.key.clone()))
    }

    async fn list_buckets(&self, page: PageRequest<BucketName>) -> Result<Page<BucketInfo, BucketName>> {
        const OPERATION: &str = "key_value.list_buckets";
        page.check(OPERATION)?;
        let limit = page.limit;
        let wanted = (self.namespace.clone(), page);
        let found = self
            .engine
            .read(OPERATION, &wanted, |sql, (namespace, page)| rows::buckets(sql, namespace, page))
            .await?;
        Ok(Page::from_surplus(found, limit, |found| found.bucket.clone()))
    }

    async fn watch(&self, bucket: &BucketName, prefix: &str, after: Revision) -> Result<KeyValueEvents> {
        check_list("key_value.watch", prefix, None)?;
        watch::follow(self.engine.clone(), self.address(bucket), prefix, after).await
    }
}
