//! An in-memory key-value store.

mod bucket;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use larder_kernel::storage::key_value::{
    check_get_many, check_list, check_list_entries, check_put, check_write, entries_page, many_page,
};
use larder_kernel::{
    BucketInfo, BucketName, Capabilities, Durability, Key, KeyRevision, KeyValueCondition, KeyValueEntry,
    KeyValueEvents, KeyValueItem, KeyValuePutOptions, KeyValueQuery, KeyValueStore, KeyValueWrite,
    KeyValueWriteKind, Namespace, OptionSet, Page, PageRequest, PrefixDeletion, RequestOption, Result,
    Revision, Store,
};

use super::backend::{MemoryBackend, default_namespace, now_ms};
use super::sharded_map::{LogPage, Record, ShardedMap};
use bucket::{Bucket, Progress};

type Buckets = ShardedMap<BucketName, Bucket>;

/// An in-memory [`KeyValueStore`].
///
/// For watchers, a bucket remembers its last 1,000 deletions and its last 1,000 expired puts. It keeps the
/// values of expired puts for one minute.
///
/// ```
/// use larder_agents::storage::InMemoryKeyValueStore;
/// use larder_kernel::{BucketName, ErrorKind, Key, KeyValueStore, KeyValueStoreExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let store = InMemoryKeyValueStore::new();
/// let (bucket, key) = (BucketName::new("settings")?, Key::new("theme")?);
/// let first = store.create(&bucket, &key, "dark".into()).await?;
/// store.put_at(&bucket, &key, "light".into(), first).await?;
///
/// let lost = store.put_at(&bucket, &key, "blue".into(), first).await.unwrap_err();
/// assert_eq!(lost.kind(), ErrorKind::Conflict);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct InMemoryKeyValueStore {
    backend: MemoryBackend,
    namespace: Namespace,
    buckets: Arc<Buckets>,
}

impl InMemoryKeyValueStore {
    /// Creates a store in a new backend, in the namespace `default`.
    #[must_use]
    pub fn new() -> Self {
        Self::open(&MemoryBackend::new(), default_namespace())
    }

    /// Opens the store of `namespace` on `backend`. All handles with the same backend and namespace share it.
    #[must_use]
    pub fn open(backend: &MemoryBackend, namespace: Namespace) -> Self {
        let buckets = backend.namespace_state::<Buckets>(&namespace);
        Self { backend: backend.clone(), namespace, buckets }
    }

    fn read<R>(&self, bucket: &BucketName, work: impl FnOnce(&Bucket) -> R) -> Option<R> {
        self.buckets.read(bucket, |state| {
            state.expire(&self.backend, now_ms());
            work(state)
        })
    }
}

impl Default for InMemoryKeyValueStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for InMemoryKeyValueStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryKeyValueStore").field("backend", &self.backend).finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for InMemoryKeyValueStore {
    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::None)
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
        self.buckets.erase(|bucket| self.backend.release(bucket.held()));
        Ok(())
    }
}

#[async_trait]
impl KeyValueStore for InMemoryKeyValueStore {
    async fn put(
        &self,
        bucket: &BucketName,
        key: &Key,
        value: Bytes,
        options: KeyValuePutOptions,
    ) -> Result<Revision> {
        check_put(&value, &options)?;
        // The bytes are copied, because the caller's may be a slice that keeps a larger buffer alive.
        let value = Bytes::copy_from_slice(&value);
        let at_revision = matches!(options.condition, KeyValueCondition::AtRevision(_));
        let put = |state: &mut Bucket| {
            let now = now_ms();
            state.expire(&self.backend, now);
            state.put(&self.backend, key, value, options, now)
        };
        if at_revision {
            // This fails for a missing bucket, and then creates none.
            let done = self.buckets.change(&self.backend, bucket, put);
            return done.unwrap_or_else(|| Err(bucket::at_another_revision("key_value.put")));
        }
        self.buckets.write(&self.backend, bucket, || Bucket::new("key_value.put", &self.backend, bucket), put)
    }

    async fn get(&self, bucket: &BucketName, key: &Key) -> Result<Option<KeyValueEntry>> {
        Ok(self.read(bucket, |state| state.get(key)).flatten())
    }

    async fn get_many(
        &self,
        bucket: &BucketName,
        keys: &[Key],
    ) -> Result<Page<Option<KeyValueEntry>, usize>> {
        check_get_many(keys)?;
        let found = self.read(bucket, |state| keys.iter().map(|key| state.get(key)).collect::<Vec<_>>());
        Ok(many_page(found.unwrap_or_else(|| vec![None; keys.len()]), keys.len()))
    }

