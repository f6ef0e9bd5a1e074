//! The six contracts with a hook around each call.
//!
//! The methods come from the table of [`forward`].

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{
    Capabilities, Capability, Contract, CypherCapable, CypherRow, Error, GraphStore, Metadata, Namespace,
    OptionSet, Result, Store, forward,
};

use crate::harness::{Edge, Harness, OpenOptions, Relayed, Staged, StoreSet};

/// The behavior around each call.
pub(crate) trait Hook: Clone + Send + Sync + 'static {
    /// Makes the call, or returns an error instead.
    fn around<T: Send>(
        &self,
        contract: Contract,
        method: &'static str,
        call: impl Future<Output = Result<T>> + Send,
    ) -> impl Future<Output = Result<T>> + Send;
}

/// A store with a hook around each of its calls. Capabilities, `Debug` and the availability of Cypher pass
/// through unchanged.
struct Hooked<S: ?Sized, H> {
    inner: Arc<S>,
    contract: Contract,
    hook: H,
}

impl<S: fmt::Debug + ?Sized, H> fmt::Debug for Hooked<S, H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<S: Store + ?Sized, H: Hook> Store for Hooked<S, H> {
    fn namespace(&self) -> &Namespace {
        self.inner.namespace()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn options(&self) -> OptionSet {
        self.inner.options()
    }

    async fn erase(&self) -> Result<()> {
        self.hook.around(self.contract, "erase", self.inner.erase()).await
    }
}

macro_rules! hooked {
    ($self:ident GraphStore as_cypher()) => {
        $self.inner.as_cypher().map(|_| $self as &dyn CypherCapable)
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {{
        let call = $self.inner.$method($($argument),*);
        $self.hook.around($self.contract, stringify!($method), call).await
    }};
}

forward!([H: Hook] HistoryProvider for Hooked<dyn HistoryProvider, H>, hooked);
forward!([H: Hook] VectorStore for Hooked<dyn VectorStore, H>, hooked);
forward!([H: Hook] GraphStore for Hooked<dyn GraphStore, H>, hooked);
forward!([H: Hook] BlobStore for Hooked<dyn BlobStore, H>, hooked);
forward!([H: Hook] TaskStore for Hooked<dyn TaskStore, H>, hooked);
forward!([H: Hook] KeyValueStore for Hooked<dyn KeyValueStore, H>, hooked);

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<H: Hook> CypherCapable for Hooked<dyn GraphStore, H> {
    async fn cypher(&self, query: &str, parameters: Metadata) -> Result<Vec<CypherRow>> {
        // Only a store with Cypher is returned by `as_cypher`.
        let unsupported = || Error::unsupported("graph.cypher", Capability::Cypher);
        let inner = self.inner.as_cypher().ok_or_else(unsupported)?;
        self.hook.around(self.contract, "cypher", inner.cypher(query, parameters)).await
    }
}

/// A backend with a hook around each call of its stores.
pub(crate) struct HookedHarness<H> {
    inner: Arc<dyn Harness>,
    hook: H,
}

impl<H: Hook> HookedHarness<H> {
    pub(crate) fn new(inner: Arc<dyn Harness>, hook: H) -> Self {
        Self { inner, hook }
    }
}

impl<H> fmt::Debug for HookedHarness<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<H: Hook> Harness for HookedHarness<H> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn url(&self) -> String {
        self.inner.url()
    }

    fn shared_url(&self) -> Option<String> {
        self.inner.shared_url()
    }

    async fn open(&self, namespace: &Namespace, options: &OpenOptions) -> Result<StoreSet> {
        let set = self.inner.open(namespace, options).await?;
        let mut hooked = set.clone();
        macro_rules! hook {
            ($($field:ident $with:ident $contract:ident;)*) => {$(
                if let Ok(inner) = set.$field() {
                    let (contract, hook) = (Contract::$contract, self.hook.clone());
                    hooked = hooked.$with(Arc::new(Hooked { inner, contract, hook }));
                }
            )*};
        }
        hook! {
            history with_history History;
            vectors with_vectors Vectors;
            graph with_graph Graph;
            blobs with_blobs Blobs;
            tasks with_tasks Tasks;
            key_value with_key_value KeyValue;
        }
        Ok(hooked)
    }

    fn many_items(&self, contract: Contract) -> usize {
        self.inner.many_items(contract)
    }

    fn largest_stream(&self) -> usize {
        self.inner.largest_stream()
    }

    async fn isolated(&self) -> Result<Option<Arc<dyn Harness>>> {
        let isolated = self.inner.isolated().await?;
        Ok(isolated.map(|inner| Arc::new(Self::new(inner, self.hook.clone())) as _))
    }

    fn servers(&self) -> Vec<String> {
        self.inner.servers()
    }

    /// Not hooked: the delays of a relay are not the backend's latency.
    async fn relayed(&self, relays: &[SocketAddr]) -> Result<Option<Relayed>> {
        self.inner.relayed(relays).await
    }

    /// Not hooked: the waits of a fault are not the backend's latency.
    async fn stage(&self, edge: Edge) -> Result<Staged> {
        self.inner.stage(edge).await
    }

    async fn destroy(&self) -> Result<()> {
        self.inner.destroy().await
    }
}

#[cfg(test)]
mod tests;
