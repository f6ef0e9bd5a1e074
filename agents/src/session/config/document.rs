//! Detection of the kind of a memory document.

use larder_kernel::{Error, Result};
use serde_json::Value;

use super::{AgentMemory, MemoryConfig, OPERATION, parse_config};
use crate::compaction::PipelineConfig;
use crate::session::SessionProfile;

/// A document that configures the part of a conversation that the model sees.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum MemoryDocument {
    /// The profile of a session. It has a `type`.
    Session(SessionProfile),
    /// The memory settings of an agent.
    Memory(MemoryConfig),
    /// A pipeline of strategies, under `pipeline`.
    Pipeline(PipelineConfig),
    /// The memory of agents that share sessions, under `agent.memory` or `akka.javasdk.agent.memory`.
    Agent(AgentMemory),
}

impl MemoryDocument {
    /// Reads a document. The names of its fields determine its kind.
    ///
    /// # Errors
    /// `InvalidInput` with `config`. The message begins with the path to the error.
    pub fn parse(json: &str) -> Result<Self> {
        let value: Value = parse_config(json)?;
        if !value.is_object() {
            // Without this check, a list would be read as the fields in order.
            return Err(Error::invalid(OPERATION, "config", "is not an object; write fields by name"));
        }
        let has = |field: &str| value.get(field).is_some();
        Ok(if has("pipeline") {
            Self::Pipeline(parse_config(json)?)
        } else if let Some(memory) = agent_memory(&value)? {
            Self::Agent(memory)
        } else if has("type") || has("max_tokens") || has("summarization_threshold") {
            Self::Session(parse_config(json)?)
        } else {
            Self::Memory(parse_config(json)?)
        })
    }
}

/// Returns the memory of agents under its path, or `None` if the document has none.
fn agent_memory(document: &Value) -> Result<Option<AgentMemory>> {
    let paths: [&[&str]; 4] = [
        &["akka", "javasdk", "agent", "memory"],
        &["akka.javasdk.agent.memory"],
        &["agent", "memory"],
        &["agent.memory"],
    ];
    for path in paths {
        let Some(memory) = below(document, path)? else { continue };
        let named = |error: serde_path_to_error::Error<serde_json::Error>| {
            let message = format!("{}: {}: {}", path.join("."), error.path(), error.inner());
            Error::invalid(OPERATION, "config", message)
        };
        return serde_path_to_error::deserialize(memory).map(Some).map_err(named);
    }
    Ok(None)
}

/// Returns the value under a path, or `None` if it is missing. Other fields next to the path are an error.
fn below<'a>(value: &'a Value, path: &[&str]) -> Result<Option<&'a Value>> {
    let Some((step, rest)) = path.split_first() else { return Ok(Some(value)) };
    let Some(fields) = value.as_object().filter(|fields| fields.contains_key(*step)) else { return Ok(None) };
    if let Some(other) = fields.keys().find(|name| name != step) {
        return Err(Error::invalid(
            OPERATION,
            "config",
            format!("unknown field `{other}`, expected `{step}`"),
        ));
    }
    below(&value[*step], rest)
}
