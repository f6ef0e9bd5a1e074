//! `redis:`, a server on this machine or another, `redis+cluster:`, a cluster of servers, and
//! `redis+sentinel:`, the primary that sentinels name.

use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{Contract, Result, StoreSet};

use super::{Redis, RedisConfig};
use crate::diagnose::Findings;
use crate::driver::{BackendUrl, Connection, Driver, Location, OPERATION, Pool, StoresRequest};
use crate::verify::Faults;

/// Opens `redis://user:password@host:6379/0`, `redis+cluster://user:password@host:6379,host:6380` and
/// `redis+sentinel://user:password@host:26379,host:26379/name`; with `rediss` they use TLS.
/// [`RedisConfig::from_url`] lists the parameters.
#[derive(Debug, Clone, Copy)]
pub struct RedisDriver;

impl Driver for RedisDriver {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn schemes(&self) -> &'static [&'static str] {
        &["redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "rediss+sentinel"]
    }

    fn contracts(&self) -> &'static [Contract] {
        &[Contract::History, Contract::Tasks, Contract::KeyValue]
    }

    fn parameters(&self) -> &'static [&'static str] {
        RedisConfig::PARAMETERS
    }

    fn read(&self, url: &BackendUrl<'_>) -> Result<Box<dyn Location>> {
        let config = RedisConfig::from_url(url.as_str()).map_err(|error| error.in_operation(OPERATION))?;
        Ok(Box::new(config))
    }
}

#[async_trait]
impl Location for RedisConfig {
    async fn open(self: Box<Self>) -> Result<Arc<dyn Connection>> {
        Ok(Arc::new(Redis::open(*self).await?))
    }

    async fn renew_generations(&self) -> Result<u64> {
        let redis = Redis::open(self.clone()).await?;
        let renewed = redis.engine.renew_generations().await;
        redis.close().await;
        renewed
    }

    async fn diagnose(&self, findings: &Findings) {
        Box::pin(super::diagnose::diagnose(self, findings)).await;
    }

    async fn verify(&self, faults: &Faults) -> Result<()> {
        Box::pin(super::verify::verify(self, faults)).await
    }
}

#[async_trait]
impl Connection for Redis {
    async fn stores(&self, request: &StoresRequest) -> StoreSet {
        let namespace = &request.namespace;
        StoreSet::new()
            .with_history(Arc::new(self.history(namespace.clone())))
            .with_tasks(Arc::new(self.tasks(namespace.clone())))
            .with_key_value(Arc::new(self.key_value(namespace.clone())))
            .only(&request.contracts)
    }

    fn pool(&self) -> Option<Pool> {
        Some(Self::pool(self))
    }

    async fn close(self: Arc<Self>) {
        Self::close(self.as_ref().clone()).await;
    }
}
