//! The contents of spans and metrics, and the data that never appears in them.

use std::sync::{Arc, Mutex};

use larder_kernel::{
    AppendOptions, BlobKey, BlobStoreExt, ChatMessage, ErrorKind, KeyValueStoreExt, Outcome,
};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::super::metrics::{OPERATION_BYTES, OPERATION_ERRORS, OPERATION_SECONDS, OPERATIONS_IN_FLIGHT};
use super::super::{Layers, MetricsLayer, TraceLayer};
use super::Step::Before;
use super::{Scripted, blobs, history, key_value, place, thread, value};

/// Records the fields of spans.
#[derive(Clone, Default)]
struct Fields(Arc<Mutex<Vec<String>>>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.lock().unwrap().push(format!("{}={value:?}", field.name()));
    }
}

impl Subscriber for Fields {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, attributes: &Attributes<'_>) -> Id {
        attributes.record(&mut self.clone());
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, record: &Record<'_>) {
        record.record(&mut self.clone());
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}

    fn try_close(&self, _: Id) -> bool {
        self.0.lock().unwrap().push("closed".to_owned());
        true
    }
}

async fn some_calls(layers: &Layers) {
    let scripted = Scripted::new([Before(ErrorKind::Unavailable, Outcome::Unknown)]);
    let (bucket, key) = place();
    let state = key_value(&scripted, layers);
    assert!(state.set(&bucket, &key, value()).await.is_err());
    state.set(&bucket, &key, value()).await.unwrap();
    assert!(state.get(&bucket, &key).await.unwrap().is_some());
    let history = history(&Scripted::default(), layers);
    let messages = vec![ChatMessage::user("secret text"); 2];
    history.append_many(&thread(), messages, AppendOptions::default()).await.unwrap();
    assert_eq!(history.tail(&thread(), None, 10).await.unwrap().messages.len(), 2);
    let blobs = blobs(&Scripted::default(), layers);
    let key = BlobKey::new("secret-blob").unwrap();
    blobs.put_bytes(&key, value()).await.unwrap();
    assert_eq!(blobs.get_bytes(&key).await.unwrap(), value());
}

#[tokio::test]
async fn a_span_names_the_operation_and_shows_no_data() {
    let fields = Fields::default();
    let _guard = tracing::subscriber::set_default(fields.clone());
    some_calls(&Layers::new().with(TraceLayer::new("memory"))).await;
    let told = fields.0.lock().unwrap().join("\n");
    for field in [
        r#"otel.name="key_value.put""#,
        r#"otel.kind="client""#,
        r#"db.system.name="memory""#,
        r#"db.operation.name="append_many""#,
        r#"db.collection.name="history""#,
        "db.response.returned_rows=2",
        r#"error.type="Unavailable""#,
        r#"otel.status_code="ERROR""#,
        r#"larder.outcome="unknown""#,
        "closed",
    ] {
        assert!(told.contains(field), "{field} in\n{told}");
    }
    assert!(!told.contains("secret") && !told.contains("db.namespace"), "{told}");
    fields.0.lock().unwrap().clear();
    some_calls(&Layers::new().with(TraceLayer::new("memory").with_names())).await;
    let told = fields.0.lock().unwrap().join("\n");
    assert!(
        told.contains(r#"db.collection.name="secret-bucket""#) && told.contains("db.namespace"),
        "{told}"
    );
    assert!(!told.contains("secret-key") && !told.contains("secret text") && !told.contains("secret-blob"));
}

#[test]
fn metrics_count_time_errors_bytes_and_running_calls() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    metrics::with_local_recorder(&recorder, || {
        runtime.block_on(some_calls(&Layers::new().with(MetricsLayer::new("memory"))));
    });
    let mut seen = Vec::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let labels: Vec<&str> = key.key().labels().map(metrics::Label::value).collect();
        assert!(!labels.iter().any(|label| label.contains("secret")), "{labels:?}");
        let value = match value {
            DebugValue::Counter(count) => count.to_string(),
            DebugValue::Gauge(gauge) => gauge.to_string(),
            DebugValue::Histogram(values) => format!("{} times", values.len()),
        };
        seen.push(format!("{} {} {value}", key.key().name(), labels.join(" ")));
    }
    for expected in [
        format!("{OPERATION_SECONDS} memory key_value put ok 1 times"),
        format!("{OPERATION_SECONDS} memory key_value put Unavailable 1 times"),
        format!("{OPERATION_ERRORS} memory key_value put Unavailable unknown 1"),
        format!("{OPERATION_BYTES} memory key_value put sent 10"),
        format!("{OPERATION_BYTES} memory key_value get received 5"),
        format!("{OPERATION_BYTES} memory history append_many sent 22"),
        format!("{OPERATION_BYTES} memory history tail received 22"),
        format!("{OPERATION_BYTES} memory blobs get received 5"),
        format!("{OPERATIONS_IN_FLIGHT} memory blobs 0"),
        format!("{OPERATIONS_IN_FLIGHT} memory key_value 0"),
    ] {
        assert!(seen.contains(&expected), "{expected} in\n{}", seen.join("\n"));
    }
}
