//! A stack of layers.

use std::sync::Arc;
use std::time::Duration;

use larder_kernel::{BlobStore, GraphStore, HistoryProvider, KeyValueStore, TaskStore, VectorStore};

use super::{ConcurrencyLimitLayer, Layer, MetricsLayer, RetryLayer, TimeoutLayer, TraceLayer};

/// A stack of layers, in the order in which a call passes them: the first one added is the outermost.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
/// use larder_agents::InMemoryHistoryProvider;
/// use larder_agents::layers::{Layer, Layers, RetryLayer};
/// use larder_kernel::{ChatMessage, HistoryProviderExt, Thread};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let layers = Layers::new()
///     .trace("memory")
///     .metrics("memory")
///     .retry(RetryLayer::new())
///     .timeout(Duration::from_secs(5))
///     .limit(32);
/// let history = layers.history(Arc::new(InMemoryHistoryProvider::new()));
/// history.append(&Thread::new("assistant", "session-1")?, ChatMessage::user("Hello")).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Layers {
    layers: Vec<Arc<dyn Layer>>,
}

impl Layers {
    /// Creates an empty stack, which leaves stores unchanged.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds any layer, including a custom one, inside the existing layers.
    #[must_use]
    pub fn with(mut self, layer: impl Layer) -> Self {
        self.layers.push(Arc::new(layer));
        self
    }

    /// Adds spans for a database `system`; see [`TraceLayer`].
    #[must_use]
    pub fn trace(self, system: &'static str) -> Self {
        self.with(TraceLayer::new(system))
    }

    /// Adds metrics for a database `system`; see [`MetricsLayer`].
    #[must_use]
    pub fn metrics(self, system: &'static str) -> Self {
        self.with(MetricsLayer::new(system))
    }

    /// Adds retries; see [`RetryLayer`].
    #[must_use]
    pub fn retry(self, retry: RetryLayer) -> Self {
        self.with(retry)
    }

    /// Adds a time limit for each call; see [`TimeoutLayer`].
    #[must_use]
    pub fn timeout(self, call_time_max: Duration) -> Self {
        self.with(TimeoutLayer::new(call_time_max))
    }

    /// Adds a limit on concurrent calls; see [`ConcurrencyLimitLayer`].
    #[must_use]
    pub fn limit(self, calls_max: usize) -> Self {
        self.with(ConcurrencyLimitLayer::new(calls_max))
    }
}

macro_rules! wrap_with_each {
    ($($name:ident: $contract:ident;)*) => {
        impl Layer for Layers {
            $(fn $name(&self, store: Arc<dyn $contract>) -> Arc<dyn $contract> {
                self.layers.iter().rev().fold(store, |store, layer| layer.$name(store))
            })*
        }
    };
}

wrap_with_each! {
    history: HistoryProvider;
    vectors: VectorStore;
    graph: GraphStore;
    blobs: BlobStore;
    tasks: TaskStore;
    key_value: KeyValueStore;
}
