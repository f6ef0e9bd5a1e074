//! The memory settings of an agent as a JSON document.
//!
//! The settings keep the form in which they were written, so that writing them again gives an equal document.
//! The methods return their meaning, with defaults applied and `-1` interpreted.

mod agent_memory;
mod document;
mod long_term;
mod short_term;

use std::sync::Arc;

use larder_kernel::{CompactionStrategy, Error, Result};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

pub use agent_memory::AgentMemory;
pub use document::MemoryDocument;
pub use long_term::{LongTermSettings, NeuralyzerSettings, SummarizerSettings};
pub use short_term::{MaxTokensSettings, ShortTermSettings};

use super::profile::SessionProfile;
use crate::compaction::{MaxTokens, ShortTermMemory};
use crate::tokens::TokenCounter;

pub(super) const OPERATION: &str = "session.config";

/// The use of the session's memory by a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Memory {
    /// The session's messages come before the request, and the new messages are stored.
    #[default]
    On,
    /// The session is neither read nor written.
    Off,
}

/// The data to store after an inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Persistence {
    /// The new messages are appended.
    #[default]
    Incremental,
    /// The session's messages in the window and the new messages replace the session in one step. Messages
    /// that had left the window are removed. The summary stays, as the first message.
    Flush,
    /// Nothing is stored.
    Ephemeral,
}

/// The effect of an `EPHEMERAL` inference on the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Ephemeral {
    /// The stored messages stay.
    #[default]
    KeepsSession,
    /// The completion of the inference removes the messages and the summary of the session. Its prompt and
    /// hints stay.
    LosesSession,
}

/// The memory of an agent: strategies in the order in which they run, and the persistence of inferences.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryProfile {
    /// The strategies that select the messages for the model. Without any, the model sees everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_term_memory_strategy: Option<Vec<ShortTermSettings>>,
    /// The strategies that shorten a conversation that has grown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_term_memory_strategy: Option<Vec<LongTermSettings>>,
    /// The data to store after an inference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence_strategy: Option<Persistence>,
}

/// The memory settings of an agent: a [`MemoryProfile`] under `profile`, or its fields at the top level.
///
/// ```
/// use larder_agents::session::{MemoryConfig, Persistence, parse_config};
///
/// let config: MemoryConfig = parse_config(
///     r#"{"profile": {
///         "short_term_memory_strategy": [{"memory_strategy_id": "max_tokens", "memory_max_tokens": 8000}],
///         "persistence_strategy": "FLUSH"
///     }}"#,
/// )?;
/// assert_eq!(config.short_term()[0].max_tokens(), 8000);
/// assert!(config.long_term().is_empty());
/// assert_eq!(config.persistence(), Persistence::Flush);
///
/// let error = parse_config::<MemoryConfig>(
///     r#"{"long_term_memory_strategy": [{"long_term_memory_id": "neuralyzer", "interaction_keep": -2}]}"#,
/// )
/// .unwrap_err();
/// assert!(error.message().contains("`interaction_keep`"));
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Written", into = "Written")]
pub struct MemoryConfig {
    profile: MemoryProfile,
    /// `true` if the document has the settings under `profile`.
    wrapped: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    profile: Option<MemoryProfile>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    short_term_memory_strategy: Option<Vec<ShortTermSettings>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    long_term_memory_strategy: Option<Vec<LongTermSettings>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    persistence_strategy: Option<Persistence>,
}

impl MemoryConfig {
    /// Returns the strategies that select the messages for the model, in order. Without any, the model sees
    /// everything.
    #[must_use]
    pub fn short_term(&self) -> &[ShortTermSettings] {
        self.profile.short_term_memory_strategy.as_deref().unwrap_or_default()
    }

    /// Returns the strategies that shorten a conversation that has grown, in order. They run before the
    /// short-term ones.
    #[must_use]
    pub fn long_term(&self) -> &[LongTermSettings] {
        self.profile.long_term_memory_strategy.as_deref().unwrap_or_default()
    }

    /// Returns the data to store after an inference.
    #[must_use]
    pub fn persistence(&self) -> Persistence {
        self.profile.persistence_strategy.unwrap_or_default()
    }

    /// Builds the strategies that select the messages for the model.
    ///
    /// # Errors
    /// None for settings that were read from a document, because these are checked.
    pub fn short_term_strategies(
        &self,
        counter: &Arc<dyn TokenCounter>,
    ) -> Result<Vec<Arc<dyn CompactionStrategy>>> {
        let strategy = |settings: &ShortTermSettings| -> Result<Arc<dyn CompactionStrategy>> {
            let ShortTermMemory::MaxTokens(config) = settings.config();
            Ok(Arc::new(MaxTokens::new(&config, counter.clone())?))
        };
        self.short_term().iter().map(strategy).collect()
    }

    /// Returns the profile of sessions with these settings. It reads every message; the strategies, which
    /// [`Sessions::with_strategies`](super::Sessions::with_strategies) takes, select those for the model.
    #[must_use]
    pub fn session_profile(&self) -> SessionProfile {
        SessionProfile::Everything
    }
}

impl From<MemoryProfile> for MemoryConfig {
    fn from(profile: MemoryProfile) -> Self {
        Self { profile, wrapped: false }
    }
}

impl TryFrom<Written> for MemoryConfig {
    type Error = Error;

    fn try_from(written: Written) -> Result<Self> {
        let Written { profile, short_term_memory_strategy, long_term_memory_strategy, persistence_strategy } =
            written;
        let Some(profile) = profile else {
            let profile =
                MemoryProfile { short_term_memory_strategy, long_term_memory_strategy, persistence_strategy };
            return Ok(Self { profile, wrapped: false });
        };
        let beside = [
            ("short_term_memory_strategy", short_term_memory_strategy.is_some()),
            ("long_term_memory_strategy", long_term_memory_strategy.is_some()),
            ("persistence_strategy", persistence_strategy.is_some()),
        ];
        match beside.into_iter().find(|(_, given)| *given) {
            Some((field, _)) => {
                Err(Error::invalid(OPERATION, field, "is outside of `profile`; move it inside"))
            }
            None => Ok(Self { profile, wrapped: true }),
        }
    }
}

impl From<MemoryConfig> for Written {
    fn from(MemoryConfig { profile, wrapped }: MemoryConfig) -> Self {
        if wrapped {
            return Self {
                profile: Some(profile),
                short_term_memory_strategy: None,
                long_term_memory_strategy: None,
                persistence_strategy: None,
            };
        }
        Self {
            profile: None,
            short_term_memory_strategy: profile.short_term_memory_strategy,
            long_term_memory_strategy: profile.long_term_memory_strategy,
            persistence_strategy: profile.persistence_strategy,
        }
    }
}

/// Reads a document and reports the location of an error in it.
///
/// # Errors
/// `InvalidInput` with `config`. The message begins with the path to the error.
pub fn parse_config<T: DeserializeOwned>(json: &str) -> Result<T> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        Error::invalid(OPERATION, "config", format!("{}: {}", error.path(), error.inner()))
    })?;
    reader.end().map_err(|_| {
        Error::invalid(OPERATION, "config", "text follows the end of the document; remove it")
    })?;
    Ok(read)
}
