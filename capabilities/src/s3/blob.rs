//! The blob store over a bucket.

mod body;
mod condition;
mod copy;
mod erase;
mod key_limit_probe;
mod list;
mod presign;
pub(crate) mod probe;
mod progress_timeout;
mod read;
mod upload;
mod value;
pub(crate) mod verify;
pub(crate) mod versions;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use larder_agents::internal::missing_version;
use larder_kernel::storage::blob::{check_get, check_prefix, check_presign, check_put, check_versions};
use larder_kernel::{
    BlobBody, BlobEntries, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobRead, BlobStore,
    BlobVersionId, BlobVersions, Capabilities, Capability, Durability, Error, ErrorKind, Namespace,
    PresignRequest, PresignedUrl, RenameMode, Result,
};

use self::versions::Versioning;
use super::config::S3Config;
use super::engine::{Engine, OPEN};
use super::format::{self, FORMAT};
use super::key::Layout;

/// A [`BlobStore`] over a bucket.
///
/// Needs a Tokio runtime.
///
/// ```no_run
/// use larder_capabilities::s3::{S3BlobStore, S3Config};
/// use larder_kernel::{BlobKey, BlobStoreExt, Namespace};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let config = S3Config::from_url("s3://files/app?region=eu-central-1")?;
/// let blobs = S3BlobStore::open(&config, Namespace::new("default")?).await?;
/// let key = BlobKey::new("reports/2026/a.txt")?;
/// blobs.put_bytes(&key, "hello".into()).await?;
/// assert_eq!(blobs.get_bytes(&key).await?, "hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct S3BlobStore {
    engine: Arc<Engine>,
    layout: Layout,
    namespace: Namespace,
    capabilities: Capabilities,
    /// The maximum length of an object name that the server stores.
    name_bytes_max: usize,
}

impl S3BlobStore {
    /// Finds credentials, checks the bucket, and probes which conditional writes the server honors and how
    /// long its names may be. The probes write a few small objects under `probe/` and remove them again. The
    /// object `format=1` stays: it is the bucket's format number.
    ///
    /// # Errors
    /// `NotFound` naming `url` if the bucket does not exist; `PermissionDenied` for credentials that are
    /// missing, wrong or may not list the bucket; `InvalidInput` naming `url` for a wrong region or endpoint,
    /// or a prefix under which the server cannot store even short keys; `Unavailable` or `Timeout` if the
    /// server cannot be reached or does not reply within [`response_timeout`](S3Config::response_timeout);
    /// `Timeout` if it replies but the probes take more than half a minute; `Unsupported` if another version
    /// of this program wrote the bucket in another format.
    pub async fn open(config: &S3Config, namespace: Namespace) -> Result<Self> {
        Self::open_at(config, namespace, FORMAT).await
    }

    /// Opens the bucket as the next release does, whose format number is one higher. For tests of upgrades.
    ///
    /// # Errors
    /// As [`S3BlobStore::open`].
    #[doc(hidden)]
    pub async fn open_as_later(config: &S3Config, namespace: Namespace) -> Result<Self> {
        Self::open_at(config, namespace, FORMAT + 1).await
    }

    async fn open_at(config: &S3Config, namespace: Namespace, format: i64) -> Result<Self> {
        let engine = Arc::new(Engine::open(config).await?);
        format::check(&engine, format)?;
        let versioning = Versioning::of_bucket(&engine, OPEN).await?;
        // A probe removes its objects, or leaves them where no store reads.
        let supported =
            probe::probe(&engine, versioning).await.map_err(|error| error.with_idempotent(true))?;
        format::create(&engine, format).await.map_err(|error| error.with_idempotent(true))?;
        let mut capabilities = Capabilities::new(Durability::Process)
            .with(Capability::MultiProcess)
            .with(Capability::BlobPresignGet)
            .with(Capability::BlobPresignPut);
        if supported.create_only {
            capabilities = capabilities.with(Capability::BlobCreateOnly);
        }
        if supported.if_match {
            capabilities = capabilities.with(Capability::BlobIfMatch);
        }
        if supported.long_keys {
            capabilities = capabilities.with(Capability::BlobLongKeys);
        }
        if versioning == Versioning::On {
            capabilities = capabilities.with(Capability::BlobVersions);
        }
        let name_bytes_max = supported.name_bytes_max;
        let layout = Layout::new(&engine.prefix, &namespace, name_bytes_max);
        Ok(Self { engine, layout, namespace, capabilities, name_bytes_max })
    }

