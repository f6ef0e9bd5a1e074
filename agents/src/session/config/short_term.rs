//! The JSON form of the strategies that select the messages for the model.

use larder_kernel::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::compaction::{MaxTokensConfig, ShortTermMemory};

/// A strategy that selects the messages for the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Map<String, Value>", into = "Map<String, Value>")]
#[non_exhaustive]
pub enum ShortTermSettings {
    /// `max_tokens`: keeps the newest interactions that fit.
    MaxTokens(MaxTokensSettings),
}

impl ShortTermSettings {
    /// Returns the largest number of tokens to include; 0 includes nothing.
    #[must_use]
    pub fn max_tokens(&self) -> u64 {
        let Self::MaxTokens(settings) = self;
        settings.max_tokens()
    }

    /// Returns the strategy's configuration.
    #[must_use]
    pub fn config(&self) -> ShortTermMemory {
        let Self::MaxTokens(settings) = self;
        ShortTermMemory::MaxTokens(settings.config())
    }
}

/// The settings of `max_tokens`, as written and as interpreted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MaxTokensSettings {
    written: Map<String, Value>,
    config: MaxTokensConfig,
}

impl MaxTokensSettings {
    /// Returns the largest number of tokens to include: 10,000 by default, and 0 (nothing) for `-1`.
    #[must_use]
    pub fn max_tokens(&self) -> u64 {
        u64::try_from(self.config.memory_max_tokens).unwrap_or(0)
    }

    /// Returns the conditions that an interaction must satisfy to be included.
    #[must_use]
    pub fn conditions(&self) -> &[String] {
        &self.config.conditions
    }

    /// Returns the strategy's configuration.
    #[must_use]
    pub fn config(&self) -> MaxTokensConfig {
        self.config.clone()
    }
}

impl TryFrom<Map<String, Value>> for ShortTermSettings {
    type Error = Error;

    fn try_from(written: Map<String, Value>) -> Result<Self> {
        let ShortTermMemory::MaxTokens(config) = ShortTermMemory::try_from(written.clone())?;
        Ok(Self::MaxTokens(MaxTokensSettings { written, config }))
    }
}

impl From<ShortTermSettings> for Map<String, Value> {
    fn from(ShortTermSettings::MaxTokens(settings): ShortTermSettings) -> Self {
        settings.written
    }
}
