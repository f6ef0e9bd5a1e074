//! The blob store over a folder.

pub(super) mod checksum;
pub(super) mod footer;
mod list;
mod read;
mod read_ahead;
mod rename;
mod versions;
mod write;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use larder_agents::internal::missing_version;
use larder_kernel::storage::blob::{
    check_get, check_prefix, check_presign, check_put, check_rename, check_versions,
};
use larder_kernel::{
    BlobBody, BlobEntries, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobRead, BlobStore,
    BlobVersionId, BlobVersions, Capabilities, Capability, Error, ErrorKind, Namespace, PresignRequest,
    PresignedUrl, RenameMode, Result,
};

use super::blocking::blocking;
use super::config::FsConfig;
use super::engine::Engine;
use super::folder::Folder;
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
    folder: Arc<Folder>,
    namespace: Namespace,
    capabilities: Capabilities,
}

impl FsBlobStore {
    /// Opens the folder; the first write creates it if it is missing. Removes temporary files of ended
    /// processes that are more than an hour old.
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
        let (folder, durability, versions) = blocking(OPERATION, move || {
            let folder = Folder::open(config, format)?;
            let (durability, versions) = (folder.durability(), folder.keeps_versions());
            Ok((folder, durability, versions))
        })
        .await?;
        let mut capabilities = Capabilities::new(durability)
            .with(Capability::MultiProcess)
            .with(Capability::BlobCreateOnly)
            .with(Capability::BlobIfMatch)
            .with(Capability::BlobLongKeys)
            .with(Capability::BlobRename);
        if versions {
            capabilities = capabilities.with(Capability::BlobVersions);
        }
        Ok(Self { folder: Arc::new(folder), namespace, capabilities })
    }

    /// Returns a store on the same folder with another namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: Namespace) -> Self {
        Self { namespace, ..self.clone() }
    }

    /// Runs a step on the blocking pool; `work` gets `None` if the folder does not exist.
    async fn step<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(Option<Arc<Engine>>, Namespace) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (folder, namespace) = (Arc::clone(&self.folder), self.namespace.clone());
        blocking(operation, move || work(folder.for_reading(operation)?, namespace)).await
    }

    /// Returns the engine for a write, and creates the folder if it does not exist.
    async fn engine(&self, operation: &'static str) -> Result<Arc<Engine>> {
        match self.folder.ready() {
            Some(engine) => Ok(engine),
            None => {
                let folder = Arc::clone(&self.folder);
                blocking(operation, move || folder.for_writing(operation)).await
            }
        }
    }

    /// Returns the engine for a change of stored blobs; `None` if the folder does not exist.
    async fn existing(&self, operation: &'static str) -> Result<Option<Arc<Engine>>> {
        match self.folder.ready() {
            Some(engine) => Ok(Some(engine)),
            None => {
                let folder = Arc::clone(&self.folder);
                let existing = move || match folder.for_reading(operation)? {
                    Some(_) => folder.for_writing(operation).map(Some),
                    None => Ok(None),
                };
                blocking(operation, existing).await
            }
        }
    }
}

store! {
    FsBlobStore as store,
    shows: {},
    capabilities: store.capabilities.clone(),
    options: [BlobContentType, BlobMetadata, BlobRange, PresignContentType],
    erase: {
        match store.existing("blobs.erase").await? {
            Some(engine) => write::erase(engine, store.namespace.clone()).await,
            None => Ok(()),
        }
    },
}

#[async_trait]
impl BlobStore for FsBlobStore {
    async fn put(&self, key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> Result<BlobInfo> {
        check_put(&options, &self.capabilities)?;
        let engine = self.engine("blobs.put").await?;
        write::put(engine, self.namespace.clone(), key.clone(), body, options).await
    }

    async fn get(&self, key: &BlobKey, options: BlobGetOptions) -> Result<BlobRead> {
        check_get(&options)?;
        let key = key.clone();
        self.step("blobs.get", move |engine, namespace| {
            let engine = engine.ok_or_else(|| read::missing("blobs.get"))?;
            read::get(&engine, &namespace, &key, options)
        })
        .await
    }

    async fn head(&self, key: &BlobKey) -> Result<BlobInfo> {
        let key = key.clone();
        self.step("blobs.head", move |engine, namespace| {
            let engine = engine.ok_or_else(|| read::missing("blobs.head"))?;
            read::head(&engine, &namespace, &key)
        })
        .await
    }

    async fn list(&self, prefix: &str, after: Option<&BlobKey>) -> Result<BlobEntries> {
        check_prefix(prefix)?;
        let engine = match self.folder.ready() {
            Some(engine) => Some(engine),
            None => self.step("blobs.list", |engine, _| Ok(engine)).await?,
        };
        Ok(engine.map_or_else(
            || futures_util::stream::empty().boxed(),
            |engine| list::list(engine, &self.namespace, prefix, after),
        ))
    }

    async fn copy(&self, source: &BlobKey, target: &BlobKey) -> Result<BlobInfo> {
        let Some(engine) = self.existing("blobs.copy").await? else {
            return Err(read::missing("blobs.copy"));
        };
        write::copy(engine, self.namespace.clone(), source.clone(), target.clone()).await
    }

    async fn rename(&self, source: &BlobKey, target: &BlobKey, mode: RenameMode) -> Result<BlobInfo> {
        check_rename(&self.capabilities)?;
        let Some(engine) = self.existing("blobs.rename").await? else {
            return Err(read::missing("blobs.rename"));
        };
        rename::rename(engine, self.namespace.clone(), (source, target), mode).await
    }

    async fn delete(&self, key: &BlobKey) -> Result<bool> {
        match self.existing("blobs.delete").await? {
            Some(engine) => write::delete(engine, self.namespace.clone(), key).await,
            None => Ok(false),
        }
    }

    async fn list_versions(&self, key: &BlobKey) -> Result<BlobVersions> {
        check_versions(versions::LIST, &self.capabilities)?;
        let engine = self.step(versions::LIST, |engine, _| Ok(engine)).await?;
        match engine {
            Some(engine) => versions::list(engine, &self.namespace, key).await,
            None => Ok(futures_util::stream::empty().boxed()),
        }
    }

    async fn get_version(
        &self,
        key: &BlobKey,
        version: &BlobVersionId,
        options: BlobGetOptions,
    ) -> Result<BlobRead> {
        check_versions(versions::GET, &self.capabilities)?;
        check_get(&options).map_err(|error| error.in_operation(versions::GET))?;
        let (key, version) = (key.clone(), version.clone());
        self.step(versions::GET, move |engine, namespace| {
            let engine = engine.ok_or_else(missing_version)?;
            versions::get(&engine, &namespace, &key, &version, options)
        })
        .await
    }

    async fn delete_version(&self, key: &BlobKey, version: &BlobVersionId) -> Result<bool> {
        check_versions(versions::DELETE, &self.capabilities)?;
        match self.existing(versions::DELETE).await? {
            Some(engine) => versions::delete(engine, self.namespace.clone(), key, version).await,
            None => Ok(false),
        }
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
