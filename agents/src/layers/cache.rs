//! The layer that caches the bytes of blobs.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use larder_kernel::check::size;
use larder_kernel::storage::blob::check_get;
use larder_kernel::{
    BlobBody, BlobBytes, BlobEntries, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobRead, BlobStore,
    BlobVersionId, BlobVersions, Capabilities, ETag, ErrorKind, GraphStore, HistoryProvider, KeyValueStore,
    Namespace, OptionSet, PresignRequest, PresignedUrl, RenameMode, RequestOption, Result, Store, TaskStore,
    VectorStore,
};

use super::layer::Layer;

/// Caches blobs that were read, and returns them from memory while the blob in the store is unchanged.
///
/// The contract allows no stale reads, even after a write through another handle. Each read of a cached blob
/// therefore asks the store for its [`ETag`] by `head`, and only the bytes come from memory. An `ETag`
/// changes with the bytes, so a cached entry never becomes wrong.
///
/// The other contracts have no version that is cheaper to read than the item itself and that never repeats. A
/// revision or a `Seq` restarts after an erasure, replaced messages take used positions, and reading a thread
/// may extend its time to live. Their stores are not cached.
///
/// ```
/// use larder_agents::storage::InMemoryBlobStore;
/// use larder_agents::layers::{BlobCacheLayer, Layer};
/// use larder_kernel::{BlobKey, BlobStoreExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let cache = BlobCacheLayer::new(64 * 1024 * 1024).with_blob_bytes_max(1024 * 1024);
/// let blobs = cache.blobs(std::sync::Arc::new(InMemoryBlobStore::new()));
/// let key = BlobKey::new("images/logo.png")?;
/// blobs.put_bytes(&key, "bytes".into()).await?;
/// assert_eq!(blobs.get_bytes(&key).await?, blobs.get_bytes(&key).await?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct BlobCacheLayer {
    bytes_max: usize,
    blob_bytes_max: usize,
}

impl BlobCacheLayer {
    /// Caches at most `bytes_max` bytes for each store that it wraps. The largest cached blob is an eighth of
    /// that.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, blob_bytes_max: bytes_max / 8 }
    }

    /// Sets the size of the largest cached blob.
    #[must_use]
    pub fn with_blob_bytes_max(mut self, blob_bytes_max: usize) -> Self {
        self.blob_bytes_max = blob_bytes_max.min(self.bytes_max);
        self
    }
}

impl Layer for BlobCacheLayer {
    fn history(&self, store: Arc<dyn HistoryProvider>) -> Arc<dyn HistoryProvider> {
        store
    }

    fn vectors(&self, store: Arc<dyn VectorStore>) -> Arc<dyn VectorStore> {
        store
    }

    fn graph(&self, store: Arc<dyn GraphStore>) -> Arc<dyn GraphStore> {
        store
    }

    fn blobs(&self, store: Arc<dyn BlobStore>) -> Arc<dyn BlobStore> {
        let kept = Arc::new(Mutex::new(Kept { bytes_max: self.bytes_max, ..Kept::default() }));
        Arc::new(Cached { inner: store, kept, blob_bytes_max: size(self.blob_bytes_max) })
    }

    fn tasks(&self, store: Arc<dyn TaskStore>) -> Arc<dyn TaskStore> {
        store
    }

    fn key_value(&self, store: Arc<dyn KeyValueStore>) -> Arc<dyn KeyValueStore> {
        store
    }
}

/// The cached blobs, in the order of their last use.
#[derive(Default)]
struct Kept {
    bytes_max: usize,
    bytes: usize,
    uses: u64,
    blobs: HashMap<BlobKey, Blob>,
    order: BTreeMap<u64, BlobKey>,
}

#[derive(Clone)]
struct Blob {
    etag: ETag,
    bytes: Bytes,
    used: u64,
}

impl Kept {
    fn find(&mut self, key: &BlobKey) -> Option<(ETag, Bytes)> {
        let blob = self.blobs.get_mut(key)?;
        self.uses += 1;
        self.order.remove(&blob.used);
        blob.used = self.uses;
        self.order.insert(self.uses, key.clone());
        Some((blob.etag.clone(), blob.bytes.clone()))
    }

    fn keep(&mut self, key: BlobKey, etag: ETag, bytes: Bytes) {
        self.forget(&key);
        self.bytes += bytes.len();
        self.uses += 1;
        self.order.insert(self.uses, key.clone());
        self.blobs.insert(key, Blob { etag, bytes, used: self.uses });
        while self.bytes > self.bytes_max {
            let Some(oldest) = self.order.first_key_value().map(|(_, key)| key.clone()) else { break };
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, key: &BlobKey) {
        if let Some(blob) = self.blobs.remove(key) {
            self.order.remove(&blob.used);
            self.bytes -= blob.bytes.len();
        }
    }
}

struct Cached {
    inner: Arc<dyn BlobStore>,
    kept: Arc<Mutex<Kept>>,
    blob_bytes_max: u64,
}

/// Locks the cache. Nothing panics while it holds the lock. If it did, cached entries would still be served
/// only under their `ETag`.
fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached").field("store", &self.inner).finish_non_exhaustive()
    }
}

