//! The trait of all layers.

use std::fmt;
use std::sync::Arc;

use larder_kernel::{
    BlobStore, GraphStore, HistoryProvider, KeyValueStore, StoreSet, TaskStore, VectorStore,
};

use super::middleware::{Middleware, Wrapped};

/// A wrapper that turns any store into another of the same contract.
///
/// A wrapped store fulfills the contract: it passes the conformance suite like any backend. The methods of
/// the six contracts have no default bodies, so a layer cannot miss one.
pub trait Layer: fmt::Debug + Send + Sync + 'static {
    /// Wraps a history provider.
    fn history(&self, store: Arc<dyn HistoryProvider>) -> Arc<dyn HistoryProvider>;
    /// Wraps a vector store.
    fn vectors(&self, store: Arc<dyn VectorStore>) -> Arc<dyn VectorStore>;
    /// Wraps a graph store.
    fn graph(&self, store: Arc<dyn GraphStore>) -> Arc<dyn GraphStore>;
    /// Wraps a blob store.
    fn blobs(&self, store: Arc<dyn BlobStore>) -> Arc<dyn BlobStore>;
    /// Wraps a task store.
    fn tasks(&self, store: Arc<dyn TaskStore>) -> Arc<dyn TaskStore>;
    /// Wraps a key-value store.
    fn key_value(&self, store: Arc<dyn KeyValueStore>) -> Arc<dyn KeyValueStore>;

    /// Wraps every open store of a set. Absent and failed contracts stay as they are.
    fn over(&self, set: StoreSet) -> StoreSet {
        let mut over = set.clone();
        if let Ok(store) = set.history() {
            over = over.with_history(self.history(store));
        }
        if let Ok(store) = set.vectors() {
            over = over.with_vectors(self.vectors(store));
        }
        if let Ok(store) = set.graph() {
            over = over.with_graph(self.graph(store));
        }
        if let Ok(store) = set.blobs() {
            over = over.with_blobs(self.blobs(store));
        }
        if let Ok(store) = set.tasks() {
            over = over.with_tasks(self.tasks(store));
        }
        if let Ok(store) = set.key_value() {
            over = over.with_key_value(self.key_value(store));
        }
        over
    }
}

/// A layer that consists of a hook around each call.
pub(super) trait MiddlewareLayer: fmt::Debug + Send + Sync + 'static {
    type Hook: Middleware;

    fn hook(&self) -> Self::Hook;
}

macro_rules! wrap_with_hook {
    ($($name:ident: $contract:ident, $erase:literal;)*) => {
        impl<L: MiddlewareLayer> Layer for L {
            $(fn $name(&self, store: Arc<dyn $contract>) -> Arc<dyn $contract> {
                Arc::new(Wrapped { inner: store, hook: self.hook(), erase: $erase })
            })*
        }
    };
}

wrap_with_hook! {
    history: HistoryProvider, "history.erase";
    vectors: VectorStore, "vectors.erase";
    graph: GraphStore, "graph.erase";
    blobs: BlobStore, "blobs.erase";
    tasks: TaskStore, "tasks.erase";
    key_value: KeyValueStore, "key_value.erase";
}
