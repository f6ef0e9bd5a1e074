//! The blob store in Postgres.
//!
//! A blob is a row. The row of a small blob holds its bytes. The bytes of a larger one are chunks of a
//! content, which never changes. A write creates a new content and then sets the row, in one transaction. A
//! reader of the replaced content has ten minutes to end, and then the sweep removes it. Every read is a
//! short statement in a task, so a slow consumer holds neither a connection nor a transaction.

mod change;
mod checksum;
mod list;
mod pieces;
mod read;
mod rows;
mod upload;
mod write;

use std::time::Duration;

use async_trait::async_trait;
use larder_kernel::storage::blob::{check_get, check_prefix, check_presign, check_put, check_rename};
use larder_kernel::{
    BlobBody, BlobEntries, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobRead, BlobStore,
    BlobVersionId, BlobVersions, Capabilities, Capability, Error, ErrorKind, Namespace, Outcome,
    PresignRequest, PresignedUrl, RenameMode, Result,
};

use super::engine::Engine;
pub(super) use checksum::{Running, of_chunk, of_whole};
pub(super) use rows::metadata;

/// The bytes of a chunk, and the maximum size of a blob whose bytes are in its row.
pub(super) const CHUNK_BYTES: usize = 256 * 1024;
/// The number of chunks that one statement reads or writes.
const STEP_CHUNKS: usize = 4;
/// The time that a replaced content stays for its readers.
const READERS_MAX: Duration = Duration::from_secs(10 * 60);
/// The time after which a write that sends no chunk is given up.
const SILENCE_MAX: Duration = Duration::from_secs(60 * 60);

/// Returns the error of a read whose task was cancelled.
fn ended(operation: &'static str) -> Error {
    Error::new(ErrorKind::Unavailable, operation, "the runtime is shutting down")
        .with_outcome(Outcome::NotApplied)
}

/// A [`BlobStore`] in a Postgres database: the blobs of one namespace.
///
/// A read of a blob that was replaced or deleted more than ten minutes ago can fail with `Conflict`. A write
/// whose body sends nothing for an hour fails with `Unavailable`.
pub struct PostgresBlobStore {
    engine: Engine,
    namespace: Namespace,
}

impl PostgresBlobStore {
    pub(crate) fn new(engine: Engine, namespace: Namespace) -> Self {
        Self { engine, namespace }
    }

    fn declared(&self) -> Capabilities {
        self.engine
            .capabilities()
            .with(Capability::BlobCreateOnly)
            .with(Capability::BlobIfMatch)
            .with(Capability::BlobLongKeys)
            .with(Capability::BlobRename)
    }
}

store! {
    PostgresBlobStore as store,
    shows: { engine: &store.engine },
    capabilities: store.declared(),
    options: [BlobContentType, BlobMetadata, BlobRange, PresignContentType],
    erase: change::erase(&store.engine, &store.namespace).await,
}

#[async_trait]
impl BlobStore for PostgresBlobStore {
    async fn put(&self, key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> Result<BlobInfo> {
        check_put(&options, &self.declared())?;
        write::put(&self.engine, &self.namespace, key, body, options).await
    }

    async fn get(&self, key: &BlobKey, options: BlobGetOptions) -> Result<BlobRead> {
        check_get(&options)?;
        read::get(&self.engine, &self.namespace, key, options).await
    }

    async fn head(&self, key: &BlobKey) -> Result<BlobInfo> {
        read::head(&self.engine, &self.namespace, key).await
    }

    async fn list(&self, prefix: &str, after: Option<&BlobKey>) -> Result<BlobEntries> {
        check_prefix(prefix)?;
        Ok(list::list(&self.engine, &self.namespace, prefix, after))
    }

    async fn copy(&self, source: &BlobKey, target: &BlobKey) -> Result<BlobInfo> {
        change::copy(&self.engine, &self.namespace, source, target).await
    }

    async fn rename(&self, source: &BlobKey, target: &BlobKey, mode: RenameMode) -> Result<BlobInfo> {
        check_rename(&self.declared())?;
        change::rename(&self.engine, &self.namespace, (source, target), mode).await
    }

    async fn delete(&self, key: &BlobKey) -> Result<bool> {
        change::delete(&self.engine, &self.namespace, key).await
    }

    async fn list_versions(&self, _key: &BlobKey) -> Result<BlobVersions> {
        Err(Error::unsupported("blobs.list_versions", Capability::BlobVersions))
    }

    async fn get_version(
        &self,
        _key: &BlobKey,
        _version: &BlobVersionId,
        _options: BlobGetOptions,
    ) -> Result<BlobRead> {
        Err(Error::unsupported("blobs.get_version", Capability::BlobVersions))
    }

    async fn delete_version(&self, _key: &BlobKey, _version: &BlobVersionId) -> Result<bool> {
        Err(Error::unsupported("blobs.delete_version", Capability::BlobVersions))
    }

    async fn presign(&self, _key: &BlobKey, request: &PresignRequest) -> Result<PresignedUrl> {
        check_presign(request, &self.declared())?;
        Err(Error::new(
            ErrorKind::Unsupported,
            "blobs.presign",
            "a database cannot create URLs; use S3 or the memory backend",
        ))
    }
}
