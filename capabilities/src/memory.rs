//! `memory:`, all six contracts in this process.

use std::sync::Arc;

use async_trait::async_trait;
use larder_agents::storage::{
    InMemoryBlobStore, InMemoryGraphStore, InMemoryHistoryProvider, InMemoryKeyValueStore, InMemoryTaskStore,
    InMemoryVectorStore, MemoryBackend,
};
use larder_kernel::{Contract, Result, StoreSet};

use crate::diagnose::{Check, Findings};
use crate::driver::{BackendUrl, Connection, Driver, Location, Sharing, StoresRequest, invalid_url};
use crate::verify::Faults;

/// Opens `memory:`. Each opening creates a separate backend.
///
/// `bytes_max=` limits the stored bytes; the default is 8 GiB. A write beyond the limit fails with
/// `ResourceExhausted`. `vector_index=none` (the default) searches vectors exactly. With
/// `vector_index=ivf`, searches of large collections are approximate; see
/// [`with_approximate_search`](InMemoryVectorStore::with_approximate_search). With
/// `blob_versions=true`, blobs that are overwritten or deleted are kept as versions.
#[derive(Debug, Clone, Copy)]
pub struct MemoryDriver;

impl Driver for MemoryDriver {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn schemes(&self) -> &'static [&'static str] {
        &["memory"]
    }

    fn contracts(&self) -> &'static [Contract] {
        Contract::ALL
    }

    fn parameters(&self) -> &'static [&'static str] {
        &["vector_index", "bytes_max", "blob_versions"]
    }

    fn sharing(&self) -> Sharing {
        Sharing::Opening
    }

    fn read(&self, url: &BackendUrl<'_>) -> Result<Box<dyn Location>> {
        if !url.rest().is_empty() {
            return Err(invalid_url(
                "names a memory backend, which has no name; write `memory:`, open it once and share it",
            ));
        }
        let approximate = match url.parameter("vector_index") {
            None | Some("none") => false,
            Some("ivf") => true,
            Some(_) => return Err(invalid_url("has a `vector_index` other than `none` and `ivf`")),
        };
        let backend = match url.parameter("bytes_max").map(str::parse) {
            None => MemoryBackend::new(),
            Some(Ok(bytes_max @ 1..)) => MemoryBackend::with_bytes_max(bytes_max),
            Some(_) => return Err(invalid_url("has a `bytes_max` that is not a number of bytes from 1")),
        };
        let backend = if url.blob_versions()? { backend.with_blob_versions() } else { backend };
        Ok(Box::new(Memory { backend, approximate }))
    }
}

struct Memory {
    backend: MemoryBackend,
    approximate: bool,
}

#[async_trait]
impl Location for Memory {
    async fn open(self: Box<Self>) -> Result<Arc<dyn Connection>> {
        Ok(Arc::new(*self))
    }

    async fn diagnose(&self, findings: &Findings) {
        const WHY: &str = "determines what an acknowledged write survives";
        let advice = "use it for tests; for durable data, name a file such as `sqlite:./larder.db`";
        findings.add(Check::warn("durability", "none: all data is lost when the process ends", WHY, advice));
        let why = "programs may need to share the data";
        findings.add(Check::ok(
            "sharing",
            "each opening creates a separate backend, within one process",
            why,
        ));
    }

    /// A URL names a new backend, in which there is nothing to read.
    async fn verify(&self, _: &Faults) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Connection for Memory {
    async fn stores(&self, request: &StoresRequest) -> StoreSet {
        let (backend, namespace) = (&self.backend, &request.namespace);
        let mut vectors = InMemoryVectorStore::open(backend, namespace.clone());
        if self.approximate {
            vectors = vectors.with_approximate_search();
        }
        if let Some(embedder) = &request.embedder {
            vectors = vectors.with_embedder(embedder.clone());
        }
        StoreSet::new()
            .with_history(Arc::new(InMemoryHistoryProvider::open(backend, namespace.clone())))
            .with_vectors(Arc::new(vectors))
            .with_graph(Arc::new(InMemoryGraphStore::open(backend, namespace.clone())))
            .with_blobs(Arc::new(InMemoryBlobStore::open(backend, namespace.clone())))
            .with_tasks(Arc::new(InMemoryTaskStore::open(backend, namespace.clone())))
            .with_key_value(Arc::new(InMemoryKeyValueStore::open(backend, namespace.clone())))
            .only(&request.contracts)
    }
}
