//! Files.

use bytes::Bytes;
use futures_util::TryStreamExt;
use larder_kernel::{
    BlobBody, BlobEntry, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobStoreExt as _, BlobVersion,
    BlobVersionId, ByteRange, Error, ErrorKind, RenameMode, Result,
};

use crate::handle::{handle, id};

handle!(
    /// Files: bytes under keys such as `reports/2026/a.pdf`.
    ///
    /// ```
    /// use larder::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// let stores = larder::open("memory:").await?;
    /// let blobs = stores.blobs()?;
    /// blobs.put("tickets/basel.txt", "Seat 61").await?;
    /// assert_eq!(blobs.get("tickets/basel.txt").await?, "Seat 61");
    /// assert_eq!(blobs.list("tickets/").await?.len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    Blobs,
    BlobStore,
    blobs
);

impl Blobs {
    /// Writes a blob. The provider's own `put` takes streams, conditions, a content type and metadata.
    ///
    /// # Errors
    /// As [`put`](larder_kernel::BlobStore::put).
    pub async fn put(
        &self,
        key: impl TryInto<BlobKey, Error: Into<Error>> + Send,
        bytes: impl Into<Bytes> + Send,
    ) -> Result<BlobInfo> {
        let (key, bytes) = (id(key)?, bytes.into());
        self.provider().put(&key, BlobBody::Bytes(bytes), BlobPutOptions::default()).await
    }

    /// Reads a whole blob into memory. The provider's own `get` returns a stream.
    ///
    /// # Errors
    /// As [`get`](larder_kernel::BlobStore::get); `NotFound` if the blob does not exist.
    pub async fn get(&self, key: impl TryInto<BlobKey, Error: Into<Error>> + Send) -> Result<Bytes> {
        let key = id(key)?;
        self.provider().get_bytes(&key).await
    }

    /// Reads a range of a blob into memory.
    ///
    /// # Errors
    /// As [`get`](larder_kernel::BlobStore::get).
    pub async fn get_range(
        &self,
        key: impl TryInto<BlobKey, Error: Into<Error>> + Send,
        range: ByteRange,
    ) -> Result<Bytes> {
        let key = id(key)?;
        self.provider().get_range(&key, BlobGetOptions::default().with_range(range)).await
    }

    /// Returns the metadata of a blob; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`head`](larder_kernel::BlobStore::head).
    pub async fn info(
        &self,
        key: impl TryInto<BlobKey, Error: Into<Error>> + Send,
    ) -> Result<Option<BlobInfo>> {
        let key = id(key)?;
        match self.head(&key).await {
            Ok(info) => Ok(Some(info)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Moves a blob to another key in one step.
    ///
    /// ```
    /// use larder::prelude::*;
    /// use larder::RenameMode;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// let blobs = larder::open("memory:").await?.blobs()?;
    /// blobs.put("draft.txt", "Seat 61").await?;
    /// blobs.rename("draft.txt", "tickets/basel.txt", RenameMode::Refuse).await?;
    /// assert_eq!(blobs.get("tickets/basel.txt").await?, "Seat 61");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`rename`](larder_kernel::BlobStore::rename); `Unsupported` on a backend that does not declare
    /// `blob-rename`, such as S3.
    pub async fn rename(
        &self,
        source: impl TryInto<BlobKey, Error: Into<Error>> + Send,
        target: impl TryInto<BlobKey, Error: Into<Error>> + Send,
        mode: RenameMode,
    ) -> Result<BlobInfo> {
        let (source, target) = (id(source)?, id(target)?);
        self.provider().rename(&source, &target, mode).await
    }

    /// Deletes a blob and returns whether it existed.
    ///
    /// # Errors
    /// As [`delete`](larder_kernel::BlobStore::delete).
    pub async fn delete(&self, key: impl TryInto<BlobKey, Error: Into<Error>> + Send) -> Result<bool> {
        let key = id(key)?;
        self.provider().delete(&key).await
    }

    /// Returns the versions of a blob, the newest first.
    ///
    /// ```
    /// use larder::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// let blobs = larder::open("memory:?blob_versions=true").await?.blobs()?;
    /// blobs.put("plan.txt", "By train").await?;
    /// blobs.put("plan.txt", "By bus").await?;
    /// let versions = blobs.versions("plan.txt").await?;
    /// assert_eq!(versions.len(), 2);
    /// assert_eq!(blobs.version("plan.txt", &versions[1].id).await?, "By train");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`list_versions`](larder_kernel::BlobStore::list_versions); `Unsupported` on a backend that does
    /// not declare `blob-versions`.
    pub async fn versions(
        &self,
        key: impl TryInto<BlobKey, Error: Into<Error>> + Send,
    ) -> Result<Vec<BlobVersion>> {
        let key = id(key)?;
        self.provider().list_versions(&key).await?.try_collect().await
    }

    /// Reads a whole version of a blob into memory.
    ///
    /// # Errors
    /// As [`get_version`](larder_kernel::BlobStore::get_version).
    pub async fn version(
        &self,
        key: impl TryInto<BlobKey, Error: Into<Error>> + Send,
        version: impl TryInto<BlobVersionId, Error: Into<Error>> + Send,
    ) -> Result<Bytes> {
        let (key, version) = (id(key)?, id(version)?);
        let read = self.provider().get_version(&key, &version, BlobGetOptions::default()).await?;
        let pieces: Vec<Bytes> = read.bytes.try_collect().await?;
        Ok(pieces.concat().into())
    }

    /// Deletes an earlier version of a blob and returns whether it existed.
    ///
    /// # Errors
    /// As [`delete_version`](larder_kernel::BlobStore::delete_version); `Conflict` for the current version.
    pub async fn delete_version(
        &self,
        key: impl TryInto<BlobKey, Error: Into<Error>> + Send,
        version: impl TryInto<BlobVersionId, Error: Into<Error>> + Send,
    ) -> Result<bool> {
        let (key, version) = (id(key)?, id(version)?);
        self.provider().delete_version(&key, &version).await
    }

    /// Lists all blobs whose keys begin with a prefix, in byte order; `""` lists all.
    ///
    /// # Errors
    /// As [`list`](larder_kernel::BlobStore::list).
    pub async fn list(&self, prefix: &str) -> Result<Vec<BlobEntry>> {
        self.provider().list(prefix, None).await?.try_collect().await
    }
}
