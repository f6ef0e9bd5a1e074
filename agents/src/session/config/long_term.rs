//! The strategies that shorten a conversation that has grown, as a document names them.

use larder_kernel::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::compaction::{LongTermMemory, NeuralyzerConfig, SummarizerConfig};

/// A strategy that shortens a conversation that has grown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
#[non_exhaustive]
pub enum LongTermSettings {
    /// `summarizer`: older interactions become a summary.
    Summarizer(SummarizerSettings),
    /// `neuralyzer`: older interactions are erased.
    Neuralyzer(NeuralyzerSettings),
}

/// The settings of the summarizer, as written and as they are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SummarizerSettings {
    written: Map<String, Value>,
    config: SummarizerConfig,
}

/// The settings of the neuralyzer, as written and as they are meant.
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

    /// Acts past this many tokens of the model's input; `None` for never.
    #[must_use]
    pub fn input_tokens_threshold(&self) -> Option<u64> {
        u64::try_from(self.thresholds()[0]).ok()
    }

    /// Acts past this many interactions; `None` for never.
    #[must_use]
    pub fn interaction_threshold_qty(&self) -> Option<u64> {
        u64::try_from(self.thresholds()[1]).ok()
    }

    /// Acts past this many tokens of all interactions; `None` for never.
    #[must_use]
    pub fn interaction_threshold_tokens(&self) -> Option<u64> {
        u64::try_from(self.thresholds()[2]).ok()
    }

    /// Acts when one of these tools succeeded.
    #[must_use]
    pub fn on_tools_success(&self) -> &[String] {
        match self {
            Self::Summarizer(settings) => &settings.config.on_tools_success_threshold,
            Self::Neuralyzer(settings) => &settings.config.on_tools_success_threshold,
        }
    }

    /// Acts when one of these tools failed.
    #[must_use]
    pub fn on_tools_error(&self) -> &[String] {
        match self {
            Self::Summarizer(settings) => &settings.config.on_tools_error_threshold,
            Self::Neuralyzer(settings) => &settings.config.on_tools_error_threshold,
        }
    }

    /// How many of the newest interactions stay as they are.
    #[must_use]
    pub fn interaction_keep(&self) -> u64 {
        larder_kernel::check::size(match self {
            Self::Summarizer(settings) => settings.config.interaction_keep,
            Self::Neuralyzer(settings) => settings.config.interaction_keep,
        })
    }

    /// The strategy's configuration.
    ///
    /// # Errors
    /// None for settings that were read: they are checked.
    pub fn config(&self) -> Result<LongTermMemory> {
        Ok(match self {
            Self::Summarizer(settings) => LongTermMemory::Summarizer(settings.config.clone()),
            Self::Neuralyzer(settings) => LongTermMemory::Neuralyzer(settings.config.clone()),
        })
    }
}

impl SummarizerSettings {
    /// Passes that make the summary denser.
    #[must_use]
    pub fn cod_max_loops(&self) -> u64 {
        u64::from(self.config.cod_max_loops)
    }

    /// What the model is told besides.
    #[must_use]
    pub fn instructions(&self) -> Option<&str> {
        self.config.instructions.as_deref()
    }

    /// The vector collection that takes each summary.
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
