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
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::storage::blob::{check_get, check_prefix, check_presign, check_put};
use larder_kernel::{
    BlobBody, BlobEntries, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobRead, BlobStore,
    Capabilities, Capability, Durability, Error, ErrorKind, Namespace, PresignRequest, PresignedUrl, Result,
};

use super::config::S3Config;
use super::engine::Engine;
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
    /// The longest name of an object that the server keeps.
    name_bytes_max: usize,
}

impl S3BlobStore {
    /// Finds credentials, asks the server for the bucket, and tries out which conditional writes it honours and how
    /// long its names may be, with a few small objects under `probe/` that are removed again.
    ///
    /// # Errors
    /// `NotFound` naming `url` where there is no such bucket; `PermissionDenied` for credentials that are missing, wrong
    /// or may not list the bucket; `InvalidInput` naming `url` for a region or an endpoint that does not fit, or a prefix
    /// under which the server cannot even keep short keys;
    /// `Unavailable` or `Timeout` where the server cannot be reached or does not answer, within
    /// [`response_timeout`](S3Config::response_timeout); `Timeout` where it answers and then takes more than half a
    /// minute over what is tried out.
    pub async fn open(config: &S3Config, namespace: Namespace) -> Result<Self> {
        let engine = Arc::new(Engine::open(config).await?);
        // A probe takes away what it wrote, or leaves it where nobody looks.
        let supported = probe::probe(&engine).await.map_err(|error| error.with_idempotent(true))?;
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
        let name_bytes_max = supported.name_bytes_max;
        let layout = Layout::new(&engine.prefix, &namespace, name_bytes_max);
        Ok(Self { engine, layout, namespace, capabilities, name_bytes_max })
    }

    /// The same bucket in another namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: Namespace) -> Self {
        let layout = Layout::new(&self.engine.prefix, &namespace, self.name_bytes_max);
        Self { layout, namespace, ..self.clone() }
    }

    /// Refuses to write under a key that the server does not keep.
    fn check_key_fits(&self, operation: &'static str, key: &BlobKey) -> Result<()> {
        if self.layout.fits(key) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Unsupported,
            operation,
            "in this namespace the key makes a name longer than the server keeps; shorten one of them",
        )
        .with_context("capability", Capability::BlobLongKeys.as_str())
        .with_field("key"))
    }

    /// Finds nothing under a key that the server does not keep.
    fn check_key_may_exist(&self, operation: &'static str, key: &BlobKey) -> Result<()> {
        if self.layout.fits(key) {
            return Ok(());
        }
        Err(Error::new(ErrorKind::NotFound, operation, "no blob has this key"))
    }
}

store! {
    S3BlobStore as store,
    shows: {},
    capabilities: store.capabilities.clone(),
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
        read::get(&self.engine, &self.layout, key, options).await
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

    async fn delete(&self, key: &BlobKey) -> Result<bool> {
        if !self.layout.fits(key) {
            return Ok(false);
        }
        erase::delete(&self.engine, &self.layout, key).await
    }

    async fn presign(&self, key: &BlobKey, request: &PresignRequest) -> Result<PresignedUrl> {
        check_presign(request, &self.capabilities)?;
        self.check_key_fits("blobs.presign", key)?;
        presign::presign(&self.engine, &self.layout, key, request).await
    }
}
