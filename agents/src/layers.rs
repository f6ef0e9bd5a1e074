//! Layers: wrappers for any store of any contract.
//!
//! | layer | effect |
//! |---|---|
//! | [`TraceLayer`] | a span for each call, with OpenTelemetry's names for databases |
//! | [`MetricsLayer`] | latency, errors, bytes and calls in flight |
//! | [`RetryLayer`] | retries, if a second attempt has no second effect |
//! | [`TimeoutLayer`] | a time limit |
//! | [`ConcurrencyLimitLayer`] | a limit on concurrent calls and on waiting calls |
//! | [`BlobCacheLayer`] | blobs from memory, while they are unchanged in the store |
//! | [`TenantLayer`] | separate namespaces for each tenant of a shared backend |
//! | `EncryptionLayer` | encryption of stored data; needs the feature `encryption` |
//!
//! A [`Layer`] wraps a store in a store of the same contract, so layers compose. [`Layers`] holds a stack of
//! them. A wrapped store passes the conformance suite like any backend; a test of `larder-cli` runs the suite
//! over each layer and over all of them together.

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
mod sealed;
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
#[doc(hidden)]
pub use sealed::is_sealed;
pub use stack::Layers;
pub use tenant::{Tenant, TenantLayer};
pub use timeout::TimeoutLayer;
pub use trace::TraceLayer;

#[cfg(test)]
pub(crate) mod tests;
