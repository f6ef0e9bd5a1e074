//! Strategies that shorten a conversation until it fits the model's context window.

mod agent;
mod answers;
mod close;
mod combined;
mod knowledge;
mod neuralyzer;
mod render;
mod summarization;
mod summarizer;
mod summary;
mod summary_claim;
mod summary_draft;
mod summary_maker;
mod summary_settings;
mod summary_store;
mod triggers;
pub(crate) mod turns;

pub use agent::{Compacted, CompactionAgent, CompactionAgentConfig};
pub(crate) use answers::Answers;
pub use close::close_tool_calls;
pub use combined::{CombinedMemory, LongTermMemory};
pub use covered::{Covered, MessageMark};
pub use knowledge::{KnowledgeBase, KnowledgeBaseConfig, SearchMode};
pub(crate) use neuralyzer::erase;
pub use neuralyzer::{Neuralyzer, NeuralyzerConfig};
pub(crate) use paid_summary::base_of;
pub use render::render_transcript;
pub use summarization::{Summarization, SummarizationConfig};
pub use summarizer::{Summarizer, SummarizerConfig};
pub use summary::{Summary, begin_with_summary, summary_message};
pub use summary_claim::SummaryClaim;
pub(crate) use summary_draft::summary_in;
pub use summary_maker::SummaryMaker;
pub use summary_settings::{OnFailure, SummarySettings};
pub use summary_store::{SUMMARY_BUCKET, StoredSummary, SummaryStore};

mod condition;
mod covered;
mod document;
mod groups;
mod into_pipeline;
mod max_tokens;
mod paid_summary;
mod pipeline;
mod selective_tool_call;
mod sliding_window;
mod token_budget;
mod tool_result;
mod truncation;

pub use condition::InteractionCondition;
pub use document::{PipelineConfig, StrategyConfig, TokenBudgetComposedConfig};
pub use groups::pair_tool_calls;
pub use max_tokens::{MaxTokens, MaxTokensConfig, ShortTermMemory};
pub use pipeline::Pipeline;
pub use selective_tool_call::{SelectiveToolCall, SelectiveToolCallConfig};
pub use sliding_window::{SlidingWindow, SlidingWindowConfig};
pub use token_budget::TokenBudgetComposed;
pub use tool_result::{ToolResultTruncation, ToolResultTruncationConfig};
pub use truncation::{Truncation, TruncationConfig};

#[cfg(test)]
pub(crate) mod properties;
