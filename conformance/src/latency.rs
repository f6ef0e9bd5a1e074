//! The latency of a backend's calls.
//!
//! A [`Stopwatch`] wraps the stores: it forwards every call and records the time until the result.
//! Capabilities, errors, `Debug` and the availability of Cypher pass through unchanged.

mod stores;

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use larder_kernel::{Contract, Namespace, Result};
use serde::Serialize;

use crate::harness::{Harness, OpenOptions, Relayed, StoreSet};

/// The latency of one method on one backend, in the calls of its cases.
///
/// Cases run concurrently, so these times describe a backend under the load of the suite. They are not a
/// benchmark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Latency {
    /// The backend's name.
    pub backend: String,
    /// The contract.
    pub contract: Contract,
    /// The method, with the name from the contract's trait.
    pub method: &'static str,
    /// The number of successful calls; the times below are theirs. For methods that return a stream: of its
    /// opening.
    pub count: usize,
    /// The number of calls that ended in an error. The times exclude them, because most fail before any I/O.
    pub errors: usize,
    /// The median, in nanoseconds.
    pub p50_ns: u64,
    /// The 99th percentile, in nanoseconds.
    pub p99_ns: u64,
    /// The maximum, in nanoseconds.
    pub max_ns: u64,
}

#[derive(Debug, Default)]
struct Samples {
    times_ns: Vec<u64>,
    errors: usize,
}

/// Records the latencies of one backend's calls.
#[derive(Debug, Clone, Default)]
pub struct Stopwatch {
    samples: Arc<Mutex<BTreeMap<(Contract, &'static str), Samples>>>,
}

impl Stopwatch {
    /// Returns the same backend with every call recorded in this stopwatch.
    #[must_use]
    pub fn watch(&self, harness: Arc<dyn Harness>) -> Arc<dyn Harness> {
        Arc::new(TimedHarness { inner: harness, watch: self.clone() })
    }

    /// Returns the recorded latencies, by contract and method.
    #[must_use]
    pub fn latencies(&self, backend: &str) -> Vec<Latency> {
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let of = |((contract, method), samples): (&(Contract, &'static str), &mut Samples)| {
            samples.times_ns.sort_unstable();
            Latency {
                backend: backend.to_owned(),
                contract: *contract,
                method,
                count: samples.times_ns.len(),
                errors: samples.errors,
                p50_ns: rank(&samples.times_ns, 50),
                p99_ns: rank(&samples.times_ns, 99),
                max_ns: rank(&samples.times_ns, 100),
            }
        };
        samples.iter_mut().map(of).collect()
    }

    /// Returns the result of the call and records its time. A call that is dropped before it ends is not
    /// recorded.
    async fn time<T>(
        &self,
        contract: Contract,
        method: &'static str,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let begun = Instant::now();
        let answer = call.await;
        let took_ns = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = samples.entry((contract, method)).or_default();
        match &answer {
            Ok(_) => samples.times_ns.push(took_ns),
            Err(_) => samples.errors += 1,
        }
        answer
    }
}

/// Returns the percentile of sorted values by the nearest rank; 0 if the list is empty.
fn rank(sorted: &[u64], percent: usize) -> u64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(0)
}

/// A store whose calls are recorded.
struct Timed<T: ?Sized> {
    inner: Arc<T>,
    contract: Contract,
    watch: Stopwatch,
}

impl<T: fmt::Debug + ?Sized> fmt::Debug for Timed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// A backend whose stores' calls are recorded.
struct TimedHarness {
    inner: Arc<dyn Harness>,
    watch: Stopwatch,
}

impl fmt::Debug for TimedHarness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl TimedHarness {
    fn timed<T: ?Sized>(&self, store: Option<Arc<T>>, contract: Contract) -> Option<Arc<Timed<T>>> {
        store.map(|inner| Arc::new(Timed { inner, contract, watch: self.watch.clone() }))
    }
}

#[async_trait]
impl Harness for TimedHarness {
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
        let StoreSet { history, vectors, graph, blobs, tasks, key_value } =
            self.inner.open(namespace, options).await?;
        Ok(StoreSet {
            history: self.timed(history, Contract::History).map(|store| store as _),
            vectors: self.timed(vectors, Contract::Vectors).map(|store| store as _),
            graph: self.timed(graph, Contract::Graph).map(|store| store as _),
            blobs: self.timed(blobs, Contract::Blobs).map(|store| store as _),
            tasks: self.timed(tasks, Contract::Tasks).map(|store| store as _),
            key_value: self.timed(key_value, Contract::KeyValue).map(|store| store as _),
        })
    }

    async fn isolated(&self) -> Result<Option<Arc<dyn Harness>>> {
        Ok(self.inner.isolated().await?.map(|inner| self.watch.watch(inner)))
    }

    fn servers(&self) -> Vec<String> {
        self.inner.servers()
    }

    /// Not recorded: the delays of a relay are not the backend's latency.
    async fn relayed(&self, relays: &[SocketAddr]) -> Result<Option<Relayed>> {
        self.inner.relayed(relays).await
    }

    async fn destroy(&self) -> Result<()> {
        self.inner.destroy().await
    }
}

#[cfg(test)]
mod tests;
