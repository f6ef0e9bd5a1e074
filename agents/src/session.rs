//! Sessions: conversations with a system prompt, hints and a profile that limits the part of them that the
//! model sees.
//!
//! [`Sessions`] works with any history and any key-value store. [`Sessions::begin`] makes the window for one
//! inference: the system prompt, the summary, the hints, the newest messages that fit, and the new messages.
//! [`Inference::complete`] stores the new messages in one step, as [`Persistence`] defines.
//!
//! Making a window never changes the stored messages. [`MemoryConfig`] reads the memory settings of an agent
//! from JSON. The recorder of the `metrics` crate receives numbers for dashboards and alerts; see
//! [`SessionStats`], [`SessionThresholds`] and [`metrics`].

mod completion;
mod config;
mod configured;
mod explain;
mod flush;
mod fork;
mod hints;
mod inference;
mod knowledge;
mod left_out;
mod lifecycle;
mod load;
mod measure;
pub mod metrics;
mod plan;
mod profile;
mod record;
mod sessions;
mod state;
mod summarize;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod upkeep;
mod window;

pub use crate::load::OnLoadError;
pub use config::{
    AgentMemory, Ephemeral, LongTermSettings, MaxTokensSettings, Memory, MemoryConfig, MemoryDocument,
    MemoryProfile, NeuralyzerSettings, Persistence, ShortTermSettings, SummarizerSettings, parse_config,
};
pub use inference::{Inference, InferenceRequest, Persisted};
pub use left_out::LeftOut;
pub use metrics::{SessionAlert, SessionStats, SessionThresholds};
pub use profile::{MAX_TOKENS_DEFAULT, SUMMARIZATION_THRESHOLD_DEFAULT, SessionProfile};
pub use record::SESSION_BUCKET;
pub use sessions::{HINT_BYTES_MAX, HINTS_MAX, SYSTEM_PROMPT_BYTES_MAX, Session, SessionInfo, Sessions};
pub use summarize::{OnSummaryFailure, SummaryPolicy};
pub use window::{HINTS_HEADER, HintOrder};
