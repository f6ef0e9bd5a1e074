//! `s3:`, a bucket of S3 or of a server that speaks its protocol.

use std::sync::Arc;

use larder_kernel::{Namespace, Result};

use super::Target;
use super::url::OPERATION;
use crate::s3::{S3BlobStore, S3Config};
use crate::stores::Stores;

pub(super) fn target(url: &str) -> Result<Target> {
    let config = S3Config::from_url(url).map_err(|error| error.in_operation(OPERATION))?;
    Ok(Target::S3(Box::new(config)))
}

pub(super) async fn open(config: &S3Config) -> Result<S3BlobStore> {
    S3BlobStore::open(config, Namespace::new("default")?).await
}

pub(super) fn in_namespace(blobs: &S3BlobStore, namespace: &Namespace) -> Stores {
    Stores::none(namespace.clone()).with_blobs(Arc::new(blobs.in_namespace(namespace.clone())))
}
