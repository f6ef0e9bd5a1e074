//! Layers: what can be put around any store of any contract.
//!
//! | layer | what it adds |
//! |---|---|
//! | [`TraceLayer`] | a span for each call, with OpenTelemetry's names for databases |
//! | [`MetricsLayer`] | latency, errors, bytes and calls under way |
//! | [`RetryLayer`] | another attempt, where a second one has no second effect |
//! | [`TimeoutLayer`] | an end to waiting |
//! | [`ConcurrencyLimitLayer`] | a bound on calls at once, and on those that wait |
//! | [`BlobCacheLayer`] | the bytes of blobs from memory, as long as they are still the blob's |
//! | [`TenantLayer`] | namespaces of a tenant's own in a place that several share |
//! | `EncryptionLayer` | what is stored is encrypted; with the feature `encryption` |
//!
//! A [`Layer`] wraps a store in a store of the same contract, so layers compose, and [`Layers`] holds a stack of them.
//! What is wrapped passes the conformance suite as a backend of its own; a test of `larder-cli` runs it over each
//! layer and over all of them together.

mod answer;
mod cache;
#[cfg(feature = "encryption")]
mod encrypt;
mod forward;
mod layer;
mod limit;
pub mod metrics;
mod middleware;
mod retry;
mod stack;
mod tenant;
mod timeout;
mod trace;

pub use cache::BlobCacheLayer;
#[cfg(feature = "encryption")]
pub use encrypt::{EncryptionKey, EncryptionLayer, KeyRing};
pub use layer::Layer;
pub use limit::ConcurrencyLimitLayer;
pub use metrics::MetricsLayer;
pub use retry::RetryLayer;
pub use stack::Layers;
pub use tenant::{Tenant, TenantLayer};
pub use timeout::TimeoutLayer;
pub use trace::TraceLayer;

#[cfg(test)]
mod tests;
