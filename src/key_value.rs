//! Small state.

use std::time::Duration;

use bytes::Bytes;
use larder_kernel::limits::{BATCH_KEYS_MAX, PAGE_ITEMS_MAX};
use larder_kernel::{
    BucketName, Error, ErrorKind, Key, KeyRevision, KeyValueCondition, KeyValueEntry, KeyValueItem,
    KeyValuePutOptions, KeyValueQuery, KeyValueStoreExt, KeyValueWrite, PageRequest, Result, Revision,
};

use crate::handle::{handle, id};

/// The number of attempts that [`KeyValue::update`] makes.
const UPDATE_TRIES: u32 = 64;

handle!(
    /// Small state: values under keys, in buckets, with a revision for each write.
    ///
    /// ```
    /// use larder::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// let stores = larder::open("memory:").await?;
    /// let state = stores.key_value()?;
    /// state.set("trips", "basel", "booked").await?;
    /// assert_eq!(state.get("trips", "basel").await?.unwrap(), "booked");
    ///
    /// // A counter that loses no update, with any number of writers.
    /// let count = |old: Option<&[u8]>| old.map_or(1, |old| old[0] + 1);
    /// state.update("counters", "visits", |old| vec![count(old)]).await?;
    /// # Ok(())
    /// # }
    /// ```
    KeyValue,
    KeyValueStore,
    key_value
);

impl KeyValue {
    /// Returns the value of a key; `None` if the key does not exist or has expired.
    ///
    /// # Errors
    /// As [`get`](larder_kernel::KeyValueStore::get).
    pub async fn get(
        &self,
        bucket: impl TryInto<BucketName, Error: Into<Error>> + Send,
        key: impl TryInto<Key, Error: Into<Error>> + Send,
    ) -> Result<Option<Bytes>> {
        Ok(self.entry(bucket, key).await?.map(|entry| entry.value))
    }

    /// Returns the value of a key with its revision and expiry.
    ///
    /// # Errors
    /// As [`get`](larder_kernel::KeyValueStore::get).
    pub async fn entry(
        &self,
        bucket: impl TryInto<BucketName, Error: Into<Error>> + Send,
        key: impl TryInto<Key, Error: Into<Error>> + Send,
    ) -> Result<Option<KeyValueEntry>> {
        let (bucket, key) = (id(bucket)?, id(key)?);
        self.provider().get(&bucket, &key).await
    }

    /// Returns the values of any number of keys, in the order of the keys; `None` for a key that does not
    /// exist or has expired. Up to 1,000 keys with 16 MiB of values are read at one instant, in one round
    /// trip.
    ///
    /// # Errors
    /// As [`get_many`](larder_kernel::KeyValueStore::get_many).
    pub async fn get_many<K>(
        &self,
        bucket: impl TryInto<BucketName, Error: Into<Error>> + Send,
        keys: impl IntoIterator<Item = K> + Send,
    ) -> Result<Vec<Option<Bytes>>>
    where
        K: TryInto<Key, Error: Into<Error>>,
    {
        let bucket = id(bucket)?;
        let keys: Vec<Key> = keys.into_iter().map(id).collect::<Result<_>>()?;
        let mut values = Vec::with_capacity(keys.len());
        while values.len() < keys.len() {
            let end = keys.len().min(values.len() + BATCH_KEYS_MAX);
            let found = self.provider().get_many(&bucket, &keys[values.len()..end]).await?;
            values.extend(found.items.into_iter().map(|entry| entry.map(|entry| entry.value)));
        }
        Ok(values)
    }

