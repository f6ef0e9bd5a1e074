//! Convenience methods for [`KeyValueStore`], the same for every backend.

use async_trait::async_trait;
use bytes::Bytes;

use super::{KeyValueCondition, KeyValuePutOptions, KeyValueStore};
use crate::error::Result;
use crate::id::{BucketName, Key};
use crate::position::Revision;

/// Convenience methods of every [`KeyValueStore`]. Backends do not override them.
#[async_trait]
pub trait KeyValueStoreExt: KeyValueStore {
    /// Writes a value unconditionally.
    ///
    /// # Errors
    /// The errors of [`KeyValueStore::put`].
    async fn set(&self, bucket: &BucketName, key: &Key, value: Bytes) -> Result<Revision> {
        self.put(bucket, key, value, KeyValuePutOptions::default()).await
    }

    /// Writes a value if the key does not exist.
    ///
    /// # Errors
    /// The errors of [`KeyValueStore::put`]; `Conflict` if the key exists.
    async fn create(&self, bucket: &BucketName, key: &Key, value: Bytes) -> Result<Revision> {
        self.put(bucket, key, value, KeyValuePutOptions::default().with_condition(KeyValueCondition::Absent))
            .await
    }

    /// Writes a value if the key is still at the revision that the caller read.
    ///
    /// # Errors
    /// The errors of [`KeyValueStore::put`]; `Conflict` if another caller wrote the key in between.
    async fn put_at(&self, bucket: &BucketName, key: &Key, value: Bytes, at: Revision) -> Result<Revision> {
        self.put(
            bucket,
            key,
            value,
            KeyValuePutOptions::default().with_condition(KeyValueCondition::AtRevision(at)),
        )
        .await
    }

    /// Deletes all keys that begin with a prefix, step by step, and returns their number.
    ///
    /// Each step is one [`delete_prefix`](KeyValueStore::delete_prefix). A key that another caller writes
    /// between two steps may remain. A bucket keeps 1,000 deletions for watches, so a watch that falls behind
    /// by more ends with `Conflict`.
    ///
    /// # Errors
    /// The errors of [`KeyValueStore::delete_prefix`]. The steps before the error remain done; call again to
    /// continue.
    async fn delete_all(&self, bucket: &BucketName, prefix: &str) -> Result<u64> {
        let mut deleted = 0;
        loop {
            let step = self.delete_prefix(bucket, prefix).await?;
            deleted += step.deleted;
            if !step.more {
                return Ok(deleted);
            }
        }
    }
}

impl<T: KeyValueStore + ?Sized> KeyValueStoreExt for T {}
