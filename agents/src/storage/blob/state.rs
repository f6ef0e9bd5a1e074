//! The blobs of a namespace.

use std::borrow::Borrow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use larder_kernel::{BlobEntry, BlobGetOptions, BlobInfo, BlobKey, BlobRead, Error, ErrorKind, Result};

use super::body::Content;

/// The number of blobs that a listing reads in one step.
pub(super) const LIST_PAGE: usize = 256;

/// A key that maps find by its text, so that a prefix that is not a valid key can begin a range.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct ByText(BlobKey);

impl Borrow<str> for ByText {
    fn borrow(&self) -> &str {
        self.0.as_str()
    }
}

/// A stored blob. It is never changed, only replaced.
pub(super) struct Stored {
    pub(super) info: BlobInfo,
    pub(super) content: Content,
    /// The quota share of the blob.
    pub(super) counted: u64,
}

impl Stored {
    /// Reads the bytes that the options select.
    pub(super) fn read(&self, options: BlobGetOptions) -> Result<BlobRead> {
        let range = match options.range {
            Some(range) => range.resolve(self.info.size)?,
            None => 0..self.info.size,
        };
        let bytes = self.content.read(&range);
        Ok(BlobRead::new(self.info.clone(), range, bytes))
    }
}

/// The current blobs and their earlier versions.
#[derive(Default)]
pub(super) struct Blobs {
    current: BTreeMap<ByText, Arc<Stored>>,
    /// The earlier versions of each key, the oldest first.
    earlier: BTreeMap<ByText, Vec<Arc<Stored>>>,
}

impl Blobs {
    /// Returns the current blob.
    pub(super) fn get(&self, key: &BlobKey) -> Option<&Arc<Stored>> {
        self.current.get(key.as_str())
    }

    /// Stores a blob under its key and returns the one that it replaced.
    pub(super) fn insert(&mut self, stored: Stored) -> Option<Arc<Stored>> {
        self.current.insert(ByText(stored.info.key.clone()), Arc::new(stored))
    }

    /// Removes the current blob.
    pub(super) fn remove(&mut self, key: &BlobKey) -> Option<Arc<Stored>> {
        self.current.remove(key.as_str())
    }

    /// Keeps a blob that was replaced or removed as the newest earlier version of its key.
    pub(super) fn keep(&mut self, old: Arc<Stored>) {
        self.earlier.entry(ByText(old.info.key.clone())).or_default().push(old);
    }

    /// Returns the earlier versions of a key, the oldest first.
    pub(super) fn earlier(&self, key: &BlobKey) -> &[Arc<Stored>] {
        self.earlier.get(key.as_str()).map(Vec::as_slice).unwrap_or_default()
    }

    /// Removes the earlier version with this id.
    pub(super) fn remove_earlier(&mut self, key: &BlobKey, id: &str) -> Option<Arc<Stored>> {
        let versions = self.earlier.get_mut(key.as_str())?;
        let at = versions.iter().position(|stored| stored.info.etag.as_str() == id)?;
        let removed = versions.remove(at);
        if versions.is_empty() {
            self.earlier.remove(key.as_str());
        }
        Some(removed)
    }

    /// Returns the quota share of all blobs and versions.
    pub(super) fn counted(&self) -> u64 {
        let earlier = self.earlier.values().flatten();
        self.current.values().chain(earlier).map(|stored| stored.counted).sum()
    }
}

#[derive(Default)]
pub(super) struct NamespaceState {
    blobs: RwLock<Blobs>,
}

impl NamespaceState {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Blobs> {
        self.blobs.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Blobs> {
        self.blobs.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn find(&self, operation: &'static str, key: &BlobKey) -> Result<Arc<Stored>> {
        self.read().get(key).cloned().ok_or_else(|| not_found(operation))
    }

    /// Returns one page of a listing: the blobs whose keys begin with `prefix`, after a key if one is given.
    pub(super) fn page(&self, prefix: &str, after: Option<&str>) -> VecDeque<BlobEntry> {
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(after),
            _ => Bound::Included(prefix),
        };
        self.read()
            .current
            .range::<str, _>((start, Bound::Unbounded))
            .take_while(|(key, _)| key.0.as_str().starts_with(prefix))
            .take(LIST_PAGE)
            .map(|(_, stored)| entry(&stored.info))
            .collect()
    }
}

fn entry(info: &BlobInfo) -> BlobEntry {
    BlobEntry::new(info.key.clone(), info.size, info.etag.clone(), info.modified_at)
}

pub(super) fn not_found(operation: &'static str) -> Error {
    Error::new(ErrorKind::NotFound, operation, "the blob does not exist; check the key")
}