    /// Writes and deletes up to 1,000 keys, each under its own condition, all or none. Returns the revision
    /// of each put and of each deletion of an existing key.
    ///
    /// ```
    /// use larder::{Key, KeyValueCondition, KeyValuePutOptions, KeyValueWrite};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// let state = larder::open("memory:").await?.key_value()?;
    /// let head = state.set("run", "head", "1").await?;
    /// let head = KeyValuePutOptions::default().with_condition(KeyValueCondition::AtRevision(head));
    /// state
    ///     .write("run", vec![
    ///         KeyValueWrite::put(Key::new("head")?, "2", head),
    ///         KeyValueWrite::put(Key::new("turn/2")?, "booked", KeyValuePutOptions::default()),
    ///         KeyValueWrite::delete(Key::new("draft")?, None),
    ///     ])
    ///     .await?;
    /// assert_eq!(state.get_many("run", ["head", "draft"]).await?, [Some("2".into()), None]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`write`](larder_kernel::KeyValueStore::write).
    pub async fn write(
        &self,
        bucket: impl TryInto<BucketName, Error: Into<Error>> + Send,
        writes: Vec<KeyValueWrite>,
    ) -> Result<Vec<Option<Revision>>> {
        let bucket = id(bucket)?;
        self.provider().write(&bucket, writes).await
    }

    /// Writes a value, at most 4 MiB, and returns its revision.
    ///
    /// # Errors
    /// As [`put`](larder_kernel::KeyValueStore::put).
    pub async fn set(
        &self,
        bucket: impl TryInto<BucketName, Error: Into<Error>> + Send,
        key: impl TryInto<Key, Error: Into<Error>> + Send,
        value: impl Into<Bytes> + Send,
    ) -> Result<Revision> {
        let (bucket, key, value) = (id(bucket)?, id(key)?, value.into());
        self.provider().put(&bucket, &key, value, KeyValuePutOptions::default()).await
    }

    /// Writes a value that expires after `ttl`, in whole milliseconds.
    ///
    /// # Errors
    /// As [`put`](larder_kernel::KeyValueStore::put).
    pub async fn set_for(
        &self,
        bucket: impl TryInto<BucketName, Error: Into<Error>> + Send,
        key: impl TryInto<Key, Error: Into<Error>> + Send,
        value: impl Into<Bytes> + Send,
        ttl: Duration,
    ) -> Result<Revision> {
        let (bucket, key, value) = (id(bucket)?, id(key)?, value.into());
        self.provider().put(&bucket, &key, value, KeyValuePutOptions::default().with_ttl(ttl)).await
    }

    /// Writes a value if the key does not exist.
    ///
    /// # Errors
    /// As [`put`](larder_kernel::KeyValueStore::put); `Conflict` if the key exists.
    pub async fn create(
        &self,
        bucket: impl TryInto<BucketName, Error: Into<Error>> + Send,
        key: impl TryInto<Key, Error: Into<Error>> + Send,
        value: impl Into<Bytes> + Send,
    ) -> Result<Revision> {
        let (bucket, key, value) = (id(bucket)?, id(key)?, value.into());
        let options = KeyValuePutOptions::default().with_condition(KeyValueCondition::Absent);
        self.provider().put(&bucket, &key, value, options).await
    }

    /// Writes a value if the key still has the given revision.
    ///
    /// # Errors
    /// As [`put`](larder_kernel::KeyValueStore::put); `Conflict` if the key was written or deleted since.
    pub async fn set_at(
        &self,
        bucket: impl TryInto<BucketName, Error: Into<Error>> + Send,
        key: impl TryInto<Key, Error: Into<Error>> + Send,
        value: impl Into<Bytes> + Send,
        at: Revision,
    ) -> Result<Revision> {
        let (bucket, key, value) = (id(bucket)?, id(key)?, value.into());
        let options = KeyValuePutOptions::default().with_condition(KeyValueCondition::AtRevision(at));
        self.provider().put(&bucket, &key, value, options).await
    }

