//! Blobs as files in a folder.
//!
//! A blob is one file: its bytes, then what is known of it, so that one open file is one version. A write goes to a
//! temporary file, is flushed, and is moved to its place in one step; then the folders are flushed. Conditions are
//! compared under lock files, so they hold across processes too. Nothing outside the root is ever touched and symbolic
//! links are not followed. Unix only: it rests on `openat`, `O_NOFOLLOW` and `flock`.

mod ahead;
mod config;
mod crc;
pub(crate) mod diagnose;
mod disk;
mod footer;
mod layout;
mod list;
mod read;
#[cfg(test)]
mod tests;
mod write;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use larder_kernel::storage::blob::{check_get, check_prefix, check_presign, check_put};
use larder_kernel::{
    BlobBody, BlobEntries, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobRead, BlobStore,
    Capabilities, Capability, Error, ErrorKind, Namespace, Outcome, PresignRequest, PresignedUrl, Result,
    Store,
};

pub use config::FsConfig;
use disk::{Disk, failed};

/// The most that a read gives out at once and that a streamed write gathers.
const CHUNK_BYTES: usize = 1024 * 1024;

/// A [`BlobStore`] over a folder.
///
/// Needs a Tokio runtime: the file system is used on its blocking pool.
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
    disk: Arc<Disk>,
    namespace: Namespace,
    capabilities: Capabilities,
}

impl FsBlobStore {
    /// Opens the folder, making it where it is missing, and removes temporary files that ended processes left more
    /// than an hour ago.
    ///
    /// # Errors
    /// `InvalidInput` for an empty path; `PermissionDenied`, `ResourceExhausted`, `Unavailable` or `Corrupt` from the
    /// file system.
    pub async fn open(config: FsConfig, namespace: Namespace) -> Result<Self> {
        const OPERATION: &str = "blobs.open";
        if config.root.as_os_str().is_empty() {
            return Err(Error::invalid(OPERATION, "root", "is empty; name a folder"));
        }
        let disk = blocking(OPERATION, move || {
            Disk::open(&config.root).map_err(|error| failed(OPERATION, error, Outcome::NotApplied))
        })
        .await?;
        let capabilities = Capabilities::new(disk.durability())
            .with(Capability::MultiProcess)
            .with(Capability::BlobCreateOnly)
            .with(Capability::BlobIfMatch)
            .with(Capability::BlobLongKeys);
        Ok(Self { disk: Arc::new(disk), namespace, capabilities })
    }

    /// The same folder in another namespace.
    #[must_use]
    pub fn in_namespace(&self, namespace: Namespace) -> Self {
        Self { namespace, ..self.clone() }
    }

    /// Runs a step that blocks with what every step needs.
    async fn step<T: Send + 'static>(
        &self,
        operation: &'static str,
        work: impl FnOnce(Arc<Disk>, Namespace) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (disk, namespace) = (Arc::clone(&self.disk), self.namespace.clone());
        blocking(operation, move || work(disk, namespace)).await
    }
}

impl fmt::Debug for FsBlobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FsBlobStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for FsBlobStore {
    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities.clone()
    }

    async fn erase(&self) -> Result<()> {
        let (_waiting, caller) = Caller::waits();
        self.step("blobs.erase", move |disk, namespace| write::erase(&disk, &namespace, &caller)).await
    }
}

#[async_trait]
impl BlobStore for FsBlobStore {
    async fn put(&self, key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> Result<BlobInfo> {
        check_put(&options, &self.capabilities)?;
        write::put(Arc::clone(&self.disk), self.namespace.clone(), key.clone(), body, options).await
    }

    async fn get(&self, key: &BlobKey, options: BlobGetOptions) -> Result<BlobRead> {
        check_get(&options)?;
        let key = key.clone();
        self.step("blobs.get", move |disk, namespace| read::get(&disk, &namespace, &key, options)).await
    }

    async fn head(&self, key: &BlobKey) -> Result<BlobInfo> {
        let key = key.clone();
        self.step("blobs.head", move |disk, namespace| read::head(&disk, &namespace, &key)).await
    }

    async fn list(&self, prefix: &str, after: Option<&BlobKey>) -> Result<BlobEntries> {
        check_prefix(prefix)?;
        Ok(list::list(Arc::clone(&self.disk), &self.namespace, prefix, after))
    }

    async fn copy(&self, source: &BlobKey, target: &BlobKey) -> Result<BlobInfo> {
        let (source, target) = (source.clone(), target.clone());
        let (_waiting, caller) = Caller::waits();
        let copy = move |disk, namespace| write::copy(disk, namespace, &source, target, caller);
        self.step("blobs.copy", copy).await
    }

    async fn delete(&self, key: &BlobKey) -> Result<bool> {
        let key = key.clone();
        let (_waiting, caller) = Caller::waits();
        self.step("blobs.delete", move |disk, namespace| write::delete(&disk, &namespace, &key, &caller))
            .await
    }

    async fn presign(&self, _key: &BlobKey, request: &PresignRequest) -> Result<PresignedUrl> {
        check_presign(request, &self.capabilities)?;
        Err(Error::new(ErrorKind::Unsupported, "blobs.presign", "a folder has no URLs to hand out"))
    }
}

/// Whether somebody still waits for a write. A step that has begun cannot be stopped, so it looks, under the locks that
/// the next write of the same key needs, before it does what others see: a write that was given up never comes over one
/// that was acknowledged later.
#[derive(Clone)]
pub(crate) struct Caller(Arc<AtomicBool>);

/// Held by who waits.
pub(crate) struct Waiting(Arc<AtomicBool>);

impl Caller {
    pub(crate) fn waits() -> (Waiting, Self) {
        let gone = Arc::new(AtomicBool::new(false));
        (Waiting(Arc::clone(&gone)), Self(gone))
    }

    /// Ends a step for which nobody waits any more.
    pub(crate) fn check(&self, operation: &'static str) -> Result<()> {
        if !self.0.load(Ordering::SeqCst) {
            return Ok(());
        }
        let message = "the call was given up before it took effect";
        Err(Error::new(ErrorKind::Unavailable, operation, message).with_outcome(Outcome::NotApplied))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Takes a step off the queue when its caller is gone, so that it cannot surprise a later one.
struct Queued(tokio::task::AbortHandle);

impl Drop for Queued {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Runs a step that blocks on the runtime's blocking pool. Once begun it runs to its end even if the caller is gone.
async fn blocking<T: Send + 'static>(
    operation: &'static str,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    let step = tokio::task::spawn_blocking(work);
    let _queued = Queued(step.abort_handle());
    match step.await {
        Ok(result) => result,
        Err(_) => Err(cut_short(operation)),
    }
}

/// What becomes of a step that did not come to its end.
fn cut_short(operation: &'static str) -> Error {
    let message = "the step did not come to its end; the runtime is shutting down, or there is a defect";
    Error::new(ErrorKind::Unexpected, operation, message)
}
