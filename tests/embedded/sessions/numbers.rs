//! Metrics and alerts.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use larder_agents::session::metrics::{
    ALERTS, BYTES_STORED, HISTORY_SIZE_AVERAGE, LOAD_SECONDS, SESSIONS_ACTIVE, SUMMARY_FAILURES,
};
use larder_agents::session::{SessionAlert, SessionProfile, SessionThresholds};
use larder_kernel::{AgentId, SessionId};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};

use super::support::{Model, World, turn, user};
use crate::test_backend::TestBackend as Backend;

fn values(snapshotter: &Snapshotter) -> Vec<(String, DebugValue)> {
    let named = |key: &metrics_util::CompositeKey| {
        let labels: String = key.key().labels().map(|label| format!("/{}", label.value())).collect();
        format!("{}{labels}", key.key().name())
    };
    snapshotter.snapshot().into_vec().into_iter().map(|(key, _, _, value)| (named(&key), value)).collect()
}

fn value(values: &[(String, DebugValue)], name: &str) -> Option<f64> {
    values.iter().find(|(key, _)| key == name).map(|(_, value)| match value {
        DebugValue::Gauge(gauge) => gauge.into_inner(),
        DebugValue::Counter(count) => f64::from(u32::try_from(*count).unwrap()),
        DebugValue::Histogram(samples) => {
            samples.iter().map(|sample| sample.into_inner()).fold(0.0, f64::max)
        }
    })
}

/// Proves: PK-6
#[tokio::test(start_paused = true)]
async fn sessions_sizes_and_latency_are_measured_and_limits_alert() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let alerts: Arc<Mutex<Vec<SessionAlert>>> = Arc::default();
    let heard = alerts.clone();
    let world = World::new(&Backend::memory().await).await;
    let probe = world.probe();
    let thresholds = SessionThresholds::default().with_active_sessions_max(2).with_load_latency_ms_max(100);
    let sessions = world
        .sessions_on(probe.clone())
        .with_thresholds(thresholds)
        .unwrap()
        .with_on_alert(move |alert| heard.lock().unwrap().push(*alert));
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(sessions.create(SessionProfile::default(), "prompt").await.unwrap());
    }
    turn(&sessions, &ids[0], "12345", "67890").await;
    let stats = sessions.measure().await.unwrap();
    assert_eq!((stats.active_sessions, stats.bytes_stored), (2, 10));
    assert!((stats.history_messages_avg - 1.0).abs() < f64::EPSILON);
    assert!(alerts.lock().unwrap().is_empty(), "2 is not over 2");

    sessions.create(SessionProfile::default(), "prompt").await.unwrap();
    let others = sessions.clone().with_agent(AgentId::new("other").unwrap());
    others.create_as(&SessionId::new("s").unwrap(), SessionProfile::default(), "").await.unwrap();
    probe.delay_ms.store(50, Ordering::Relaxed);
    sessions.begin(&ids[0], user("x")).await.unwrap();
    assert!(alerts.lock().unwrap().is_empty());
    probe.delay_ms.store(250, Ordering::Relaxed);
    sessions.begin(&ids[0], user("x")).await.unwrap();
    assert_eq!(sessions.measure().await.unwrap().active_sessions, 3);

    let alerts = alerts.lock().unwrap().clone();
    let (actual, limit) = (Duration::from_millis(250), Duration::from_millis(100));
    assert_eq!(
        alerts,
        [SessionAlert::LoadLatency { actual, limit }, SessionAlert::ActiveSessions { actual: 3, limit: 2 }]
    );
    let values = values(&snapshotter);
    assert_eq!(value(&values, SESSIONS_ACTIVE), Some(3.0));
    assert_eq!(value(&values, BYTES_STORED), Some(10.0));
    assert!(value(&values, HISTORY_SIZE_AVERAGE).is_some_and(|average| average > 0.6 && average < 0.7));
    assert_eq!(value(&values, LOAD_SECONDS), Some(0.25));
    assert_eq!(value(&values, &format!("{ALERTS}/load_latency")), Some(1.0));
    assert_eq!(value(&values, &format!("{ALERTS}/active_sessions")), Some(1.0));
    let ids: Vec<_> = ids.iter().map(SessionId::as_str).collect();
    assert!(values.iter().all(|(key, _)| !ids.iter().any(|id| key.contains(id))), "no id is a label");
}

/// Proves: PK-6
#[test]
fn the_limits_are_the_documented_ones_and_are_checked() {
    let default = SessionThresholds::default();
    assert_eq!((default.active_sessions_max, default.load_latency_ms_max), (10_000, 100));
    let wrong = default.with_active_sessions_max(0);
    assert_eq!(wrong.check().unwrap_err().field(), Some("active_sessions_max"));
    let error = serde_json::from_str::<SessionThresholds>(r#"{"sessions": 1}"#).unwrap_err().to_string();
    assert!(error.contains("`sessions`"));
}

/// Proves: PK-6
#[tokio::test]
async fn failed_summaries_are_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let _guard = metrics::set_default_local_recorder(&recorder);
    let sessions = World::new(&Backend::memory().await).await.sessions().with_summarizer(Model::new(&[]));
    let profile = SessionProfile::rolling_window(20, 1).unwrap();
    let id = sessions.create(profile, "").await.unwrap();
    turn(&sessions, &id, "a b", "c d").await;
    sessions.begin(&id, user("x")).await.unwrap();
    assert_eq!(value(&values(&snapshotter), SUMMARY_FAILURES), Some(1.0));
}
