//! `postgres:`, a database on this machine or another.

use std::sync::Arc;

use larder_kernel::{Contract, Embedder, Namespace, Result};

use super::Target;
use super::url::OPERATION;
use crate::postgres::{Postgres, PostgresConfig};
use crate::stores::Stores;

/// What a Postgres URL provides.
pub(super) const CONTRACTS: &[Contract] =
    &[Contract::History, Contract::Vectors, Contract::Graph, Contract::Tasks, Contract::KeyValue];

pub(super) fn target(url: &str) -> Result<Target> {
    let config = PostgresConfig::from_url(url).map_err(|error| error.in_operation(OPERATION))?;
    Ok(Target::Postgres(Box::new(config)))
}

pub(super) async fn open(
    postgres: &Postgres,
    namespace: &Namespace,
    embedder: Option<Arc<dyn Embedder>>,
    wanted: &[Contract],
) -> Result<Stores> {
    let stores = Stores::none(namespace.clone())
        .with_history(Arc::new(postgres.history(namespace.clone())))
        .with_graph(Arc::new(postgres.graph(namespace.clone())))
        .with_tasks(Arc::new(postgres.tasks(namespace.clone())))
        .with_key_value(Arc::new(postgres.key_value(namespace.clone())));
    // Only who wants vectors needs a server with pgvector.
    if !wanted.contains(&Contract::Vectors) {
        return Ok(stores);
    }
    Ok(stores.with_vectors(Arc::new(postgres.vectors(namespace.clone(), embedder).await?)))
}
