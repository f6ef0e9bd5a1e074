//! The blob store over a folder.

mod checksum;
mod footer;
mod list;
mod read;
mod read_ahead;
mod write;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::storage::blob::{check_get, check_prefix, check_presign, check_put};
use larder_kernel::{
    BlobBody, BlobEntries, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobRead, BlobStore,
    Capabilities, Capability, Error, ErrorKind, Namespace, Outcome, PresignRequest, PresignedUrl, Result,
};

use super::blocking::blocking;
use super::config::FsConfig;
use super::engine::Engine;
use super::failure::failed;
use super::format::FORMAT;

/// A [`BlobStore`] over a folder.
///
/// Needs a Tokio runtime with a timer (`enable_time`): the store accesses the file system on its blocking
/// pool, and limits waits for locks.
///
/// ```
/// use larder_capabilities::fs::{FsBlobStore, FsConfig};
/// use larder_kernel::{BlobKey, BlobStoreExt, Namespace};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// # let folder = std::env::temp_dir().join(format!("larder-doc-{}", std::process::id()));
/// let blobs = FsBlobStore::open(FsConfig::new(&folder), Namespace::new("default")?).await?;
/// let key = BlobKey::new("reports/2026/a.txt")?;
/// blobs.put_bytes(&key, "hello".into()).await?;
/// assert_eq!(blobs.get_bytes(&key).await?, "hello");
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct FsBlobStore {
    engine: Arc<Engine>,
    namespace: Namespace,
    capabilities: Capabilities,
}

impl FsBlobStore {
    /// Opens the folder and creates it if it is missing. Removes temporary files of ended processes that are
    /// more than an hour old.
    ///
    /// # Errors
    /// `InvalidInput` for an empty path; `PermissionDenied`, `ResourceExhausted`, `Unavailable` or `Corrupt`
    /// from the file system; `Unsupported` if another version of this program wrote the folder in another
    /// format.
    pub async fn open(config: FsConfig, namespace: Namespace) -> Result<Self> {
        Self::open_at(config, namespace, FORMAT).await
    }

    /// As `open`, as a program of this format.
    pub(crate) async fn open_at(config: FsConfig, namespace: Namespace, format: i64) -> Result<Self> {
        const OPERATION: &str = "blobs.open";
        if config.root.as_os_str().is_empty() {
            return Err(Error::invalid(OPERATION, "root", "is empty; name a folder"));
        }
        let engine = blocking(OPERATION, move || {
            let opened = Engine::open(&config, format);
            opened.map_err(|error| failed(OPERATION, error, Outcome::NotApplied))?
        })
        .await?;
        let capabilities = Capabilities::new(engine.durability())
            .with(Capability::MultiProcess)
            .with(Capability::BlobCreateOnly)
            .with(Capability::BlobIfMatch)
            .with(Capability::BlobLongKeys);
        Ok(Self { engine: Arc::new(engine), namespace, capabilities })
    }

    /// Returns a store on the same folder with another namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: Namespace) -> Self {
        Self { namespace, ..self.clone() }
    }

    /// Runs a blocking step on the blocking pool.
    async fn step<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(Arc<Engine>, Namespace) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (engine, namespace) = (Arc::clone(&self.engine), self.namespace.clone());
        blocking(operation, move || work(engine, namespace)).await
    }
}

store! {
    FsBlobStore as store,
    shows: {},
    capabilities: store.capabilities.clone(),
    options: [BlobContentType, BlobMetadata, BlobRange, PresignContentType],
    erase: {
        write::erase(Arc::clone(&store.engine), store.namespace.clone()).await
    },
}

#[async_trait]
impl BlobStore for FsBlobStore {
    async fn put(&self, key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> Result<BlobInfo> {
        check_put(&options, &self.capabilities)?;
        write::put(Arc::clone(&self.engine), self.namespace.clone(), key.clone(), body, options).await
    }

    async fn get(&self, key: &BlobKey, options: BlobGetOptions) -> Result<BlobRead> {
        check_get(&options)?;
        let key = key.clone();
        self.step("blobs.get", move |engine, namespace| read::get(&engine, &namespace, &key, options)).await
    }

    async fn head(&self, key: &BlobKey) -> Result<BlobInfo> {
        let key = key.clone();
        self.step("blobs.head", move |engine, namespace| read::head(&engine, &namespace, &key)).await
    }

    async fn list(&self, prefix: &str, after: Option<&BlobKey>) -> Result<BlobEntries> {
        check_prefix(prefix)?;
        Ok(list::list(Arc::clone(&self.engine), &self.namespace, prefix, after))
    }

    async fn copy(&self, source: &BlobKey, target: &BlobKey) -> Result<BlobInfo> {
        let (engine, namespace) = (Arc::clone(&self.engine), self.namespace.clone());
        write::copy(engine, namespace, source.clone(), target.clone()).await
    }

    async fn delete(&self, key: &BlobKey) -> Result<bool> {
        write::delete(Arc::clone(&self.engine), self.namespace.clone(), key).await
    }

    async fn presign(&self, _key: &BlobKey, request: &PresignRequest) -> Result<PresignedUrl> {
        check_presign(request, &self.capabilities)?;
        Err(Error::new(
            ErrorKind::Unsupported,
            "blobs.presign",
            "a folder cannot create URLs; use S3 or the memory backend",
        ))
    }
}
