//! `memory:`, all six contracts in this process.

use std::sync::Arc;

use larder_agents::storage::{
    InMemoryBlobStore, InMemoryGraphStore, InMemoryHistoryProvider, InMemoryKeyValueStore, InMemoryTaskStore,
    InMemoryVectorStore, MemoryBackend,
};
use larder_kernel::{Embedder, Namespace, Result};

use super::Target;
use super::url::{ParsedUrl, invalid};
use crate::stores::Stores;

/// How large collections of vectors are searched.
#[derive(Debug, Clone, Copy)]
pub(crate) enum VectorIndex {
    /// Exactly.
    None,
    /// By cells of like vectors, approximately.
    InvertedFile,
}

pub(super) fn target(mut url: ParsedUrl<'_>) -> Result<Target> {
    if !url.rest.is_empty() {
        return Err(invalid("names a place in memory; write `memory:`, open it once and share the place"));
    }
    let index = match url.take("vector_index") {
        None | Some("none") => VectorIndex::None,
        Some("ivf") => VectorIndex::InvertedFile,
        Some(_) => return Err(invalid("has another `vector_index` than `none` or `ivf`")),
    };
    url.nothing_left("`memory:` takes `vector_index`")?;
    Ok(Target::Memory(index))
}

pub(super) fn open(
    place: &MemoryBackend,
    index: VectorIndex,
    namespace: &Namespace,
    embedder: Option<Arc<dyn Embedder>>,
) -> Stores {
    let vectors = InMemoryVectorStore::open(place, namespace.clone());
    let vectors = match index {
        VectorIndex::None => vectors,
        VectorIndex::InvertedFile => vectors.with_approximate_search(),
    };
    let vectors = match embedder {
        Some(embedder) => vectors.with_embedder(embedder),
        None => vectors,
    };
    Stores::none(namespace.clone())
        .with_history(Arc::new(InMemoryHistoryProvider::open(place, namespace.clone())))
        .with_vectors(Arc::new(vectors))
        .with_graph(Arc::new(InMemoryGraphStore::open(place, namespace.clone())))
        .with_blobs(Arc::new(InMemoryBlobStore::open(place, namespace.clone())))
        .with_tasks(Arc::new(InMemoryTaskStore::open(place, namespace.clone())))
        .with_key_value(Arc::new(InMemoryKeyValueStore::open(place, namespace.clone())))
}
