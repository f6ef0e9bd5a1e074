//! A correct blob store that makes five false declarations.
use std::{
    collections::BTreeMap, fmt, sync::Arc, sync::Mutex, sync::MutexGuard, sync::PoisonError, sync::Weak,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use larder_conformance::kernel::storage::blob::{check_get, check_prefix, check_presign, check_put};
use larder_conformance::kernel::*;
use larder_conformance::{Harness, OpenOptions, StoreSet};

type Blobs = Mutex<BTreeMap<(Namespace, BlobKey), (BlobInfo, Bytes)>>;

#[derive(Clone)]
pub struct LyingBlobs {
    namespace: Namespace,
    blobs: Arc<Blobs>,
}
impl LyingBlobs {
    fn blobs(&self) -> MutexGuard<'_, BTreeMap<(Namespace, BlobKey), (BlobInfo, Bytes)>> {
        self.blobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn at(&self, key: &BlobKey) -> (Namespace, BlobKey) {
        (self.namespace.clone(), key.clone())
    }
    fn find(&self, operation: &'static str, key: &BlobKey) -> Result<(BlobInfo, Bytes)> {
        let found = self.blobs().get(&self.at(key)).cloned();
        found.ok_or_else(|| Error::new(ErrorKind::NotFound, operation, "no such blob"))
    }
    fn write(&self, key: &BlobKey, bytes: Bytes, options: BlobPutOptions) -> Result<BlobInfo> {
        use std::sync::atomic::{AtomicU64, Ordering};
        static VERSION: AtomicU64 = AtomicU64::new(0);
        let mut blobs = self.blobs();
        // The first false declaration: `blob-create-only` is not declared, but the store obeys it. The
        // second: `blob-if-match` is declared, but the store overwrites any blob.
        if options.condition == BlobCondition::Absent && blobs.contains_key(&self.at(key)) {
            return Err(Error::new(ErrorKind::Conflict, "blobs.put", "the blob already exists"));
        }
        let info = BlobInfo::new(
            key.clone(),
            bytes.len() as u64,
            ETag::new(VERSION.fetch_add(1, Ordering::Relaxed).to_string())?,
            Timestamp::now(),
        )
        .with_content_type(options.content_type)
        .with_metadata(options.metadata);
        blobs.insert(self.at(key), (info.clone(), bytes));
        Ok(info)
    }
}
impl fmt::Debug for LyingBlobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LyingBlobs")
    }
}

