//! The in-memory stores, for the tests of this crate.

use std::sync::Arc;

use async_trait::async_trait;
use larder_agents::storage::{
    InMemoryBlobStore, InMemoryGraphStore, InMemoryHistoryProvider, InMemoryKeyValueStore, InMemoryTaskStore,
    InMemoryVectorStore, MemoryBackend,
};
use larder_kernel::{Namespace, Result};

use crate::harness::{Harness, OpenOptions, StoreSet};

/// Opens all six stores.
pub(crate) fn stores(place: &MemoryBackend, namespace: &Namespace) -> StoreSet {
    StoreSet::new()
        .with_history(Arc::new(InMemoryHistoryProvider::open(place, namespace.clone())))
        .with_vectors(Arc::new(InMemoryVectorStore::open(place, namespace.clone())))
        .with_graph(Arc::new(InMemoryGraphStore::open(place, namespace.clone())))
        .with_blobs(Arc::new(InMemoryBlobStore::open(place, namespace.clone())))
        .with_tasks(Arc::new(InMemoryTaskStore::open(place, namespace.clone())))
        .with_key_value(Arc::new(InMemoryKeyValueStore::open(place, namespace.clone())))
}

/// One backend in memory.
#[derive(Debug)]
pub(crate) struct Memory(MemoryBackend);

impl Default for Memory {
    fn default() -> Self {
        Self(MemoryBackend::new().with_blob_versions())
    }
}

#[async_trait]
impl Harness for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn url(&self) -> String {
        "memory:".to_owned()
    }

    async fn open(&self, namespace: &Namespace, options: &OpenOptions) -> Result<StoreSet> {
        let mut stores = stores(&self.0, namespace);
        if let Some(embedder) = &options.embedder {
            let vectors = InMemoryVectorStore::open(&self.0, namespace.clone());
            stores = stores.with_vectors(Arc::new(vectors.with_embedder(embedder.clone())));
        }
        Ok(stores)
    }
}
