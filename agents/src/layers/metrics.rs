//! The layer that counts and times each call.

use std::time::Instant;

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use larder_kernel::{Error, Outcome, Result};
use metrics::{counter, gauge, histogram};

use super::answer::Answer;
use super::middleware::{Call, Middleware, Opened};

/// Histogram: seconds from a call to its result, or to the opening of its stream, by `system`, `contract`,
/// `operation` and `result` (`ok`, or the kind of the error).
pub const OPERATION_SECONDS: &str = "larder_operation_seconds";
/// Counter: failed calls and streams, by `system`, `contract`, `operation`, `kind` and `outcome`.
pub const OPERATION_ERRORS: &str = "larder_operation_errors_total";
/// Counter: bytes of stored data, by `system`, `contract`, `operation` and `direction` (`sent`, `received`).
pub const OPERATION_BYTES: &str = "larder_operation_bytes_total";
/// Gauge: calls in flight, including streams that deliver stored data, by `system` and `contract`.
pub const OPERATIONS_IN_FLIGHT: &str = "larder_operations_in_flight";

/// Reports each call to the recorder of the [`metrics`] crate: its duration, its error, its bytes, and the
/// number of calls in flight.
///
/// The labels are the names of contracts and methods and the kinds of errors, so their number is bounded. The
/// contracts do not expose a backend's pool, so there are no pool metrics; a backend with a pool reports them
/// itself.
///
/// ```
/// use larder_agents::InMemoryHistoryProvider;
/// use larder_agents::layers::{Layer, MetricsLayer};
/// use larder_kernel::{ChatMessage, HistoryProviderExt, Thread};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let history = MetricsLayer::new("memory").history(std::sync::Arc::new(InMemoryHistoryProvider::new()));
/// history.append(&Thread::new("assistant", "session-1")?, ChatMessage::user("Hello")).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct MetricsLayer {
    system: &'static str,
}

impl MetricsLayer {
    /// Creates a layer whose metrics have the label `system`, such as `postgresql`.
    #[must_use]
    pub fn new(system: &'static str) -> Self {
        Self { system }
    }
}

impl super::layer::MiddlewareLayer for MetricsLayer {
    type Hook = Measure;

    fn hook(&self) -> Measure {
        Measure { system: self.system }
    }
}

#[derive(Debug)]
pub(super) struct Measure {
    system: &'static str,
}

/// The labels of one call.
#[derive(Debug, Clone, Copy)]
struct Labels {
    system: &'static str,
    contract: &'static str,
    method: &'static str,
}

impl Labels {
    fn took(self, begun: Instant, result: &'static str) {
        let Self { system, contract, method } = self;
        let labels = [("system", system), ("contract", contract), ("operation", method), ("result", result)];
        histogram!(OPERATION_SECONDS, &labels).record(begun.elapsed().as_secs_f64());
    }

    fn failed(self, error: &Error) {
        let Self { system, contract, method } = self;
        let outcome = match error.outcome() {
            Outcome::NotApplied => "not_applied",
            Outcome::Unknown => "unknown",
        };
        let kind = error.kind().as_str();
        let labels = [
            ("system", system),
            ("contract", contract),
            ("operation", method),
            ("kind", kind),
            ("outcome", outcome),
        ];
        counter!(OPERATION_ERRORS, &labels).increment(1);
    }

    fn moved(self, direction: &'static str, bytes: u64) {
        if bytes == 0 {
            return;
        }
        let Self { system, contract, method } = self;
        let labels =
            [("system", system), ("contract", contract), ("operation", method), ("direction", direction)];
        counter!(OPERATION_BYTES, &labels).increment(bytes);
    }
}

/// A call in flight. It ends on drop, even if its future is dropped.
struct InFlight(Labels);

impl InFlight {
    fn new(labels: Labels) -> Self {
        gauge!(OPERATIONS_IN_FLIGHT, "system" => labels.system, "contract" => labels.contract).increment(1.0);
        Self(labels)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let Labels { system, contract, .. } = self.0;
        gauge!(OPERATIONS_IN_FLIGHT, "system" => system, "contract" => contract).decrement(1.0);
    }
}

impl Measure {
    fn labels(&self, call: &Call<'_>) -> Labels {
        let (contract, method) = call.names();
        Labels { system: self.system, contract, method }
    }
}

fn told<T>(labels: Labels, begun: Instant, result: &Result<T>) {
    match result {
        Ok(_) => labels.took(begun, "ok"),
        Err(error) => {
            labels.took(begun, error.kind().as_str());
            labels.failed(error);
        }
    }
}

impl Middleware for Measure {
    const MEASURES: bool = true;

    async fn around<'a, T: Answer>(
        &'a self,
        call: Call<'a>,
        mut attempt: impl FnMut() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> Result<T> {
        let labels = self.labels(&call);
        let (_in_flight, begun) = (InFlight::new(labels), Instant::now());
        let result = attempt().await;
        told(labels, begun, &result);
        labels.moved("sent", call.bytes + call.taken.as_ref().map_or(0, |taken| taken.bytes()));
        if let Ok(answer) = &result {
            labels.moved("received", answer.bytes());
        }
        result
    }

    async fn open<'a, T: Opened>(
        &'a self,
        call: Call<'a>,
        mut attempt: impl FnMut() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> Result<T> {
        let labels = self.labels(&call);
        let (in_flight, begun) = (InFlight::new(labels), Instant::now());
        let opened = attempt().await;
        told(labels, begun, &opened);
        let mut in_flight = (!call.live).then_some(in_flight);
        Ok(opened?.with_stream(|mut items| {
            futures_util::stream::poll_fn(move |context| {
                let polled = items.poll_next_unpin(context);
                match &polled {
                    std::task::Poll::Ready(Some(Ok(item))) => labels.moved("received", item.bytes()),
                    std::task::Poll::Ready(Some(Err(error))) => labels.failed(error),
                    std::task::Poll::Ready(None) => drop(in_flight.take()),
                    std::task::Poll::Pending => {}
                }
                polled
            })
            .boxed()
        }))
    }
}
