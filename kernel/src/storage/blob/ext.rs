//! Convenience methods for [`BlobStore`], the same for every backend.

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::TryStreamExt;

use super::{BlobBody, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobStore};
use crate::error::Result;

/// Convenience methods of every [`BlobStore`]. Backends do not override them.
#[async_trait]
pub trait BlobStoreExt: BlobStore {
    /// Writes bytes unconditionally, without a content type.
    ///
    /// # Errors
    /// The errors of [`BlobStore::put`].
    async fn put_bytes(&self, key: &BlobKey, bytes: Bytes) -> Result<BlobInfo> {
        self.put(key, BlobBody::Bytes(bytes), BlobPutOptions::default()).await
    }

    /// Reads a whole blob into memory.
    ///
    /// # Errors
    /// The errors of [`BlobStore::get`].
    async fn get_bytes(&self, key: &BlobKey) -> Result<Bytes> {
        self.get_range(key, BlobGetOptions::default()).await
    }

    /// Reads the bytes selected by the options into memory.
    ///
    /// # Errors
    /// The errors of [`BlobStore::get`].
    async fn get_range(&self, key: &BlobKey, options: BlobGetOptions) -> Result<Bytes> {
        let mut pieces = self.get(key, options).await?.bytes;
        let Some(first) = pieces.try_next().await? else { return Ok(Bytes::new()) };
        let Some(second) = pieces.try_next().await? else { return Ok(first) };
        let mut all = BytesMut::from(first);
        all.extend_from_slice(&second);
        while let Some(piece) = pieces.try_next().await? {
            all.extend_from_slice(&piece);
        }
        Ok(all.freeze())
    }
}

impl<T: BlobStore + ?Sized> BlobStoreExt for T {}
