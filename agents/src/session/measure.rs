//! Counting sessions (PK-6).

use larder_kernel::{PageRequest, Result};

use super::metrics::SessionStats;
use super::sessions::Sessions;

/// Threads per page of a measurement.
const PAGE_THREADS: usize = 1_000;

impl Sessions {
    /// Counts the agent's sessions and what they hold, sets the gauges, and raises an alert where there are too many
    /// (PK-6). Call it from time to time; it reads counts, no messages.
    ///
    /// # Errors
    /// The stores' own.
    ///
    /// # Cancellation
    /// Nothing to undo.
    ///
    /// # Complexity
    /// O(sessions).
    // The average is for people: beyond 2^53 messages it shows the nearest float.
    #[allow(clippy::cast_precision_loss)]
    pub async fn measure(&self) -> Result<SessionStats> {
        let active_sessions = self.records.count().await?;
        let (mut messages, mut bytes_stored) = (0_u64, 0_u64);
        let mut page = PageRequest::first(PAGE_THREADS);
        loop {
            let listed = self.reader.history.list_threads(Some(&self.agent), page).await?;
            for thread in &listed.items {
                messages += thread.messages;
                bytes_stored += thread.bytes;
            }
            let Some(next) = listed.next else { break };
            page = PageRequest::after(next, PAGE_THREADS);
        }
        let history_messages_avg =
            if active_sessions == 0 { 0.0 } else { messages as f64 / active_sessions as f64 };
        let stats = SessionStats { active_sessions, history_messages_avg, bytes_stored };
        self.watch.measured(&stats);
        Ok(stats)
    }
}