    async fn write(
        &self,
        bucket: &BucketName,
        mut writes: Vec<KeyValueWrite>,
    ) -> Result<Vec<Option<Revision>>> {
        check_write(&writes)?;
        let mut creates = false;
        for write in &mut writes {
            if let KeyValueWriteKind::Put { value, .. } = &mut write.kind {
                *value = Bytes::copy_from_slice(value);
                creates = true;
            }
        }
        let conditional =
            |write: &KeyValueWrite| !matches!(write.kind, KeyValueWriteKind::Delete { at: None });
        let (count, first) = (writes.len(), writes.iter().position(conditional));
        let write = |state: &mut Bucket| {
            let now = now_ms();
            state.expire(&self.backend, now);
            state.write(&self.backend, writes, now)
        };
        if creates {
            let make = || Bucket::new("key_value.write", &self.backend, bucket);
            return self.buckets.write(&self.backend, bucket, make, write);
        }
        // Without a put, a missing bucket remains missing.
        match (self.buckets.change(&self.backend, bucket, write), first) {
            (Some(done), _) => done,
            (None, None) => Ok(vec![None; count]),
            (None, Some(index)) => Err(KeyValueWrite::conflict(index)),
        }
    }

    async fn delete(&self, bucket: &BucketName, key: &Key, at: Option<Revision>) -> Result<bool> {
        let done = self.buckets.change(&self.backend, bucket, |state| {
            state.expire(&self.backend, now_ms());
            state.delete(&self.backend, key, at)
        });
        match (done, at) {
            (Some(done), _) => done,
            (None, None) => Ok(false),
            (None, Some(_)) => Err(bucket::at_another_revision("key_value.delete")),
        }
    }

    async fn delete_prefix(&self, bucket: &BucketName, prefix: &str) -> Result<PrefixDeletion> {
        check_list("key_value.delete_prefix", prefix, None)?;
        let done = self.buckets.change(&self.backend, bucket, |state| {
            state.expire(&self.backend, now_ms());
            state.delete_prefix(&self.backend, prefix)
        });
        done.unwrap_or_else(|| Ok(PrefixDeletion::default()))
    }

    async fn list_entries(
        &self,
        bucket: &BucketName,
        query: &KeyValueQuery,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyValueItem, Key>> {
        check_list_entries(query, &page)?;
        let found = self.read(bucket, |state| state.entries(query, &page));
        Ok(entries_page(found.unwrap_or_default(), query.values, page.limit))
    }

    async fn list(
        &self,
        bucket: &BucketName,
        prefix: &str,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyRevision, Key>> {
        check_list("key_value.list", prefix, Some(&page))?;
        let listed = self.read(bucket, |state| state.list(prefix, page.after.as_ref(), page.limit + 1));
        let keys = listed.unwrap_or_else(|| Ok(Vec::new()))?;
        Ok(Page::from_surplus(keys, page.limit, |item| item.key.clone()))
    }

    async fn list_buckets(&self, page: PageRequest<BucketName>) -> Result<Page<BucketInfo, BucketName>> {
        page.check("key_value.list_buckets")?;
        let mut found = Vec::new();
        self.buckets.scan(page.after.map_or(Bound::Unbounded, Bound::Excluded), |bucket, state| {
            if found.len() > page.limit {
                return ControlFlow::Break(());
            }
            state.expire(&self.backend, now_ms());
            if state.len() > 0 {
                found.push(BucketInfo::new(bucket, state.len()));
            }
            ControlFlow::Continue(())
        });
        Ok(Page::from_surplus(found, page.limit, |info| info.bucket.clone()))
    }

    async fn watch(&self, bucket: &BucketName, prefix: &str, after: Revision) -> Result<KeyValueEvents> {
        const OPERATION: &str = "key_value.watch";
        check_list(OPERATION, prefix, None)?;
        let (backend, named) = (self.backend.clone(), bucket.clone());
        let make = move || Bucket::new(OPERATION, &backend, &named);
        let following = self.buckets.follow(&self.backend, bucket, make)?;
        let (backend, prefix, mut progress) =
            (self.backend.clone(), prefix.to_owned(), Progress::after(after));
        if let Some(state) = following.slot().lock().as_ref() {
            after.check_resume(OPERATION, "after", state.last())?;
            state.check_watch(&mut progress)?;
        }
        Ok(following.stream(move |state| {
            let Some(state) = state else { return progress.outlive_erasure().map(|()| LogPage::empty()) };
            state.expire(&backend, now_ms());
            state.changes_after(&prefix, &mut progress)
        }))
    }
}
