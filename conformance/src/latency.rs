//! The latency of a backend's calls.
//!
//! A [`Stopwatch`] is a hook around every call. It records the time until the result.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use larder_kernel::{Contract, Result};
use serde::Serialize;

use crate::harness::Harness;
use crate::hooked::{Hook, HookedHarness};

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
        Arc::new(HookedHarness::new(harness, self.clone()))
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
}

impl Hook for Stopwatch {
    /// Records the time of the call. A call that is dropped before it ends is not recorded.
    async fn around<T: Send>(
        &self,
        contract: Contract,
        method: &'static str,
        call: impl Future<Output = Result<T>> + Send,
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

#[cfg(test)]
mod tests {
    use larder_kernel::{Error, ErrorKind};

    use super::*;

    #[test]
    fn ranks_are_those_of_values_that_were_seen() {
        let values: Vec<u64> = (1..=200).collect();
        assert_eq!((rank(&values, 50), rank(&values, 99), rank(&values, 100)), (100, 198, 200));
        assert_eq!((rank(&[7], 50), rank(&[7], 99), rank(&[], 99)), (7, 7, 0));
    }

    #[tokio::test]
    async fn responses_are_timed_and_refusals_are_counted_separately() {
        let watch = Stopwatch::default();
        for _ in 0..3 {
            watch.around(Contract::Tasks, "claim", async { Ok(()) }).await.unwrap();
        }
        let refusal = async { Err::<(), _>(Error::new(ErrorKind::Conflict, "tasks.claim", "taken")) };
        watch.around(Contract::Tasks, "claim", refusal).await.unwrap_err();
        let found = watch.latencies("memory");
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].method, found[0].count, found[0].errors), ("claim", 3, 1));
        assert!(found[0].p50_ns <= found[0].p99_ns && found[0].p99_ns <= found[0].max_ns);
    }
}