    /// Returns a store on the same bucket with another namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: Namespace) -> Self {
        let layout = Layout::new(&self.engine.prefix, &namespace, self.name_bytes_max);
        Self { layout, namespace, ..self.clone() }
    }

    /// Rejects a write to a key that the server cannot store.
    fn check_key_fits(&self, operation: &'static str, key: &BlobKey) -> Result<()> {
        if self.layout.fits(key) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            operation,
            "is too long for the server in this namespace; shorten the key or the namespace",
        )
        .with_context("capability", Capability::BlobLongKeys.as_str())
        .with_field("key"))
    }

    /// Returns not found for a key that the server cannot store.
    fn check_key_may_exist(&self, operation: &'static str, key: &BlobKey) -> Result<()> {
        if self.layout.fits(key) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotFound, operation, "the blob does not exist; check the key"))
    }
}

store! {
    S3BlobStore as store,
    shows: {},
    capabilities: store.capabilities.clone(),
    options: [BlobContentType, BlobMetadata, BlobRange, PresignContentType],
    erase: erase::erase(&store.engine, &store.layout).await,
}

#[async_trait]
impl BlobStore for S3BlobStore {
    async fn put(&self, key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> Result<BlobInfo> {
        check_put(&options, &self.capabilities)?;
        self.check_key_fits("blobs.put", key)?;
        write::put(&self.engine, &self.layout, key, body, options).await
    }

    async fn get(&self, key: &BlobKey, options: BlobGetOptions) -> Result<BlobRead> {
        check_get(&options)?;
        self.check_key_may_exist("blobs.get", key)?;
        read::get(&self.engine, &self.layout, key, None, options).await
    }

    async fn head(&self, key: &BlobKey) -> Result<BlobInfo> {
        self.check_key_may_exist("blobs.head", key)?;
        read::head(&self.engine, &self.layout, "blobs.head", key).await
    }

    async fn list(&self, prefix: &str, after: Option<&BlobKey>) -> Result<BlobEntries> {
        check_prefix(prefix)?;
        Ok(list::list(&self.engine, &self.layout, prefix, after))
    }

    async fn copy(&self, source: &BlobKey, target: &BlobKey) -> Result<BlobInfo> {
        self.check_key_fits("blobs.copy", target)?;
        self.check_key_may_exist("blobs.copy", source)?;
        copy::copy(&self.engine, &self.layout, source, target).await
    }

    /// S3 can only copy and delete, in two steps, so the capability is not declared.
    async fn rename(&self, _source: &BlobKey, _target: &BlobKey, _mode: RenameMode) -> Result<BlobInfo> {
        Err(Error::unsupported("blobs.rename", Capability::BlobRename))
    }

    async fn delete(&self, key: &BlobKey) -> Result<bool> {
        if !self.layout.fits(key) {
            return Ok(false);
        }
        erase::delete(&self.engine, &self.layout, key).await
    }

    async fn list_versions(&self, key: &BlobKey) -> Result<BlobVersions> {
        check_versions(versions::LIST, &self.capabilities)?;
        if !self.layout.fits(key) {
            return Ok(futures_util::StreamExt::boxed(futures_util::stream::empty()));
        }
        Ok(versions::list(&self.engine, &self.layout, key))
    }

    async fn get_version(
        &self,
        key: &BlobKey,
        version: &BlobVersionId,
        options: BlobGetOptions,
    ) -> Result<BlobRead> {
        check_versions(versions::GET, &self.capabilities)?;
        check_get(&options).map_err(|error| error.in_operation(versions::GET))?;
        if !self.layout.fits(key) {
            return Err(missing_version());
        }
        versions::get(&self.engine, &self.layout, key, version, options).await
    }

    async fn delete_version(&self, key: &BlobKey, version: &BlobVersionId) -> Result<bool> {
        check_versions(versions::DELETE, &self.capabilities)?;
        if !self.layout.fits(key) {
            return Ok(false);
        }
        versions::delete(&self.engine, &self.layout, key, version).await
    }

    async fn presign(&self, key: &BlobKey, request: &PresignRequest) -> Result<PresignedUrl> {
        check_presign(request, &self.capabilities)?;
        self.check_key_fits("blobs.presign", key)?;
        presign::presign(&self.engine, &self.layout, key, request).await
    }
}