impl Cached {
    /// Returns the blob from memory, if it is cached and unchanged in the store.
    async fn remembered(&self, key: &BlobKey, options: &BlobGetOptions) -> Result<Option<BlobRead>> {
        let Some((etag, bytes)) = lock(&self.kept).find(key) else { return Ok(None) };
        let info = match self.inner.head(key).await {
            Ok(info) => info,
            Err(error) => {
                if error.kind() == ErrorKind::NotFound {
                    lock(&self.kept).forget(key);
                }
                return Err(error.in_operation("blobs.get"));
            }
        };
        if info.etag != etag || info.size != size(bytes.len()) {
            lock(&self.kept).forget(key);
            return Ok(None);
        }
        let range = options.range.map_or(Ok(0..info.size), |range| range.resolve(info.size))?;
        let at = |end: u64| usize::try_from(end).unwrap_or(bytes.len());
        let piece = bytes.slice(at(range.start)..at(range.end));
        let bytes = futures_util::stream::once(std::future::ready(Ok(piece))).boxed();
        Ok(Some(BlobRead::new(info, range, bytes)))
    }

    /// Wraps the stream so that it is cached after it has been read to its end.
    fn keeping(&self, read: BlobRead) -> BlobRead {
        let (kept, key, etag) = (Arc::clone(&self.kept), read.info.key.clone(), read.info.etag.clone());
        let (whole, mut gathered, mut pieces) = (read.info.size, Some(BytesMut::new()), read.bytes);
        let bytes: BlobBytes = futures_util::stream::poll_fn(move |context| {
            let polled = pieces.poll_next_unpin(context);
            match &polled {
                std::task::Poll::Ready(Some(Ok(piece))) => {
                    if let Some(gathered) = &mut gathered {
                        gathered.extend_from_slice(piece);
                    }
                }
                std::task::Poll::Ready(Some(Err(_))) => gathered = None,
                std::task::Poll::Ready(None) => {
                    let gathered = gathered.take().filter(|gathered| size(gathered.len()) == whole);
                    if let Some(gathered) = gathered {
                        lock(&kept).keep(key.clone(), etag.clone(), gathered.freeze());
                    }
                }
                std::task::Poll::Pending => {}
            }
            polled
        })
        .boxed();
        BlobRead::new(read.info, read.range, bytes)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl Store for Cached {
    fn namespace(&self) -> &Namespace {
        self.inner.namespace()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn options(&self) -> OptionSet {
        // The cache serves reads, so it must support every option of a read.
        self.inner.options().intersection(OptionSet::of(&[
            RequestOption::BlobContentType,
            RequestOption::BlobMetadata,
            RequestOption::BlobRange,
            RequestOption::PresignContentType,
        ]))
    }

    async fn erase(&self) -> Result<()> {
        self.inner.erase().await
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl BlobStore for Cached {
    async fn put(&self, key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> Result<BlobInfo> {
        self.inner.put(key, body, options).await
    }

    async fn get(&self, key: &BlobKey, options: BlobGetOptions) -> Result<BlobRead> {
        check_get(&options)?;
        if let Some(read) = self.remembered(key, &options).await? {
            return Ok(read);
        }
        let whole = options.range.is_none();
        let read = self.inner.get(key, options).await?;
        let fits = whole && read.info.size <= self.blob_bytes_max;
        Ok(if fits { self.keeping(read) } else { read })
    }

    async fn head(&self, key: &BlobKey) -> Result<BlobInfo> {
        self.inner.head(key).await
    }

    async fn list(&self, prefix: &str, after: Option<&BlobKey>) -> Result<BlobEntries> {
        self.inner.list(prefix, after).await
    }

    async fn copy(&self, source: &BlobKey, target: &BlobKey) -> Result<BlobInfo> {
        self.inner.copy(source, target).await
    }

    async fn rename(&self, source: &BlobKey, target: &BlobKey, mode: RenameMode) -> Result<BlobInfo> {
        self.inner.rename(source, target, mode).await
    }

    async fn delete(&self, key: &BlobKey) -> Result<bool> {
        self.inner.delete(key).await
    }

    async fn list_versions(&self, key: &BlobKey) -> Result<BlobVersions> {
        self.inner.list_versions(key).await
    }

    async fn get_version(
        &self,
        key: &BlobKey,
        version: &BlobVersionId,
        options: BlobGetOptions,
    ) -> Result<BlobRead> {
        self.inner.get_version(key, version, options).await
    }

    async fn delete_version(&self, key: &BlobKey, version: &BlobVersionId) -> Result<bool> {
        self.inner.delete_version(key, version).await
    }

    async fn presign(&self, key: &BlobKey, request: &PresignRequest) -> Result<PresignedUrl> {
        self.inner.presign(key, request).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_entry_is_removed_first() {
        let mut kept = Kept { bytes_max: 10, ..Kept::default() };
        let key = |name: &str| BlobKey::new(name).unwrap();
        let etag = ETag::new("e").unwrap();
        for name in ["a", "b"] {
            kept.keep(key(name), etag.clone(), Bytes::from_static(b"1234"));
        }
        assert!(kept.find(&key("a")).is_some());
        kept.keep(key("c"), etag.clone(), Bytes::from_static(b"1234"));
        assert!(kept.find(&key("b")).is_none() && kept.find(&key("a")).is_some());
        kept.keep(key("a"), etag, Bytes::from_static(b"1"));
        assert_eq!((kept.bytes, kept.order.len()), (5, 2));
    }
}
