//! `s3:`, a bucket of S3 or of a server that speaks its protocol.

use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{Contract, Namespace, Result, StoreSet};

use super::{S3BlobStore, S3Config};
use crate::diagnose::Findings;
use crate::driver::{BackendUrl, Connection, Driver, Location, OPERATION, StoresRequest};
use crate::verify::Faults;

/// Opens `s3://ACCESS_KEY:SECRET_KEY@bucket/prefix`. Without keys the environment is used, as in other AWS
/// clients. [`S3Config::from_url`] lists the parameters.
#[derive(Debug, Clone, Copy)]
pub struct S3Driver;

impl Driver for S3Driver {
    fn name(&self) -> &'static str {
        "s3"
    }

    fn schemes(&self) -> &'static [&'static str] {
        &["s3"]
    }

    fn contracts(&self) -> &'static [Contract] {
        &[Contract::Blobs]
    }

    fn parameters(&self) -> &'static [&'static str] {
        S3Config::PARAMETERS
    }

    fn read(&self, url: &BackendUrl<'_>) -> Result<Box<dyn Location>> {
        let config = S3Config::from_url(url.as_str()).map_err(|error| error.in_operation(OPERATION))?;
        Ok(Box::new(config))
    }
}

#[async_trait]
impl Location for S3Config {
    async fn open(self: Box<Self>) -> Result<Arc<dyn Connection>> {
        Ok(Arc::new(S3BlobStore::open(&self, Namespace::new("default")?).await?))
    }

    async fn diagnose(&self, findings: &Findings) {
        Box::pin(super::diagnose::diagnose(self, findings)).await;
    }

    async fn verify(&self, faults: &Faults) -> Result<()> {
        Box::pin(super::blob::verify::verify(self, faults)).await
    }
}

#[async_trait]
impl Connection for S3BlobStore {
    async fn stores(&self, request: &StoresRequest) -> StoreSet {
        let blobs = self.in_namespace(request.namespace.clone());
        StoreSet::new().with_blobs(Arc::new(blobs)).only(&request.contracts)
    }
}