    /// Replaces a value with the result of `new`, which receives the old value, and loses no update of
    /// another writer. If another writer changed the key in between, the call reads and calls `new` again, up
    /// to 64 times. The write removes a time to live of the key.
    ///
    /// # Errors
    /// As [`put`](larder_kernel::KeyValueStore::put); `Conflict` if other writers were faster 64 times.
    ///
    /// # Cancellation
    /// The value is written or not.
    pub async fn update<V: Into<Bytes>>(
        &self,
        bucket: impl TryInto<BucketName, Error: Into<Error>> + Send,
        key: impl TryInto<Key, Error: Into<Error>> + Send,
        mut new: impl FnMut(Option<&[u8]>) -> V + Send,
    ) -> Result<Revision> {
        let (bucket, key): (BucketName, Key) = (id(bucket)?, id(key)?);
        let mut tries = 0;
        loop {
            let old = self.provider().get(&bucket, &key).await?;
            let value = new(old.as_ref().map(|entry| &*entry.value)).into();
            let condition = match old {
                Some(entry) => KeyValueCondition::AtRevision(entry.revision),
                None => KeyValueCondition::Absent,
            };
            let options = KeyValuePutOptions::default().with_condition(condition);
            match self.provider().put(&bucket, &key, value, options).await {
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    tries += 1;
                    if tries == UPDATE_TRIES {
                        let message = "other writers changed the key during every attempt; try again later \
                                       or with \
                             fewer writers";
                        return Err(Error::new(ErrorKind::Conflict, "key_value.update", message)
                            .with_context("tries", u64::from(tries)));
                    }
                    tokio::task::yield_now().await;
                }
                answer => return answer,
            }
        }
    }

    /// Deletes a key and returns whether it existed.
    ///
    /// # Errors
    /// As [`delete`](larder_kernel::KeyValueStore::delete).
    pub async fn delete(
        &self,
        bucket: impl TryInto<BucketName, Error: Into<Error>> + Send,
        key: impl TryInto<Key, Error: Into<Error>> + Send,
    ) -> Result<bool> {
        let (bucket, key) = (id(bucket)?, id(key)?);
        self.provider().delete(&bucket, &key, None).await
    }

    /// Lists all keys that begin with a prefix, in byte order, with their revisions; `""` lists all.
    ///
    /// # Errors
    /// As [`list`](larder_kernel::KeyValueStore::list).
    pub async fn keys(
        &self,
        bucket: impl TryInto<BucketName, Error: Into<Error>> + Send,
        prefix: &str,
    ) -> Result<Vec<KeyRevision>> {
        let bucket = id(bucket)?;
        let (mut keys, mut page) = (Vec::new(), PageRequest::first(PAGE_ITEMS_MAX));
        loop {
            let found = self.provider().list(&bucket, prefix, page).await?;
            keys.extend(found.items);
            match found.next {
                Some(next) => page = PageRequest::after(next, PAGE_ITEMS_MAX),
                None => return Ok(keys),
            }
        }
    }

    /// Lists up to `limit` entries that a query selects: between two keys, in reverse, with their values.
    ///
    /// ```
    /// use larder::KeyValueQuery;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// let state = larder::open("memory:").await?.key_value()?;
    /// for turn in 1..=3 {
    ///     state.set("run", format!("turn/{turn}"), format!("state {turn}")).await?;
    /// }
    /// let newest = KeyValueQuery::prefix("turn/").descending().with_values();
    /// let found = state.entries("run", &newest, 1).await?;
    /// assert_eq!(found[0].value.as_deref(), Some(&b"state 3"[..]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`list_entries`](larder_kernel::KeyValueStore::list_entries).
    pub async fn entries(
        &self,
        bucket: impl TryInto<BucketName, Error: Into<Error>> + Send,
        query: &KeyValueQuery,
        limit: usize,
    ) -> Result<Vec<KeyValueItem>> {
        let bucket = id(bucket)?;
        let (mut entries, mut after) = (Vec::new(), None);
        loop {
            let wanted = (limit - entries.len()).min(PAGE_ITEMS_MAX);
            let page = PageRequest::first(wanted).with_after(after);
            let found = self.provider().list_entries(&bucket, query, page).await?;
            entries.extend(found.items);
            match found.next {
                Some(next) if entries.len() < limit => after = Some(next),
                _ => return Ok(entries),
            }
        }
    }

    /// Deletes all keys that begin with a prefix, in steps of 1,000, and returns their number.
    ///
    /// # Errors
    /// As [`delete_all`](larder_kernel::KeyValueStoreExt::delete_all).
    pub async fn delete_prefix(
        &self,
        bucket: impl TryInto<BucketName, Error: Into<Error>> + Send,
        prefix: &str,
    ) -> Result<u64> {
        let bucket = id(bucket)?;
        self.provider().delete_all(&bucket, prefix).await
    }
}
