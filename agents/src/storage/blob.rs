//! In-memory files.

mod body;
mod state;
#[cfg(test)]
mod tests;
mod versions;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use futures_util::stream;
use larder_kernel::check::size;
use larder_kernel::storage::blob::{
    BlobEntries, check_get, check_prefix, check_presign, check_put, check_rename,
};
use larder_kernel::{
    BlobBody, BlobCondition, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobRead, BlobStore,
    BlobVersionId, BlobVersions, Capabilities, Capability, Durability, ETag, Error, ErrorKind, Namespace,
    OptionSet, PresignRequest, PresignedUrl, RenameMode, RequestOption, Result, Store, Timestamp,
};

use self::body::{Content, Reservation};
use self::state::{Blobs, LIST_PAGE, NamespaceState, Stored, not_found};
use super::MemoryBackend;
use super::backend::default_namespace;

/// The quota share of one blob, apart from its bytes, key, content type and user metadata.
const RECORD_BYTES: u64 = 256;

/// An in-memory [`BlobStore`].
///
/// A body is collected before it is written. The write and its condition are one atomic step. The body counts
/// toward the backend's quota as it arrives, so while a blob is replaced, the old and the new bytes both
/// count. Presigned URLs have the form `memory://{key}`: they only identify the blob, and the store itself
/// reads and writes it.
///
/// ```
/// use larder_agents::storage::InMemoryBlobStore;
/// use larder_kernel::{BlobKey, BlobStore, BlobStoreExt};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let store = InMemoryBlobStore::new();
/// let key = BlobKey::new("reports/may.txt")?;
/// let written = store.put_bytes(&key, "all well".into()).await?;
/// assert_eq!(store.get_bytes(&key).await?, "all well");
/// assert_eq!(store.head(&key).await?, written);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct InMemoryBlobStore {
    backend: MemoryBackend,
    namespace: Namespace,
    state: Arc<NamespaceState>,
    keeps_versions: bool,
}

/// Returns a tag that no other write of any process has. It combines the start time of this process
/// and the number of the write.
fn next_etag() -> Result<ETag> {
    static BEGAN_MICROS: OnceLock<i64> = OnceLock::new();
    static WRITES: AtomicU64 = AtomicU64::new(0);
    let began = BEGAN_MICROS.get_or_init(|| Timestamp::now().as_micros());
    ETag::new(format!("{began:x}-{:x}", WRITES.fetch_add(1, Ordering::Relaxed)))
}

/// Fails if the condition of a write does not hold.
fn check_condition(condition: &BlobCondition, there: Option<&Arc<Stored>>) -> Result<()> {
    const OPERATION: &str = "blobs.put";
    match condition {
        BlobCondition::None => Ok(()),
        BlobCondition::Absent if there.is_none() => Ok(()),
        BlobCondition::Absent => Err(Error::new(
            ErrorKind::Conflict,
            OPERATION,
            "a blob with this key already exists; use another key or write without the condition",
        )),
        BlobCondition::Matches(etag) if there.is_some_and(|stored| stored.info.etag == *etag) => Ok(()),
        BlobCondition::Matches(_) => Err(Error::new(
            ErrorKind::Conflict,
            OPERATION,
            "the blob has another ETag or does not exist; read it again and retry",
        )),
        _ => Err(Error::unknown_value(OPERATION, "condition")),
    }
}

/// Returns the quota share of a blob apart from its bytes.
fn overhead(key: &BlobKey, content_type: Option<&str>, metadata: &BTreeMap<String, String>) -> u64 {
    let metadata: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    RECORD_BYTES + size(key.as_str().len() + content_type.map_or(0, str::len) + metadata)
}

impl InMemoryBlobStore {
    /// Creates a store in a new backend.
    #[must_use]
    pub fn new() -> Self {
        Self::open(&MemoryBackend::new(), default_namespace())
    }

    /// Opens the store of a namespace on a backend.
    #[must_use]
    pub fn open(backend: &MemoryBackend, namespace: Namespace) -> Self {
        let keeps_versions = backend.keeps_blob_versions();
        Self {
            state: backend.namespace_state(&namespace),
            backend: backend.clone(),
            namespace,
            keeps_versions,
        }
    }

    /// Stores a blob under its key. The caller holds the lock, so that its earlier checks still hold.
    fn replace(&self, blobs: &mut Blobs, info: BlobInfo, content: Content, reserved: Reservation) {
        let old = blobs.insert(Stored { info, content, counted: reserved.keep() });
        self.retire(blobs, old);
    }

    /// Keeps a blob that was replaced or removed as an earlier version, or releases its bytes.
    fn retire(&self, blobs: &mut Blobs, old: Option<Arc<Stored>>) {
        match old {
            Some(old) if self.keeps_versions => blobs.keep(old),
            Some(old) => self.backend.release(old.counted),
            None => {}
        }
    }
}

impl Default for InMemoryBlobStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for InMemoryBlobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryBlobStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for InMemoryBlobStore {
    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn capabilities(&self) -> Capabilities {
        let declared = Capabilities::new(Durability::None)
            .with(Capability::BlobCreateOnly)
            .with(Capability::BlobIfMatch)
            .with(Capability::BlobLongKeys)
            .with(Capability::BlobRename)
            .with(Capability::BlobPresignGet)
            .with(Capability::BlobPresignPut);
        if self.keeps_versions { declared.with(Capability::BlobVersions) } else { declared }
    }

    fn options(&self) -> OptionSet {
        OptionSet::of(&[
            RequestOption::BlobContentType,
            RequestOption::BlobMetadata,
            RequestOption::BlobRange,
            RequestOption::PresignContentType,
        ])
    }

    async fn erase(&self) -> Result<()> {
        let gone = std::mem::take(&mut *self.state.write());
        self.backend.release(gone.counted());
        Ok(())
    }
}

