//! From a stored conversation to what the model reads.
//!
//! A [`ContextConfig`] says where the conversation lies, which strategies make it fit, how long a run's messages are
//! kept and what an agent may see of it; an [`AgentContext`] does it. [`memory`] has the part that agents which share a
//! session differ in.

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