#[async_trait]
impl Store for LyingBlobs {
    fn namespace(&self) -> &Namespace {
        &self.namespace
    }
    fn capabilities(&self) -> Capabilities {
        // The third false declaration: nothing outlives the last handle.
        let declared = Capabilities::new(Durability::Power).with(Capability::BlobLongKeys);
        declared.with(Capability::BlobIfMatch).with(Capability::BlobPresignGet)
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
        self.blobs().retain(|(namespace, _), _| *namespace != self.namespace);
        Ok(())
    }
}
#[async_trait]
impl BlobStore for LyingBlobs {
    async fn put(&self, key: &BlobKey, body: BlobBody, options: BlobPutOptions) -> Result<BlobInfo> {
        check_put(&options, &self.capabilities().with(Capability::BlobCreateOnly))?;
        let pieces: Vec<Bytes> = body.into_stream().try_collect().await?;
        self.write(key, pieces.concat().into(), options)
    }
    async fn get(&self, key: &BlobKey, options: BlobGetOptions) -> Result<BlobRead> {
        check_get(&options)?;
        let (info, bytes) = self.find("blobs.get", key)?;
        let range = options.range.map_or(Ok(0..info.size), |range| range.resolve(info.size))?;
        let piece = bytes.slice(range.start as usize..range.end as usize);
        Ok(BlobRead::new(info, range, stream::iter([Ok(piece)]).boxed()))
    }
    async fn head(&self, key: &BlobKey) -> Result<BlobInfo> {
        Ok(self.find("blobs.head", key)?.0)
    }
    async fn list(&self, prefix: &str, after: Option<&BlobKey>) -> Result<BlobEntries> {
        check_prefix(prefix)?;
        let wanted =
            |key: &BlobKey| key.as_str().starts_with(prefix) && after.is_none_or(|after| key > after);
        let blobs = self.blobs();
        let own = blobs.iter().filter(|((namespace, key), _)| *namespace == self.namespace && wanted(key));
        let entry = |info: &BlobInfo| {
            BlobEntry::new(info.key.clone(), info.size, info.etag.clone(), info.modified_at)
        };
        let entries: Vec<_> = own.map(|(_, (info, _))| Ok(entry(info))).collect();
        Ok(stream::iter(entries).boxed())
    }
    async fn copy(&self, source: &BlobKey, target: &BlobKey) -> Result<BlobInfo> {
        let (info, bytes) = self.find("blobs.copy", source)?;
        let mut options = BlobPutOptions::default().with_all_metadata(info.metadata);
        options.content_type = info.content_type;
        self.write(target, bytes, options)
    }
    async fn rename(&self, _: &BlobKey, _: &BlobKey, _: RenameMode) -> Result<BlobInfo> {
        Err(Error::unsupported("blobs.rename", Capability::BlobRename))
    }
    async fn delete(&self, key: &BlobKey) -> Result<bool> {
        Ok(self.blobs().remove(&self.at(key)).is_some())
    }
    async fn list_versions(&self, _: &BlobKey) -> Result<BlobVersions> {
        Err(Error::unsupported("blobs.list_versions", Capability::BlobVersions))
    }
    async fn get_version(&self, _: &BlobKey, _: &BlobVersionId, _: BlobGetOptions) -> Result<BlobRead> {
        Err(Error::unsupported("blobs.get_version", Capability::BlobVersions))
    }
    async fn delete_version(&self, _: &BlobKey, _: &BlobVersionId) -> Result<bool> {
        Err(Error::unsupported("blobs.delete_version", Capability::BlobVersions))
    }
    async fn presign(&self, key: &BlobKey, request: &PresignRequest) -> Result<PresignedUrl> {
        check_presign(request, &self.capabilities().with(Capability::BlobPresignPut))?;
        // The fourth false declaration: `blob-presign-get` is declared, but missing. The fifth:
        // `blob-presign-put` exists, but is not declared.
        if request.method == PresignMethod::Get {
            return Err(Error::unsupported("blobs.presign", Capability::BlobPresignGet));
        }
        let expires_at = Timestamp::now().saturating_add(request.valid_for);
        Ok(PresignedUrl::new(format!("lying://{key}"), request.method, expires_at))
    }
}

/// Keeps the data as long as the harness exists, or only as long as handles exist.
#[derive(Default)]
pub struct LyingHarness {
    kept: Option<Arc<Blobs>>,
    last: Mutex<Weak<Blobs>>,
}
impl LyingHarness {
    pub fn kept() -> Self {
        Self { kept: Some(Arc::default()), last: Mutex::default() }
    }
}
impl fmt::Debug for LyingHarness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LyingHarness")
    }
}
#[async_trait]
impl Harness for LyingHarness {
    fn name(&self) -> &str {
        "liar"
    }
    fn url(&self) -> String {
        "liar:".to_owned()
    }
    async fn open(&self, namespace: &Namespace, _: &OpenOptions) -> Result<StoreSet> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let blobs = self.kept.clone().or_else(|| last.upgrade()).unwrap_or_default();
        *last = Arc::downgrade(&blobs);
        let store = LyingBlobs { namespace: namespace.clone(), blobs };
        Ok(StoreSet::default().with_blobs(Arc::new(store)))
    }
    async fn isolated(&self) -> Result<Option<Arc<dyn Harness>>> {
        Ok(Some(Arc::new(Self::default())))
    }
}