#[async_trait]
impl BlobStore for InMemoryBlobStore {
    async fn put(&self, key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> Result<BlobInfo> {
        const OPERATION: &str = "blobs.put";
        check_put(&options, &self.capabilities())?;
        // This early check avoids reading a body that would be rejected. The check with the write is the one
        // that counts.
        check_condition(&options.condition, self.state.read().get(key))?;
        let mut reserved = Reservation::new(&self.backend);
        let BlobPutOptions { condition, content_type, metadata, .. } = options;
        reserved.grow(OPERATION, overhead(key, content_type.as_deref(), &metadata))?;
        let content = Content::collect(OPERATION, body, &mut reserved).await?;
        let mut blobs = self.state.write();
        check_condition(&condition, blobs.get(key))?;
        let info = BlobInfo::new(key.clone(), content.size(), next_etag()?, Timestamp::now())
            .with_content_type(content_type)
            .with_metadata(metadata);
        self.replace(&mut blobs, info.clone(), content, reserved);
        Ok(info)
    }

    async fn get(&self, key: &BlobKey, options: BlobGetOptions) -> Result<BlobRead> {
        check_get(&options)?;
        self.state.find("blobs.get", key)?.read(options)
    }

    async fn head(&self, key: &BlobKey) -> Result<BlobInfo> {
        self.state.find("blobs.head", key).map(|stored| stored.info.clone())
    }

    async fn list(&self, prefix: &str, after: Option<&BlobKey>) -> Result<BlobEntries> {
        check_prefix(prefix)?;
        let (state, prefix) = (self.state.clone(), prefix.to_owned());
        let start = (VecDeque::new(), after.cloned(), true);
        let entries = stream::unfold(start, move |(mut page, mut after, mut more)| {
            if page.is_empty() && more {
                page = state.page(&prefix, after.as_ref().map(BlobKey::as_str));
                more = page.len() == LIST_PAGE;
                after = page.back().map(|entry| entry.key.clone());
            }
            let next = page.pop_front().map(|entry| (Ok(entry), (page, after, more)));
            std::future::ready(next)
        });
        Ok(Box::pin(entries))
    }

    async fn copy(&self, source: &BlobKey, target: &BlobKey) -> Result<BlobInfo> {
        const OPERATION: &str = "blobs.copy";
        let mut blobs = self.state.write();
        let stored = blobs.get(source).cloned().ok_or_else(|| not_found(OPERATION))?;
        if source == target {
            return Ok(stored.info.clone());
        }
        // Both blobs share the bytes, but each counts them, because either may be deleted first.
        let mut reserved = Reservation::new(&self.backend);
        let overhead = overhead(target, stored.info.content_type.as_deref(), &stored.info.metadata);
        reserved.grow(OPERATION, overhead + stored.content.size())?;
        let mut info = stored.info.clone();
        (info.key, info.etag, info.modified_at) = (target.clone(), next_etag()?, Timestamp::now());
        self.replace(&mut blobs, info.clone(), stored.content.clone(), reserved);
        Ok(info)
    }

    async fn rename(&self, source: &BlobKey, target: &BlobKey, mode: RenameMode) -> Result<BlobInfo> {
        const OPERATION: &str = "blobs.rename";
        check_rename(&self.capabilities())?;
        let mut blobs = self.state.write();
        let stored = blobs.get(source).cloned().ok_or_else(|| not_found(OPERATION))?;
        match mode {
            RenameMode::Refuse if blobs.get(target).is_some() => {
                let message =
                    "a blob with the target key already exists; use another key or replace the blob";
                return Err(Error::new(ErrorKind::Conflict, OPERATION, message));
            }
            RenameMode::Refuse | RenameMode::Replace => {}
            _ => return Err(Error::unknown_value(OPERATION, "mode")),
        }
        if source == target {
            return Ok(stored.info.clone());
        }
        let (shorter, longer) = (size(source.as_str().len()), size(target.as_str().len()));
        let replaced = blobs.get(target).filter(|_| !self.keeps_versions).map_or(0, |old| old.counted);
        self.backend.exchange(OPERATION, replaced + shorter, longer)?;
        let mut info = stored.info.clone();
        info.key = target.clone();
        let counted = stored.counted + longer - shorter;
        let moved = Stored { info: info.clone(), content: stored.content.clone(), counted };
        blobs.remove(source);
        if let Some(old) = blobs.insert(moved).filter(|_| self.keeps_versions) {
            blobs.keep(old);
        }
        Ok(info)
    }

    async fn delete(&self, key: &BlobKey) -> Result<bool> {
        let mut blobs = self.state.write();
        let gone = blobs.remove(key);
        let existed = gone.is_some();
        self.retire(&mut blobs, gone);
        Ok(existed)
    }

    async fn list_versions(&self, key: &BlobKey) -> Result<BlobVersions> {
        self.versions_of(key)
    }

    async fn get_version(
        &self,
        key: &BlobKey,
        version: &BlobVersionId,
        options: BlobGetOptions,
    ) -> Result<BlobRead> {
        self.read_version(key, version, options)
    }

    async fn delete_version(&self, key: &BlobKey, version: &BlobVersionId) -> Result<bool> {
        self.remove_version(key, version)
    }

    async fn presign(&self, key: &BlobKey, request: &PresignRequest) -> Result<PresignedUrl> {
        check_presign(request, &self.capabilities())?;
        let content_type = request.content_type.as_ref();
        let expires_at = Timestamp::now().saturating_add(request.valid_for);
        let headers =
            content_type.map(|value| ("content-type".to_owned(), value.clone())).into_iter().collect();
        Ok(PresignedUrl::new(format!("memory://{key}"), request.method, expires_at).with_headers(headers))
    }
}
