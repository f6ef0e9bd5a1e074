//! `file:`, blobs in a folder.

use std::sync::Arc;

use larder_kernel::{Namespace, Result};

use super::Target;
use super::url::ParsedUrl;
use crate::fs::{FsBlobStore, FsConfig};
use crate::stores::Stores;

pub(super) fn target(url: &ParsedUrl<'_>) -> Result<Target> {
    url.nothing_left("`file:` takes none")?;
    Ok(Target::Files(FsConfig::new(url.path()?)))
}

/// Opens the folder, once for all namespaces.
pub(super) async fn open(config: FsConfig) -> Result<FsBlobStore> {
    FsBlobStore::open(config, Namespace::new("default")?).await
}

pub(super) fn in_namespace(blobs: &FsBlobStore, namespace: &Namespace) -> Stores {
    Stores::none(namespace.clone()).with_blobs(Arc::new(blobs.in_namespace(namespace.clone())))
}
