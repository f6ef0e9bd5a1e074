//! Windows: the part of a stored conversation that the model reads.
//!
//! A [`ContextConfig`] sets the history of the conversation, the strategies that shorten it, the retention of
//! a run's messages and the memory that an agent may see. An [`AgentContext`] applies it. The module
//! [`memory`] has the settings in which agents that share a session differ.

mod agent_context;
mod config;
pub(crate) mod explain;
pub mod memory;
mod reader;
mod run;
mod strategies;
#[cfg(test)]
#[allow(dead_code, reason = "the scenarios use the rest")]
mod testing;
#[cfg(test)]
mod tests;

pub use agent_context::AgentContext;
pub use config::{ContextConfig, SCAN_MESSAGES_MAX_DEFAULT};
pub use explain::{ExplainedStep, Resized, Size, WindowExplanation};
pub use run::ContextRun;
