//! Metrics of sessions, and alerts when they exceed a limit.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use larder_kernel::{Error, Result};
use metrics::{counter, gauge, histogram};
use serde::{Deserialize, Serialize};

/// Gauge: number of existing sessions.
pub const SESSIONS_ACTIVE: &str = "larder_sessions_active";
/// Gauge: average number of messages per session.
pub const HISTORY_SIZE_AVERAGE: &str = "larder_session_history_messages_avg";
/// Gauge: bytes of all stored messages.
pub const BYTES_STORED: &str = "larder_session_bytes_stored";
/// Histogram: time to load a session's state, in seconds.
pub const LOAD_SECONDS: &str = "larder_session_load_seconds";
/// Counter: exceeded limits, by `alert`.
pub const ALERTS: &str = "larder_session_alerts_total";
/// Counter: failed summaries, after which the window was made without a summary.
pub const SUMMARY_FAILURES: &str = "larder_session_summary_failures_total";

/// The limits above which an alert is raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct SessionThresholds {
    /// The largest number of sessions.
    pub active_sessions_max: u64,
    /// The longest time to load a session's state, in milliseconds.
    pub load_latency_ms_max: u64,
}

impl Default for SessionThresholds {
    fn default() -> Self {
        Self { active_sessions_max: 10_000, load_latency_ms_max: 100 }
    }
}

impl SessionThresholds {
    /// Checks the limits.
    ///
    /// # Errors
    /// `InvalidInput` with the limit that is 0, because every session would raise the alert.
    pub fn check(&self) -> Result<()> {
        for (field, value) in [
            ("active_sessions_max", self.active_sessions_max),
            ("load_latency_ms_max", self.load_latency_ms_max),
        ] {
            if value == 0 {
                return Err(Error::under_limit("session.thresholds", field, value, 1));
            }
        }
        Ok(())
    }

    /// Sets the largest number of sessions.
    #[must_use]
    pub fn with_active_sessions_max(mut self, active_sessions_max: u64) -> Self {
        self.active_sessions_max = active_sessions_max;
        self
    }

    /// Sets the longest time to load a session's state, in milliseconds.
    #[must_use]
    pub fn with_load_latency_ms_max(mut self, load_latency_ms_max: u64) -> Self {
        self.load_latency_ms_max = load_latency_ms_max;
        self
    }
}

/// An exceeded limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionAlert {
    /// The number of sessions exceeds the limit.
    ActiveSessions {
        /// The number of sessions.
        actual: u64,
        /// The limit.
        limit: u64,
    },
    /// Loading a session's state took longer than the limit.
    LoadLatency {
        /// The loading time.
        actual: Duration,
        /// The limit.
        limit: Duration,
    },
}

impl SessionAlert {
    /// Returns the alert's name, which is the value of the label `alert` of [`ALERTS`].
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::ActiveSessions { .. } => "active_sessions",
            Self::LoadLatency { .. } => "load_latency",
        }
    }
}

/// The statistics that [`Sessions::measure`](super::Sessions::measure) returns.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct SessionStats {
    /// The number of existing sessions.
    pub active_sessions: u64,
    /// The average number of messages per session; 0 without sessions.
    pub history_messages_avg: f64,
    /// The bytes of all stored messages, as counted by
    /// [`size_bytes`](larder_kernel::ChatMessage::size_bytes).
    pub bytes_stored: u64,
}

type OnAlert = Arc<dyn Fn(&SessionAlert) + Send + Sync>;

/// The targets of the metrics: the recorder of the `metrics` crate, and a function for alerts.
#[derive(Clone, Default)]
pub(crate) struct Watch {
    thresholds: SessionThresholds,
    on_alert: Option<OnAlert>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("thresholds", &self.thresholds).finish_non_exhaustive()
    }
}

impl Watch {
    pub(crate) fn set_thresholds(&mut self, thresholds: SessionThresholds) {
        self.thresholds = thresholds;
    }

    pub(crate) fn set_on_alert(&mut self, on_alert: OnAlert) {
        self.on_alert = Some(on_alert);
    }

    pub(crate) fn loaded(&self, took: Duration) {
        histogram!(LOAD_SECONDS).record(took.as_secs_f64());
        let limit = Duration::from_millis(self.thresholds.load_latency_ms_max);
        if took > limit {
            self.raise(SessionAlert::LoadLatency { actual: took, limit });
        }
    }

    // A gauge is a float: above 2^53 it shows the nearest float.
    #[allow(clippy::cast_precision_loss)]
    pub(crate) fn measured(&self, stats: &SessionStats) {
        gauge!(SESSIONS_ACTIVE).set(stats.active_sessions as f64);
        gauge!(HISTORY_SIZE_AVERAGE).set(stats.history_messages_avg);
        gauge!(BYTES_STORED).set(stats.bytes_stored as f64);
        let limit = self.thresholds.active_sessions_max;
        if stats.active_sessions > limit {
            self.raise(SessionAlert::ActiveSessions { actual: stats.active_sessions, limit });
        }
    }

    pub(crate) fn summary_failed(&self) {
        counter!(SUMMARY_FAILURES).increment(1);
    }

    fn raise(&self, alert: SessionAlert) {
        counter!(ALERTS, "alert" => alert.name()).increment(1);
        if let Some(on_alert) = &self.on_alert {
            on_alert(&alert);
        }
    }
}
