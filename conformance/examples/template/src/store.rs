//! The contract `KeyValueStore`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use larder_conformance::async_trait;
use larder_conformance::bytes::Bytes;
use larder_conformance::futures_util::stream::{StreamExt, poll_fn};
use larder_conformance::kernel::storage::key_value::{
    check_get_many, check_list, check_list_entries, check_put, check_write, entries_page, many_page,
};
use larder_conformance::kernel::{
    BucketInfo, BucketName, Capabilities, Durability, Error, ErrorKind, Key, KeyRevision, KeyValueEntry,
    KeyValueEvents, KeyValueItem, KeyValuePutOptions, KeyValueQuery, KeyValueStore, KeyValueWrite, Namespace,
    OptionSet, Page, PageRequest, PrefixDeletion, RequestOption, Result, Revision, Store,
};

use crate::state::State;

/// The data of the backend. Its handles share it, and its namespaces are isolated from each other.
#[derive(Clone, Default)]
pub struct MyPlace(Arc<Mutex<BTreeMap<Namespace, Arc<Mutex<State>>>>>);

/// A handle on one namespace of a backend.
pub struct MyStore {
    namespace: Namespace,
    state: Arc<Mutex<State>>,
}

impl MyStore {
    /// Opens a namespace of a backend.
    pub fn open(place: &MyPlace, namespace: Namespace) -> Self {
        let state = lock(&place.0).entry(namespace.clone()).or_default().clone();
        Self { namespace, state }
    }
}

/// A panic in another task must not make the store unusable. Each change below is one step, so the data is
/// consistent.
fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

// The `Debug` form shows no stored content, because it appears in logs (STORE-012).
impl fmt::Debug for MyPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MyPlace").finish_non_exhaustive()
    }
}

impl fmt::Debug for MyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MyStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MyStore {
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
        lock(&self.state).erase();
        Ok(())
    }
}

// Each method validates its input before it does any work (STORE-010), with the checks of the kernel.
#[async_trait]
impl KeyValueStore for MyStore {
    async fn put(
        &self,
        bucket: &BucketName,
        key: &Key,
        value: Bytes,
        options: KeyValuePutOptions,
    ) -> Result<Revision> {
        check_put(&value, &options)?;
        lock(&self.state).put(bucket, key, value, options)
    }

    async fn get(&self, bucket: &BucketName, key: &Key) -> Result<Option<KeyValueEntry>> {
        Ok(lock(&self.state).get(bucket, key))
    }

    async fn delete(&self, bucket: &BucketName, key: &Key, at: Option<Revision>) -> Result<bool> {
        lock(&self.state).delete(bucket, key, at)
    }

    async fn get_many(
        &self,
        bucket: &BucketName,
        keys: &[Key],
    ) -> Result<Page<Option<KeyValueEntry>, usize>> {
        check_get_many(keys)?;
        Ok(many_page(lock(&self.state).get_many(bucket, keys), keys.len()))
    }

    async fn write(&self, bucket: &BucketName, writes: Vec<KeyValueWrite>) -> Result<Vec<Option<Revision>>> {
        check_write(&writes)?;
        lock(&self.state).write(bucket, writes)
    }

    async fn delete_prefix(&self, bucket: &BucketName, prefix: &str) -> Result<PrefixDeletion> {
        check_list("key_value.delete_prefix", prefix, None)?;
        lock(&self.state).delete_prefix(bucket, prefix)
    }

    async fn list_entries(
        &self,
        bucket: &BucketName,
        query: &KeyValueQuery,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyValueItem, Key>> {
        check_list_entries(query, &page)?;
        Ok(entries_page(lock(&self.state).entries(bucket, query, &page), query.values, page.limit))
    }

    async fn list(
        &self,
        bucket: &BucketName,
        prefix: &str,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyRevision, Key>> {
        check_list("key_value.list", prefix, Some(&page))?;
        // Reads one more item than requested, to find out whether another page follows.
        let keys = lock(&self.state).list(bucket, prefix, page.after.as_ref(), page.limit + 1);
        Ok(Page::from_surplus(keys, page.limit, |item| item.key.clone()))
    }

    async fn list_buckets(&self, page: PageRequest<BucketName>) -> Result<Page<BucketInfo, BucketName>> {
        page.check("key_value.list_buckets")?;
        let buckets = lock(&self.state).list_buckets(page.after.as_ref(), page.limit + 1);
        Ok(Page::from_surplus(buckets, page.limit, |info| info.bucket.clone()))
    }

    async fn watch(&self, bucket: &BucketName, prefix: &str, after: Revision) -> Result<KeyValueEvents> {
        check_list("key_value.watch", prefix, None)?;
        // A revision that the bucket never assigned comes from another bucket or from before an erasure
        // (KV-052).
        let last = lock(&self.state).last(bucket);
        after.check_resume("key_value.watch", "after", last)?;
        let (state, bucket, prefix) = (Arc::clone(&self.state), bucket.clone(), prefix.to_owned());
        let (mut at, mut ended) = (after.anchored(last), false);
        Ok(poll_fn(move |context| {
            if ended {
                return Poll::Ready(None);
            }
            let mut state = lock(&state);
            // An erasure invalidates the earlier events, and revisions restart (KV-048).
            if !at.is_within(state.last(&bucket)) {
                ended = true;
                let error = Error::new(ErrorKind::Conflict, "key_value.watch", "the namespace was erased");
                return Poll::Ready(Some(Err(error)));
            }
            match state.change_after(&bucket, &prefix, at.get()) {
                Some(change) => {
                    at = change.revision;
                    Poll::Ready(Some(Ok(change)))
                }
                None => {
                    state.waiting.push(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .boxed())
    }
}
