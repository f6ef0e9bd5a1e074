//! The layer that creates a span for each call.

use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use larder_kernel::{Error, Outcome, Result};
use tracing::field::Empty;
use tracing::{Instrument, Span};

use super::answer::Answer;
use super::middleware::{Call, Middleware, Opened};

/// Creates a `tracing` span for each call, with the names that OpenTelemetry's conventions define for
/// database clients.
///
/// | field | value |
/// |---|---|
/// | `otel.name`, `otel.kind` | `history.append_many`, `client` |
/// | `db.system.name` | the argument of [`new`](Self::new), such as `postgresql` |
/// | `db.operation.name` | the method, such as `append_many` |
/// | `db.collection.name` | the contract, such as `history`, or the collection or bucket (see below) |
/// | `db.namespace` | only with `with_names`: the namespace |
/// | `db.response.returned_rows` | the number of items in a returned list or in a stream |
/// | `error.type`, `otel.status_code` | the kind of the error, and `ERROR` |
/// | `larder.outcome` | with an error: `not_applied` or `unknown` |
///
/// Stored text, ids and keys never appear in a span. Names of collections, buckets and namespaces may contain
/// user data, so they appear only after [`with_names`](Self::with_names). Then `db.collection.name` is the
/// collection or bucket, if the call names one. The span of a stream lasts until the stream ends or is
/// dropped.
///
/// ```
/// use larder_agents::InMemoryHistoryProvider;
/// use larder_agents::layers::{Layer, TraceLayer};
/// use larder_kernel::{ChatMessage, HistoryProviderExt, Thread};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let history = TraceLayer::new("memory").history(std::sync::Arc::new(InMemoryHistoryProvider::new()));
/// history.append(&Thread::new("assistant", "session-1")?, ChatMessage::user("Hello")).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct TraceLayer {
    system: &'static str,
    names: bool,
}

impl TraceLayer {
    /// Creates a layer whose spans name the database as `system`: one of OpenTelemetry's names (`postgresql`,
    /// `redis`, `sqlite`, `aws.s3`) or a custom name.
    #[must_use]
    pub fn new(system: &'static str) -> Self {
        Self { system, names: false }
    }

    /// Records the names of namespaces, collections and buckets.
    #[must_use]
    pub fn with_names(mut self) -> Self {
        self.names = true;
        self
    }
}

impl super::layer::MiddlewareLayer for TraceLayer {
    type Hook = Trace;

    fn hook(&self) -> Trace {
        Trace { system: self.system, names: self.names }
    }
}

#[derive(Debug)]
pub(super) struct Trace {
    system: &'static str,
    names: bool,
}

impl Trace {
    fn span(&self, call: &Call<'_>) -> Span {
        let (contract, method) = call.names();
        let span = tracing::info_span!(
            "larder.call",
            otel.name = call.operation,
            otel.kind = "client",
            otel.status_code = Empty,
            db.system.name = self.system,
            db.operation.name = method,
            db.collection.name = Empty,
            db.namespace = Empty,
            db.response.returned_rows = Empty,
            "error.type" = Empty,
            larder.outcome = Empty,
        );
        if self.names {
            span.record("db.namespace", call.namespace);
            span.record("db.collection.name", call.collection.unwrap_or(contract));
        } else {
            span.record("db.collection.name", contract);
        }
        span
    }
}

fn failed(span: &Span, error: &Error) {
    span.record("error.type", error.kind().as_str());
    span.record("otel.status_code", "ERROR");
    let outcome = match error.outcome() {
        Outcome::NotApplied => "not_applied",
        Outcome::Unknown => "unknown",
    };
    span.record("larder.outcome", outcome);
}

impl Middleware for Trace {
    async fn around<'a, T: Answer>(
        &'a self,
        call: Call<'a>,
        mut attempt: impl FnMut() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> Result<T> {
        let span = self.span(&call);
        let result = span.in_scope(&mut attempt).instrument(span.clone()).await;
        match &result {
            Ok(answer) => {
                if let Some(rows) = answer.rows() {
                    span.record("db.response.returned_rows", rows);
                }
            }
            Err(error) => failed(&span, error),
        }
        result
    }

    async fn open<'a, T: Opened>(
        &'a self,
        call: Call<'a>,
        mut attempt: impl FnMut() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> Result<T> {
        let span = self.span(&call);
        let opened = span.in_scope(&mut attempt).instrument(span.clone()).await;
        let opened = opened.inspect_err(|error| failed(&span, error))?;
        Ok(opened.with_stream(|mut items| {
            let mut delivered = Delivered { span, rows: 0 };
            futures_util::stream::poll_fn(move |context| {
                let polled = delivered.span.in_scope(|| items.poll_next_unpin(context));
                match &polled {
                    std::task::Poll::Ready(Some(Ok(_))) => delivered.rows += 1,
                    std::task::Poll::Ready(Some(Err(error))) => failed(&delivered.span, error),
                    _ => {}
                }
                polled
            })
            .boxed()
        }))
    }
}

/// The span of a stream. It records the number of items at the end.
struct Delivered {
    span: Span,
    rows: u64,
}

impl Drop for Delivered {
    fn drop(&mut self) {
        self.span.record("db.response.returned_rows", self.rows);
    }
}
