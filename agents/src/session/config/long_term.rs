//! The JSON form of the strategies that shorten a conversation that has grown.

use larder_kernel::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::compaction::{LongTermMemory, NeuralyzerConfig, SummarizerConfig};

/// A strategy that shortens a conversation that has grown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
#[non_exhaustive]
pub enum LongTermSettings {
    /// `summarizer`: replaces older interactions with a summary.
    Summarizer(SummarizerSettings),
    /// `neuralyzer`: erases older interactions.
    Neuralyzer(NeuralyzerSettings),
}

/// The settings of the summarizer, as written and as interpreted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummarizerSettings {
    written: Map<String, Value>,
    config: SummarizerConfig,
}

/// The settings of the neuralyzer, as written and as interpreted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NeuralyzerSettings {
    written: Map<String, Value>,
    config: NeuralyzerConfig,
}

impl LongTermSettings {
    fn thresholds(&self) -> [i64; 3] {
        match self {
            Self::Summarizer(SummarizerSettings { config, .. }) => [
                config.input_tokens_threshold,
                config.interaction_threshold_qty,
                config.interaction_threshold_tokens,
            ],
            Self::Neuralyzer(NeuralyzerSettings { config, .. }) => [
                config.input_tokens_threshold,
                config.interaction_threshold_qty,
                config.interaction_threshold_tokens,
            ],
        }
    }

    /// Returns the number of tokens in the model's input above which the strategy runs, or `None` for never.
    #[must_use]
    pub fn input_tokens_threshold(&self) -> Option<u64> {
        u64::try_from(self.thresholds()[0]).ok()
    }

    /// Returns the number of interactions above which the strategy runs, or `None` for never.
    #[must_use]
    pub fn interaction_threshold_qty(&self) -> Option<u64> {
        u64::try_from(self.thresholds()[1]).ok()
    }

    /// Returns the number of tokens in all interactions above which the strategy runs, or `None` for never.
    #[must_use]
    pub fn interaction_threshold_tokens(&self) -> Option<u64> {
        u64::try_from(self.thresholds()[2]).ok()
    }

    /// Returns the tools whose success starts the strategy.
    #[must_use]
    pub fn on_tools_success(&self) -> &[String] {
        match self {
            Self::Summarizer(settings) => &settings.config.on_tools_success_threshold,
            Self::Neuralyzer(settings) => &settings.config.on_tools_success_threshold,
        }
    }

    /// Returns the tools whose failure starts the strategy.
    #[must_use]
    pub fn on_tools_error(&self) -> &[String] {
        match self {
            Self::Summarizer(settings) => &settings.config.on_tools_error_threshold,
            Self::Neuralyzer(settings) => &settings.config.on_tools_error_threshold,
        }
    }

    /// Returns the number of newest interactions that stay verbatim.
    #[must_use]
    pub fn interaction_keep(&self) -> u64 {
        larder_kernel::check::size(match self {
            Self::Summarizer(settings) => settings.config.interaction_keep,
            Self::Neuralyzer(settings) => settings.config.interaction_keep,
        })
    }

    /// Returns the strategy's configuration.
    ///
    /// # Errors
    /// None for settings that were read from a document, because these are checked.
    pub fn config(&self) -> Result<LongTermMemory> {
        Ok(match self {
            Self::Summarizer(settings) => LongTermMemory::Summarizer(settings.config.clone()),
            Self::Neuralyzer(settings) => LongTermMemory::Neuralyzer(settings.config.clone()),
        })
    }
}

impl SummarizerSettings {
    /// Returns the number of passes that make the summary denser.
    #[must_use]
    pub fn cod_max_loops(&self) -> u64 {
        u64::from(self.config.cod_max_loops)
    }

    /// Returns the additional instructions for the model.
    #[must_use]
    pub fn instructions(&self) -> Option<&str> {
        self.config.instructions.as_deref()
    }

    /// Returns the vector collection that receives each summary.
    #[must_use]
    pub fn knowledge_base_collection(&self) -> Option<&str> {
        self.config.knowledge_base.as_ref().map(|base| base.collection_id.as_str())
    }
}

impl TryFrom<Map<String, Value>> for LongTermSettings {
    type Error = Error;

    fn try_from(written: Map<String, Value>) -> Result<Self> {
        Ok(match LongTermMemory::try_from(written.clone())? {
            LongTermMemory::Summarizer(config) => Self::Summarizer(SummarizerSettings { written, config }),
            LongTermMemory::Neuralyzer(config) => Self::Neuralyzer(NeuralyzerSettings { written, config }),
        })
    }
}

impl From<LongTermSettings> for Map<String, Value> {
    fn from(settings: LongTermSettings) -> Self {
        match settings {
            LongTermSettings::Summarizer(SummarizerSettings { written, .. })
            | LongTermSettings::Neuralyzer(NeuralyzerSettings { written, .. }) => written,
        }
    }
}
