//! Layers over any backend, so that the suite can check them like a backend.
//!
//! A prefix of the URL selects a layer: `retry+sqlite:./larder.db` is SQLite behind the retry layer, and
//! `stack+memory:` is memory behind all layers.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use larder::layers::{
    BlobCacheLayer, ConcurrencyLimitLayer, EncryptionKey, EncryptionLayer, KeyRing, Layer, Layers,
    MetricsLayer, RetryLayer, Tenant, TimeoutLayer, TraceLayer,
};
use larder_kernel::{Contract, Namespace, Result};

use larder_conformance::harness::{Harness, OpenOptions, Relayed, StoreSet};

/// A time limit that is longer than any case waits for a result.
const LONG: Duration = Duration::from_secs(60);
const CACHE_BYTES: usize = 16 * 1024 * 1024;
const AT_ONCE: usize = 64;

/// A layer, or all layers, over the stores of a backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Around {
    /// Tracing spans with the names of the objects read and written.
    Trace,
    /// Latencies, errors and bytes.
    Metrics,
    /// Retries of calls that are safe to repeat.
    Retry,
    /// A time limit for calls.
    Timeout,
    /// A limit on concurrent calls.
    Limit,
    /// A cache of recently read blobs.
    Cache,
    /// A prefix of the namespace.
    Tenant,
    /// Encryption of content, with an older key from before a rotation.
    Encryption,
    /// All layers.
    Stack,
}

impl Around {
    /// Each layer alone, then all of them.
    pub const ALL: [Self; 9] = [
        Self::Trace,
        Self::Metrics,
        Self::Retry,
        Self::Timeout,
        Self::Limit,
        Self::Cache,
        Self::Tenant,
        Self::Encryption,
        Self::Stack,
    ];

    /// Returns the prefix for URLs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Metrics => "metrics",
            Self::Retry => "retry",
            Self::Timeout => "timeout",
            Self::Limit => "limit",
            Self::Cache => "cache",
            Self::Tenant => "tenant",
            Self::Encryption => "encryption",
            Self::Stack => "stack",
        }
    }

    /// Splits the prefix from a URL. Other schemes contain a plus sign too, such as `redis+cluster`.
    #[must_use]
    pub fn split(url: &str) -> Option<(Self, &str)> {
        let (word, rest) = url.split_once('+')?;
        let around = Self::ALL.into_iter().find(|around| word.eq_ignore_ascii_case(around.name()))?;
        Some((around, rest))
    }

    /// Returns `true` if every byte is encrypted. In a test build that takes about a millisecond for an item,
    /// and seconds for 64 MiB.
    const fn encrypts(self) -> bool {
        matches!(self, Self::Encryption | Self::Stack)
    }

    /// Returns the layers, the namespace behind them, and the options for opening the stores behind them.
    fn layers(
        self,
        namespace: &Namespace,
        options: &OpenOptions,
    ) -> Result<(Layers, Namespace, OpenOptions)> {
        let plain = Layers::new();
        let layers = match self {
            Self::Trace => plain.with(TraceLayer::new("suite").with_names()),
            Self::Metrics => plain.with(MetricsLayer::new("suite")),
            Self::Retry => plain.with(RetryLayer::new()),
            Self::Timeout => plain.with(TimeoutLayer::new(LONG)),
            Self::Limit => plain.with(ConcurrencyLimitLayer::new(AT_ONCE)),
            Self::Cache => plain.with(BlobCacheLayer::new(CACHE_BYTES)),
            Self::Tenant => {
                let tenant = Tenant::new("acme")?.enter(namespace)?;
                let behind = tenant.behind().clone();
                return Ok((plain.with(tenant), behind, options.clone()));
            }
            Self::Encryption => {
                let behind = without_embedder(options);
                return Ok((plain.with(sealing(options)), namespace.clone(), behind));
            }
            Self::Stack => return stack(namespace, options),
        };
        Ok((layers, namespace.clone(), options.clone()))
    }
}

/// Returns the options for the store behind an encryption layer, which computes the embeddings itself.
fn without_embedder(options: &OpenOptions) -> OpenOptions {
    OpenOptions::default().with_handle(options.handle)
}

fn sealing(options: &OpenOptions) -> EncryptionLayer {
    let ring = KeyRing::new(&EncryptionKey::new([7; 32])).with_older(&EncryptionKey::new([6; 32]));
    let layer = EncryptionLayer::new(ring);
    match &options.embedder {
        Some(embedder) => layer.with_embedder(Arc::clone(embedder)),
        None => layer,
    }
}

fn stack(namespace: &Namespace, options: &OpenOptions) -> Result<(Layers, Namespace, OpenOptions)> {
    let tenant = Tenant::new("acme")?.enter(namespace)?;
    let behind = tenant.behind().clone();
    let layers = Layers::new()
        .trace("suite")
        .metrics("suite")
        .with(tenant)
        .retry(RetryLayer::new())
        .timeout(LONG)
        .limit(AT_ONCE)
        .with(BlobCacheLayer::new(CACHE_BYTES))
        .with(sealing(options));
    Ok((layers, behind, without_embedder(options)))
}

/// A backend with layers over its stores.
pub(crate) struct Layered {
    pub(crate) around: Around,
    pub(crate) inner: Arc<dyn Harness>,
}

impl Layered {
    fn of(&self, inner: Arc<dyn Harness>) -> Arc<dyn Harness> {
        Arc::new(Self { around: self.around, inner })
    }

    fn before(&self, url: &str) -> String {
        format!("{}+{url}", self.around.name())
    }
}

impl fmt::Debug for Layered {
    /// Hides secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layered").field("url", &self.url()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Harness for Layered {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn url(&self) -> String {
        self.before(&self.inner.url())
    }

    fn shared_url(&self) -> Option<String> {
        self.inner.shared_url().map(|url| self.before(&url))
    }

    async fn open(&self, namespace: &Namespace, options: &OpenOptions) -> Result<StoreSet> {
        let (layers, behind, options) = self.around.layers(namespace, options)?;
        let stores = self.inner.open(&behind, &options).await?;
        Ok(layers.over(stores))
    }

    fn many_items(&self, contract: Contract) -> usize {
        let many = self.inner.many_items(contract);
        if self.around.encrypts() { many.min(2_500) } else { many }
    }

    fn largest_stream(&self) -> usize {
        let largest = self.inner.largest_stream();
        if self.around.encrypts() { largest.min(1 << 20) } else { largest }
    }

    async fn isolated(&self) -> Result<Option<Arc<dyn Harness>>> {
        Ok(self.inner.isolated().await?.map(|inner| self.of(inner)))
    }

    fn servers(&self) -> Vec<String> {
        self.inner.servers()
    }

    async fn relayed(&self, relays: &[SocketAddr]) -> Result<Option<Relayed>> {
        let relayed = self.inner.relayed(relays).await?;
        Ok(relayed.map(|mut through| {
            through.harness = self.of(through.harness);
            through
        }))
    }

    async fn destroy(&self) -> Result<()> {
        self.inner.destroy().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_precedes_the_url_and_no_scheme_is_parsed_as_a_layer() {
        assert_eq!(Around::split("stack+sqlite:./a+b.db"), Some((Around::Stack, "sqlite:./a+b.db")));
        assert_eq!(Around::split("retry+redis+cluster://h:1"), Some((Around::Retry, "redis+cluster://h:1")));
        for url in ["redis+cluster://h:1", "memory:", "sqlite:./trace+1.db", "+memory:"] {
            assert_eq!(Around::split(url), None, "{url}");
        }
    }
}
