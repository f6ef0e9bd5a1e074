//! How long a conversation is kept.

use serde::{Deserialize, Serialize};

/// What remains of a run's messages when the run ends (RAVI-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum HistoryRetention {
    /// Everything, for good.
    #[default]
    Permanent,
    /// Nothing: the run's messages are cleared when it ends.
    Run,
    /// Nothing: the messages are never written.
    None,
}
