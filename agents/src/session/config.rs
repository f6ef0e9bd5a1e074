//! The memory settings of an agent, as a JSON document writes them (ALQ-8).
//!
//! What is read is kept as it was written, so that writing it again gives an equal document; the methods say what the
//! settings mean, defaults and `-1` included.

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

/// Whether a request uses the session's memory (ATH-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Memory {
    /// The session is prepended, and what is said is stored.
    #[default]
    On,
    /// The session is neither read nor written.
    Off,
}

/// What is stored after an inference (ALQ-7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Persistence {
    /// The new messages are appended.
    #[default]
    Incremental,
    /// What the model saw of the session, and the new messages, replace the session in one step. Messages that had left
    /// the window go; the summary stays, as the first message.
    Flush,
    /// Nothing.
    Ephemeral,
}

/// What becomes of the session of an `EPHEMERAL` inference (ALQ-10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Ephemeral {
    /// What was stored before stays.
    #[default]
    KeepsSession,
    /// The messages and the summary of the session are removed when the inference completes; its prompt and hints stay.
    LosesSession,
}

/// How an agent remembers: strategies in the order in which they run, and what is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryProfile {
    /// What the model sees of what is kept. Without a strategy that is everything (ALQ-1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short_term_memory_strategy: Option<Vec<ShortTermSettings>>,
    /// What becomes of a conversation that has grown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_term_memory_strategy: Option<Vec<LongTermSettings>>,
    /// What is stored after an inference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persistence_strategy: Option<Persistence>,
}

/// The memory settings of an agent: a [`MemoryProfile`] under `profile`, or its fields alone.
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
    /// Whether the document has the settings under `profile`.
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
    /// The strategies that choose what the model sees, in their order; none for everything.
    #[must_use]
    pub fn short_term(&self) -> &[ShortTermSettings] {
        self.profile.short_term_memory_strategy.as_deref().unwrap_or_default()
    }

    /// The strategies that shorten a conversation that has grown, in their order. They run before the short-term ones.
    #[must_use]
    pub fn long_term(&self) -> &[LongTermSettings] {
        self.profile.long_term_memory_strategy.as_deref().unwrap_or_default()
    }

    /// What is stored after an inference.
    #[must_use]
    pub fn persistence(&self) -> Persistence {
        self.profile.persistence_strategy.unwrap_or_default()
    }

    /// The strategies that choose what the model sees, ready to run.
    ///
    /// # Errors
    /// None for settings that were read: they are checked.
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

    /// The profile of sessions with these settings: every message is read, and what the model sees of them is what the
    /// strategies leave, which [`Sessions::with_strategies`](super::Sessions::with_strategies) takes.
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
                Err(Error::invalid(OPERATION, field, "stands beside `profile`: move it inside"))
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

/// Reads a document, and says where in it a mistake is.
///
/// # Errors
/// `InvalidInput` naming `config`; its message begins with the path to the mistake.
pub fn parse_config<T: DeserializeOwned>(json: &str) -> Result<T> {
    let mut reader = serde_json::Deserializer::from_str(json);
    let read = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        Error::invalid(OPERATION, "config", format!("{}: {}", error.path(), error.inner()))
    })?;
    reader
        .end()
        .map_err(|_| Error::invalid(OPERATION, "config", "something follows the end of the document"))?;
    Ok(read)
}
