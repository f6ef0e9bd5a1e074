//! Earlier versions. The id of a version is its tag, which no other write has.

use futures_util::StreamExt as _;
use larder_kernel::storage::blob::{check_get, check_versions};
use larder_kernel::{
    BlobGetOptions, BlobKey, BlobRead, BlobVersion, BlobVersionId, BlobVersions, Result, Store as _,
};

use super::InMemoryBlobStore;
use super::state::Stored;
use crate::internal::{current_version, missing_version};

fn version(stored: &Stored) -> Result<BlobVersion> {
    let info = &stored.info;
    let id = BlobVersionId::new(info.etag.as_str())?;
    Ok(BlobVersion::new(id, info.size, info.etag.clone(), info.modified_at))
}

impl InMemoryBlobStore {
    pub(super) fn versions_of(&self, key: &BlobKey) -> Result<BlobVersions> {
        check_versions("blobs.list_versions", &self.capabilities())?;
        let blobs = self.state.read();
        let current = blobs.get(key).map(|stored| Ok(version(stored)?.with_current(true)));
        let earlier = blobs.earlier(key).iter().rev().map(|stored| version(stored));
        let versions: Vec<Result<BlobVersion>> = current.into_iter().chain(earlier).collect();
        Ok(futures_util::stream::iter(versions).boxed())
    }

    pub(super) fn read_version(
        &self,
        key: &BlobKey,
        version: &BlobVersionId,
        options: BlobGetOptions,
    ) -> Result<BlobRead> {
        const OPERATION: &str = "blobs.get_version";
        check_versions(OPERATION, &self.capabilities())?;
        check_get(&options).map_err(|error| error.in_operation(OPERATION))?;
        let blobs = self.state.read();
        let mut versions = blobs.get(key).into_iter().chain(blobs.earlier(key));
        let stored = versions
            .find(|stored| stored.info.etag.as_str() == version.as_str())
            .ok_or_else(missing_version)?;
        stored.read(options).map_err(|error| error.in_operation(OPERATION))
    }

    pub(super) fn remove_version(&self, key: &BlobKey, version: &BlobVersionId) -> Result<bool> {
        const OPERATION: &str = "blobs.delete_version";
        check_versions(OPERATION, &self.capabilities())?;
        let mut blobs = self.state.write();
        if blobs.get(key).is_some_and(|stored| stored.info.etag.as_str() == version.as_str()) {
            return Err(current_version());
        }
        let removed = blobs.remove_earlier(key, version.as_str());
        if let Some(stored) = &removed {
            self.backend.release(stored.counted);
        }
        Ok(removed.is_some())
    }
}
