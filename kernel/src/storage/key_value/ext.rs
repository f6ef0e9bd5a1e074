//! Conveniences over [`KeyValueStore`], the same for every backend.

use async_trait::async_trait;
use bytes::Bytes;

use super::{KeyValueCondition, KeyValuePutOptions, KeyValueStore};
use crate::error::Result;
use crate::id::{BucketName, Key, Revision};

/// What every [`KeyValueStore`] offers on top of its contract. No backend overrides it.
#[async_trait]
pub trait KeyValueStoreExt: KeyValueStore {
    /// Writes a value whatever was there.
    ///
    /// # Errors
    /// As [`KeyValueStore::put`].
    async fn set(&self, bucket: &BucketName, key: &Key, value: Bytes) -> Result<Revision> {
        self.put(bucket, key, value, KeyValuePutOptions::default()).await
    }

    /// Writes a value where there is none.
    ///
    /// # Errors
    /// As [`KeyValueStore::put`]; `Conflict` if the key exists.
    async fn create(&self, bucket: &BucketName, key: &Key, value: Bytes) -> Result<Revision> {
        self.put(bucket, key, value, KeyValuePutOptions::default().with_condition(KeyValueCondition::Absent))
            .await
    }

    /// Writes a value over the revision that the caller read.
    ///
    /// # Errors
    /// As [`KeyValueStore::put`]; `Conflict` where somebody else wrote in between.
    async fn put_at(&self, bucket: &BucketName, key: &Key, value: Bytes, at: Revision) -> Result<Revision> {
        self.put(
            bucket,
            key,
            value,
            KeyValuePutOptions::default().with_condition(KeyValueCondition::AtRevision(at)),
        )
        .await
    }
}

impl<T: KeyValueStore + ?Sized> KeyValueStoreExt for T {}
