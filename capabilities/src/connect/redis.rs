//! `redis:`, a server on this machine or another, and `redis+cluster:`, a cluster of them.

use std::sync::Arc;

use larder_kernel::{Contract, Namespace, Result};

use super::Target;
use super::url::OPERATION;
use crate::redis::{Redis, RedisConfig};
use crate::stores::Stores;

/// What a Redis URL provides.
pub(super) const CONTRACTS: &[Contract] = &[Contract::History, Contract::Tasks, Contract::KeyValue];

pub(super) fn target(url: &str) -> Result<Target> {
    let config = RedisConfig::from_url(url).map_err(|error| error.in_operation(OPERATION))?;
    Ok(Target::Redis(Box::new(config)))
}

pub(super) fn open(redis: &Redis, namespace: &Namespace) -> Stores {
    Stores::none(namespace.clone())
        .with_history(Arc::new(redis.history(namespace.clone())))
        .with_tasks(Arc::new(redis.tasks(namespace.clone())))
        .with_key_value(Arc::new(redis.key_value(namespace.clone())))
}
