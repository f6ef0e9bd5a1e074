//! `file:`, blobs in a folder.

use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{Contract, Namespace, Result, StoreSet};

use super::{FsBlobStore, FsConfig};
use crate::diagnose::Findings;
use crate::driver::{BackendUrl, Connection, Driver, Location, Sharing, StoresRequest};

/// Opens `file:./blobs` and `file:///var/blobs`.
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

    fn sharing(&self) -> Sharing {
        Sharing::Machine
    }

    fn read(&self, url: &BackendUrl<'_>) -> Result<Box<dyn Location>> {
        Ok(Box::new(FsConfig::new(url.path()?)))
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

    fn changes_on_open(&self) -> Option<&'static str> {
        (!self.root.exists()).then_some("the folder does not exist, and opening would create it")
    }
}

#[async_trait]
impl Connection for FsBlobStore {
    async fn stores(&self, request: &StoresRequest) -> StoreSet {
        let blobs = self.in_namespace(request.namespace.clone());
        StoreSet::new().with_blobs(Arc::new(blobs)).only(&request.contracts)
    }
}
