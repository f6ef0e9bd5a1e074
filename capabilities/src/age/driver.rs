//! `age:`, a Postgres database with Apache AGE.

use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{Contract, Result, StoreSet};

use super::{Age, AgeConfig};
use crate::diagnose::Findings;
use crate::driver::{BackendUrl, Connection, Driver, Location, OPERATION, Pool, StoresRequest};
use crate::postgres::PostgresConfig;
use crate::verify::Faults;

/// Opens `age://user:password@host:5432/database`: the graph, with openCypher. `postgres:` opens the other
/// contracts in the same database. The parameters are those of Postgres.
#[derive(Debug, Clone, Copy)]
pub struct AgeDriver;

impl Driver for AgeDriver {
    fn name(&self) -> &'static str {
        "age"
    }

    fn schemes(&self) -> &'static [&'static str] {
        &["age"]
    }

    fn contracts(&self) -> &'static [Contract] {
        &[Contract::Graph]
    }

    fn parameters(&self) -> &'static [&'static str] {
        PostgresConfig::PARAMETERS
    }

    fn read(&self, url: &BackendUrl<'_>) -> Result<Box<dyn Location>> {
        let config = AgeConfig::from_url(url.as_str()).map_err(|error| error.in_operation(OPERATION))?;
        Ok(Box::new(config))
    }
}

#[async_trait]
impl Location for AgeConfig {
    async fn open(self: Box<Self>) -> Result<Arc<dyn Connection>> {
        Ok(Arc::new(Age::open(*self).await?))
    }

    async fn diagnose(&self, findings: &Findings) {
        super::diagnose::diagnose(self, findings).await;
    }

    async fn verify(&self, faults: &Faults) -> Result<()> {
        super::graph::verify::verify(self, faults).await
    }
}

#[async_trait]
impl Connection for Age {
    async fn stores(&self, request: &StoresRequest) -> StoreSet {
        let graph = self.graph(request.namespace.clone());
        StoreSet::new().with_graph(Arc::new(graph)).only(&request.contracts)
    }

    fn pool(&self) -> Option<Pool> {
        Some(Self::pool(self))
    }

    fn is_closed(&self) -> bool {
        Self::pool(self).closed
    }

    async fn close(self: Arc<Self>) {
        Self::close(self.as_ref().clone()).await;
    }
}
