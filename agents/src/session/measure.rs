//! Statistics of sessions.

use larder_kernel::{PageRequest, Result};

use super::metrics::SessionStats;
use super::sessions::Sessions;

/// The page size of a measurement, in threads.
const PAGE_THREADS: usize = 1_000;

impl Sessions {
    /// Counts the agent's sessions and their contents, sets the gauges, and raises an alert if too many
    /// sessions exist. Call it periodically. It reads counts, not messages.
    ///
    /// # Errors
    /// The errors of the stores.
    ///
    /// # Cancellation
    /// The call changes nothing.
    ///
    /// # Complexity
    /// O(sessions).
    // The average is for display: above 2^53 messages it is the nearest float.
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
