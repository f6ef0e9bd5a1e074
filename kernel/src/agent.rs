//! Types for agent runtimes: model traits, context compaction and history retention.

pub mod context;
pub mod model;

use serde::{Deserialize, Serialize};

/// The messages of a run that remain after the run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum HistoryRetention {
    /// All messages remain permanently.
    #[default]
    Permanent,
    /// No messages remain: the run's messages are cleared when the run ends.
    Run,
    /// No messages remain, because the run's messages are never written.
    None,
}
