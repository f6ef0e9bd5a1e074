//! Which of the documents about memory a document is.

use larder_kernel::{Error, Result};
use serde_json::Value;

use super::{MemoryConfig, OPERATION, parse_config};
use crate::compaction::PipelineConfig;
use crate::session::SessionProfile;

/// A document that says how much of a conversation the model sees.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum MemoryDocument {
    /// The profile of a session, which has a `type`.
    Session(SessionProfile),
    /// The memory settings of an agent.
    Memory(MemoryConfig),
    /// Strategies, under `pipeline`.
    Pipeline(PipelineConfig),
}

impl MemoryDocument {
    /// Reads a document. Which one it is, the names of its fields say.
    ///
    /// # Errors
    /// `InvalidInput` naming `config`; its message begins with the path to the mistake.
    pub fn parse(json: &str) -> Result<Self> {
        let value: Value = parse_config(json)?;
        if !value.is_object() {
            // A list would be read as the fields in their order.
            return Err(Error::invalid(OPERATION, "config", "not an object with fields by name"));
        }
        let has = |field: &str| value.get(field).is_some();
        Ok(if has("pipeline") {
            Self::Pipeline(parse_config(json)?)
        } else if has("type") || has("max_tokens") || has("summarization_threshold") {
            Self::Session(parse_config(json)?)
        } else {
            Self::Memory(parse_config(json)?)
        })
    }
}
