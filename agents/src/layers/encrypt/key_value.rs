//! Encrypted values.

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use larder_kernel::limits::{BATCH_VALUES_BYTES_MAX, VALUE_BYTES_MAX};
use larder_kernel::storage::key_value::{check_put, check_write, fitting};
use larder_kernel::{
    BucketInfo, BucketName, Capabilities, Key, KeyRevision, KeyValueEntry, KeyValueEvent, KeyValueEventKind,
    KeyValueEvents, KeyValueItem, KeyValuePutOptions, KeyValueQuery, KeyValueStore, KeyValueWrite,
    KeyValueWriteKind, Namespace, Page, PageRequest, PrefixDeletion, Result, Revision, Store,
};

use super::ring::{KeyRing, Nonce, Place, SEAL_BYTES};
use super::{Sealed, shared};
use crate::internal::offload;

shared!(KeyValueStore, [ValueCondition, ValueTtl, EntriesFrom, EntriesTo, EntriesOrder, EntriesValues]);

fn place(namespace: &Namespace, bucket: &BucketName, key: &Key) -> Place {
    Place::new("kv", namespace.as_str()).at(bucket.as_str()).at(key.as_str())
}

/// Encrypts the values of the puts. The inner store has the limit for all of them, too. So if the ciphertexts
/// would exceed it, values are compressed, the largest first, until the rest fits.
fn sealed(
    ring: &KeyRing,
    operation: &'static str,
    places: &[Place],
    mut writes: Vec<KeyValueWrite>,
) -> Result<Vec<KeyValueWrite>> {
    let mut bytes: usize = writes.iter().map(KeyValueWrite::size_bytes).sum();
    let puts = writes.iter_mut().zip(places).filter_map(|(write, place)| match &mut write.kind {
        KeyValueWriteKind::Put { value, .. } => Some((value, place)),
        _ => None,
    });
    let mut puts: Vec<(&mut Bytes, &Place)> = puts.collect();
    puts.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
    bytes += puts.len() * SEAL_BYTES;
    let mut incompressible = None;
    for (value, place) in puts {
        let whole = value.len() + SEAL_BYTES;
        let seal = |room: usize| {
            ring.seal(operation, 0, place, value, Nonce::Random, room.min(VALUE_BYTES_MAX)).map(Bytes::from)
        };
        // One byte less than the plain text needs makes the ring compress it.
        let room = if bytes > BATCH_VALUES_BYTES_MAX { whole - 1 } else { whole };
        let sealed = match seal(room) {
            Err(error) if room < whole => {
                incompressible.get_or_insert(error);
                seal(whole)?
            }
            other => other?,
        };
        *value = sealed;
        bytes -= whole - value.len();
    }
    match incompressible {
        Some(error) if bytes > BATCH_VALUES_BYTES_MAX => Err(error),
        _ => Ok(writes),
    }
}

/// Decrypts the values, each with its place. They were encrypted within the limit for one answer, but
/// compressed values may exceed it; returns only the values that fit.
async fn opened_within(
    ring: &KeyRing,
    operation: &'static str,
    values: Vec<(Place, Bytes)>,
) -> Result<Vec<Bytes>> {
    let (ring, steps) = (ring.clone(), values.iter().map(|(_, value)| value.len()).sum());
    let open = move || {
        let (mut plain, mut bytes) = (Vec::with_capacity(values.len()), 0);
        for (place, value) in &values {
            let value = opened(&ring, operation, place, value)?;
            bytes += value.len();
            plain.push(value);
            if bytes > BATCH_VALUES_BYTES_MAX {
                break;
            }
        }
        plain.truncate(fitting(plain.iter().map(Bytes::len), plain.len()));
        Ok(plain)
    };
    offload::run(operation, steps, open).await
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

    async fn get_many(
        &self,
        bucket: &BucketName,
        keys: &[Key],
    ) -> Result<Page<Option<KeyValueEntry>, usize>> {
        let mut page = self.inner.get_many(bucket, keys).await?;
        let sealed = keys.iter().zip(&page.items).filter_map(|(key, entry)| {
            let value = entry.as_ref()?.value.clone();
            Some((place(self.namespace(), bucket, key), value))
        });
        let mut plain = opened_within(&self.ring, "key_value.get_many", sealed.collect()).await?.into_iter();
        for (index, item) in page.items.iter_mut().enumerate() {
            let Some(entry) = item else { continue };
            let Some(value) = plain.next() else {
                page.items.truncate(index);
                page.next = Some(index);
                break;
            };
            entry.value = value;
        }
        Ok(page)
    }

    async fn write(&self, bucket: &BucketName, writes: Vec<KeyValueWrite>) -> Result<Vec<Option<Revision>>> {
        const OPERATION: &str = "key_value.write";
        check_write(&writes)?;
        let places: Vec<Place> =
            writes.iter().map(|write| place(self.namespace(), bucket, &write.key)).collect();
        let (ring, steps) = (self.ring.clone(), writes.iter().map(KeyValueWrite::size_bytes).sum());
        let seal = move || sealed(&ring, OPERATION, &places, writes);
        let writes = offload::run(OPERATION, steps, seal).await?;
        self.inner.write(bucket, writes).await
    }

    async fn delete_prefix(&self, bucket: &BucketName, prefix: &str) -> Result<PrefixDeletion> {
        self.inner.delete_prefix(bucket, prefix).await
    }

    async fn list_entries(
        &self,
        bucket: &BucketName,
        query: &KeyValueQuery,
        page: PageRequest<Key>,
    ) -> Result<Page<KeyValueItem, Key>> {
        let mut page = self.inner.list_entries(bucket, query, page).await?;
        let sealed = page
            .items
            .iter()
            .filter_map(|item| Some((place(self.namespace(), bucket, &item.key), item.value.clone()?)));
        let plain = opened_within(&self.ring, "key_value.list_entries", sealed.collect()).await?;
        if query.values && plain.len() < page.items.len() {
            page.items.truncate(plain.len());
            page.next = page.items.last().map(|item| item.key.clone());
        }
        for (item, value) in page.items.iter_mut().zip(plain) {
            item.value = Some(value);
        }
        Ok(page)
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
