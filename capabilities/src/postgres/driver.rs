//! `postgres:`, a database on this machine or another.

use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{Contract, Result, StoreSet};

use super::{Postgres, PostgresConfig};
use crate::diagnose::Findings;
use crate::driver::{BackendUrl, Connection, Driver, Location, OPERATION, Pool, StoresRequest};
use crate::verify::{Faults, Repaired};

/// Opens `postgres://user:password@host:5432/database`. [`PostgresConfig::from_url`] lists the parameters.
///
/// Vectors need the extension pgvector. Without it the other contracts still open.
#[derive(Debug, Clone, Copy)]
pub struct PostgresDriver;

impl Driver for PostgresDriver {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn schemes(&self) -> &'static [&'static str] {
        &["postgres", "postgresql"]
    }

    fn contracts(&self) -> &'static [Contract] {
        Contract::ALL
    }

    fn parameters(&self) -> &'static [&'static str] {
        PostgresConfig::PARAMETERS
    }

    fn read(&self, url: &BackendUrl<'_>) -> Result<Box<dyn Location>> {
        let config = PostgresConfig::from_url(url.as_str()).map_err(|error| error.in_operation(OPERATION))?;
        Ok(Box::new(config))
    }
}

#[async_trait]
impl Location for PostgresConfig {
    async fn open(self: Box<Self>) -> Result<Arc<dyn Connection>> {
        Ok(Arc::new(Postgres::open(*self).await?))
    }

    async fn renew_generations(&self) -> Result<u64> {
        let postgres = Postgres::open(self.clone()).await?;
        let renewed = postgres.engine.renew_generations().await;
        postgres.close().await;
        renewed
    }

    async fn diagnose(&self, findings: &Findings) {
        if let Some(session) = super::diagnose::diagnose(self, true, findings).await {
            super::diagnose::close(session).await;
        }
    }

    async fn verify(&self, faults: &Faults) -> Result<()> {
        super::verify::verify(self, faults).await
    }

    async fn repair(&self) -> Result<Repaired> {
        super::verify::repair(self).await
    }
}

#[async_trait]
impl Connection for Postgres {
    async fn stores(&self, request: &StoresRequest) -> StoreSet {
        let namespace = &request.namespace;
        let set = StoreSet::new()
            .with_history(Arc::new(self.history(namespace.clone())))
            .with_graph(Arc::new(self.graph(namespace.clone())))
            .with_blobs(Arc::new(self.blobs(namespace.clone())))
            .with_tasks(Arc::new(self.tasks(namespace.clone())))
            .with_key_value(Arc::new(self.key_value(namespace.clone())));
        // Only vectors need a server with pgvector.
        let set = if request.wants(Contract::Vectors) {
            match self.vectors(namespace.clone(), request.embedder.clone()).await {
                Ok(vectors) => set.with_vectors(Arc::new(vectors)),
                Err(error) => set.with_error(Contract::Vectors, error),
            }
        } else {
            set
        };
        set.only(&request.contracts)
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
