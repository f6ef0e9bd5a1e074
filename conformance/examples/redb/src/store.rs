//! The contract `KeyValueStore`.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder::storage::key_value::{
    check_get_many, check_list, check_list_entries, check_put, check_write, entries_page, many_page,
};
use larder::{
    BucketInfo, BucketName, Capabilities, Durability, Key, KeyRevision, KeyValueEntry, KeyValueEvents,
    KeyValueItem, KeyValuePutOptions, KeyValueQuery, KeyValueStore, KeyValueWrite, Namespace, OptionSet,
    Page, PageRequest, PrefixDeletion, RequestOption, Result, Revision, Store,
};

use crate::tables::{Failure, Tables, run};
use crate::watch;

/// The key-value store of one namespace of a file.
pub struct RedbKeyValueStore {
    namespace: Namespace,
    tables: Arc<Tables>,
}

impl RedbKeyValueStore {
    pub(crate) fn new(namespace: Namespace, tables: Arc<Tables>) -> Self {
        Self { namespace, tables }
    }

    /// Runs work on a thread that may block. The work of a dropped call runs to its end there, so it is
    /// atomic.
    async fn run<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(&Tables, &str) -> Result<T, Failure> + Send + 'static,
    ) -> Result<T> {
        let (tables, namespace) = (Arc::clone(&self.tables), self.namespace.clone());
        run(operation, move || work(&tables, namespace.as_str())).await
    }
}

// The `Debug` form shows no stored content, because it appears in logs (STORE-012).
impl fmt::Debug for RedbKeyValueStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedbKeyValueStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for RedbKeyValueStore {
    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::Power)
    }

    fn options(&self) -> OptionSet {
        OptionSet::of(&[
            RequestOption::ValueCondition,
            RequestOption::ValueTtl,
            RequestOption::EntriesFrom,
            RequestOption::EntriesTo,
            RequestOption::EntriesOrder,
            RequestOption::EntriesValues,
        ])
    }

    async fn erase(&self) -> Result<()> {
        self.run("store.erase", Tables::erase).await
    }
}

// Each method validates its input before the first I/O (STORE-010), with the checks of the kernel.
#[async_trait]
impl KeyValueStore for RedbKeyValueStore {
    async fn put(
        &self,
        bucket: &BucketName,
        key: &Key,
        value: Bytes,
        options: KeyValuePutOptions,
    ) -> Result<Revision> {
        check_put(&value, &options)?;
        let (bucket, key) = (bucket.clone(), key.clone());
        self.run("key_value.put", move |tables, namespace| {
            tables.put(namespace, bucket.as_str(), key.as_str(), &value, options)
        })
        .await
    }

    async fn get(&self, bucket: &BucketName, key: &Key) -> Result<Option<KeyValueEntry>> {
        let (bucket, key) = (bucket.clone(), key.clone());
        self.run("key_value.get", move |tables, namespace| {
            tables.get(namespace, bucket.as_str(), key.as_str())
        })
        .await
    }

    async fn delete(&self, bucket: &BucketName, key: &Key, at: Option<Revision>) -> Result<bool> {
        let (bucket, key) = (bucket.clone(), key.clone());
        self.run("key_value.delete", move |tables, namespace| {
            tables.delete(namespace, bucket.as_str(), key.as_str(), at)
        })
        .await
    }

    async fn get_many(
        &self,
        bucket: &BucketName,
        keys: &[Key],
    ) -> Result<Page<Option<KeyValueEntry>, usize>> {
        check_get_many(keys)?;
        let (bucket, keys) = (bucket.clone(), keys.to_vec());
        self.run("key_value.get_many", move |tables, namespace| {
            Ok(many_page(tables.get_many(namespace, bucket.as_str(), &keys)?, keys.len()))
        })
        .await
    }

    async fn write(&self, bucket: &BucketName, writes: Vec<KeyValueWrite>) -> Result<Vec<Option<Revision>>> {
        check_write(&writes)?;
        let bucket = bucket.clone();
        self.run("key_value.write", move |tables, namespace| {
            tables.write_keys(namespace, bucket.as_str(), &writes)
        })
        .await
    }

    async fn delete_prefix(&self, bucket: &BucketName, prefix: &str) -> Result<PrefixDeletion> {
        check_list("key_value.delete_prefix", prefix, None)?;
        let (bucket, prefix) = (bucket.clone(), prefix.to_owned());
        self.run("key_value.delete_prefix", move |tables, namespace| {
            tables.delete_prefix(namespace, bucket.as_str(), &prefix)
        })
        .await
    }

    async fn list_entries(
        &self,
        bucket: &BucketName,
        query: &KeyValueQuery,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyValueItem, Key>> {
        check_list_entries(query, &page)?;
        let (bucket, query) = (bucket.clone(), query.clone());
        self.run("key_value.list_entries", move |tables, namespace| {
            let found = tables.entries(namespace, bucket.as_str(), &query, &page)?;
            Ok(entries_page(found, query.values, page.limit))
        })
        .await
    }

    async fn list(
        &self,
        bucket: &BucketName,
        prefix: &str,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyRevision, Key>> {
        check_list("key_value.list", prefix, Some(&page))?;
        let (bucket, prefix, limit, after) = (bucket.clone(), prefix.to_owned(), page.limit, page.after);
        // Reads one more item than requested, to find out whether another page follows.
        let keys = self
            .run("key_value.list", move |tables, namespace| {
                let after = after.as_ref().map(Key::as_str);
                tables.list(namespace, bucket.as_str(), &prefix, after, limit + 1)
            })
            .await?;
        Ok(Page::from_surplus(keys, limit, |item| item.key.clone()))
    }

    async fn list_buckets(&self, page: PageRequest<BucketName>) -> Result<Page<BucketInfo, BucketName>> {
        page.check("key_value.list_buckets")?;
        let (limit, after) = (page.limit, page.after);
        let buckets = self
            .run("key_value.list_buckets", move |tables, namespace| {
                tables.list_buckets(namespace, after.as_ref().map(BucketName::as_str), limit + 1)
            })
            .await?;
        Ok(Page::from_surplus(buckets, limit, |info| info.bucket.clone()))
    }

    async fn watch(&self, bucket: &BucketName, prefix: &str, after: Revision) -> Result<KeyValueEvents> {
        check_list("key_value.watch", prefix, None)?;
        let named = bucket.clone();
        let last = move |tables: &Tables, namespace: &str| tables.last(namespace, named.as_str());
        let last = self.run("key_value.watch", last).await?;
        // A revision that the bucket never assigned comes from before an erasure or a loss (KV-052).
        after.check_resume("key_value.watch", "after", last)?;
        let at = after.anchored(last);
        Ok(watch::events(Arc::clone(&self.tables), self.namespace.clone(), bucket.clone(), prefix, at))
    }
}
