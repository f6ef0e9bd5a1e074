//! Encrypted values.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use larder_kernel::limits::VALUE_BYTES_MAX;
use larder_kernel::storage::key_value::check_put;
use larder_kernel::{
    BucketInfo, BucketName, Capabilities, Key, KeyRevision, KeyValueEntry, KeyValueEvent, KeyValueEventKind,
    KeyValueEvents, KeyValuePutOptions, KeyValueStore, Namespace, Page, PageRequest, Result, Revision, Store,
};

use super::ring::{KeyRing, Nonce, Place};
use super::{Sealed, shared};
use crate::internal::offload;

shared!(KeyValueStore, [ValueCondition, ValueTtl]);

fn place(namespace: &Namespace, bucket: &BucketName, key: &Key) -> Place {
    Place::new("kv", namespace.as_str()).at(bucket.as_str()).at(key.as_str())
}

fn opened(ring: &KeyRing, operation: &'static str, place: &Place, value: &[u8]) -> Result<Bytes> {
    Ok(ring.open(operation, place, value)?.into())
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl KeyValueStore for Sealed<dyn KeyValueStore> {
    async fn put(
        &self,
        bucket: &BucketName,
        key: &Key,
        value: Bytes,
        options: KeyValuePutOptions,
    ) -> Result<Revision> {
        check_put(&value, &options)?;
        let place = place(self.namespace(), bucket, key);
        let (ring, steps) = (self.ring.clone(), value.len());
        let seal = move || ring.seal("key_value.put", 0, &place, &value, Nonce::Random, VALUE_BYTES_MAX);
        let sealed = offload::run("key_value.put", steps, seal).await?;
        self.inner.put(bucket, key, sealed.into(), options).await
    }

    async fn get(&self, bucket: &BucketName, key: &Key) -> Result<Option<KeyValueEntry>> {
        let Some(mut entry) = self.inner.get(bucket, key).await? else { return Ok(None) };
        let place = place(self.namespace(), bucket, key);
        let (ring, sealed) = (self.ring.clone(), entry.value.clone());
        let open = move || opened(&ring, "key_value.get", &place, &sealed);
        entry.value = offload::run("key_value.get", entry.value.len(), open).await?;
        Ok(Some(entry))
    }

    async fn delete(&self, bucket: &BucketName, key: &Key, at: Option<Revision>) -> Result<bool> {
        self.inner.delete(bucket, key, at).await
    }

    async fn list(
        &self,
        bucket: &BucketName,
        prefix: &str,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyRevision, Key>> {
        self.inner.list(bucket, prefix, page).await
    }

    async fn list_buckets(&self, page: PageRequest<BucketName>) -> Result<Page<BucketInfo, BucketName>> {
        self.inner.list_buckets(page).await
    }

    async fn watch(&self, bucket: &BucketName, prefix: &str, after: Revision) -> Result<KeyValueEvents> {
        let events = self.inner.watch(bucket, prefix, after).await?;
        let (ring, namespace, bucket) = (self.ring.clone(), self.namespace().clone(), bucket.clone());
        let open = move |mut event: KeyValueEvent| {
            let KeyValueEventKind::Put { value, .. } = &mut event.kind else { return Ok(event) };
            let place = place(&namespace, &bucket, &event.key);
            *value = opened(&ring, "key_value.watch", &place, value)?;
            Ok(event)
        };
        Ok(events.and_then(move |event| std::future::ready(open(event))).boxed())
    }
}
