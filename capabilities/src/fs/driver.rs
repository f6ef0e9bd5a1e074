//! `file:`, blobs in a folder.

use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{Contract, Namespace, Result, StoreSet};

use super::{FsBlobStore, FsConfig};
use crate::diagnose::Findings;
use crate::driver::{BackendUrl, Connection, Driver, Location, OpenMode, Sharing, StoresRequest};
use crate::files::{BUSY_TIMEOUT_MS_MAX, FilePermissions};
use crate::verify::Faults;

/// Opens `file:./blobs` and `file:///var/blobs`.
///
/// The first write creates the folder. `busy_timeout_ms=` limits the wait for a lock of another process.
/// `permissions=0660` also gives the group access to new files and folders. With `blob_versions=true` a new
/// folder keeps earlier versions of blobs. With `mode=ro` the folder is only read.
#[derive(Debug, Clone, Copy)]
pub struct FsDriver;

impl Driver for FsDriver {
    fn name(&self) -> &'static str {
        "file"
    }

    fn schemes(&self) -> &'static [&'static str] {
        &["file"]
    }

    fn contracts(&self) -> &'static [Contract] {
        &[Contract::Blobs]
    }

    fn parameters(&self) -> &'static [&'static str] {
        &["busy_timeout_ms", "permissions", "blob_versions", "mode"]
    }

    fn sharing(&self) -> Sharing {
        Sharing::Machine
    }

    fn read(&self, url: &BackendUrl<'_>) -> Result<Box<dyn Location>> {
        let config = FsConfig::new(url.path()?).with_mode(OpenMode::of(url)?);
        let config = match url.millis("busy_timeout_ms", BUSY_TIMEOUT_MS_MAX)? {
            None => config,
            Some(timeout) => config.with_busy_timeout(timeout),
        };
        let config = if url.blob_versions()? { config.with_blob_versions() } else { config };
        let permissions = FilePermissions::of_url(url)?.unwrap_or_default();
        Ok(Box::new(config.with_permissions(permissions)))
    }
}

#[async_trait]
impl Location for FsConfig {
    async fn open(self: Box<Self>) -> Result<Arc<dyn Connection>> {
        Ok(Arc::new(FsBlobStore::open(*self, Namespace::new("default")?).await?))
    }

    async fn diagnose(&self, findings: &Findings) {
        super::diagnose::diagnose(self, findings).await;
    }

    async fn verify(&self, faults: &Faults) -> Result<()> {
        super::verify::verify(self, faults).await
    }

    fn changes_on_open(&self) -> Option<&'static str> {
        (!self.root.exists()).then_some("the folder does not exist, and the first write would create it")
    }
}

#[async_trait]
impl Connection for FsBlobStore {
    async fn stores(&self, request: &StoresRequest) -> StoreSet {
        let blobs = self.in_namespace(request.namespace.clone());
        StoreSet::new().with_blobs(Arc::new(blobs)).only(&request.contracts)
    }
}
