//! The strategies that choose what the model sees, as a document names them.

use larder_kernel::{Error, Result};
use serde::{Deserialize, Serialize};

use super::OPERATION;
use super::checks::{OFF, check_names, check_number};
use crate::compaction::{MaxTokensConfig, ShortTermMemory};

/// What `max_tokens` includes when nothing else is said.
const MAX_TOKENS_DEFAULT: u64 = 10_000;

/// A strategy that chooses what the model sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenShort", into = "WrittenShort")]
#[non_exhaustive]
pub enum ShortTermSettings {
    /// `max_tokens`: the newest interactions that fit.
    MaxTokens(MaxTokensSettings),
}

impl ShortTermSettings {
    /// Most tokens to include; 0 for nothing.
    #[must_use]
    pub fn max_tokens(&self) -> u64 {
        let Self::MaxTokens(settings) = self;
        settings.max_tokens()
    }

    /// The strategy's configuration.
    #[must_use]
    pub fn config(&self) -> ShortTermMemory {
        let Self::MaxTokens(settings) = self;
        ShortTermMemory::MaxTokens(settings.config())
    }
}

/// The settings of `max_tokens`, as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MaxTokensSettings {
    memory_max_tokens: Option<i64>,
    conditions: Option<Vec<String>>,
}

impl MaxTokensSettings {
    /// Most tokens to include: 10,000 when nothing is said, and 0, which is nothing, for `-1`.
    #[must_use]
    pub fn max_tokens(&self) -> u64 {
        self.memory_max_tokens.map_or(MAX_TOKENS_DEFAULT, |tokens| u64::try_from(tokens).unwrap_or(0))
    }

    /// The conditions that an interaction must meet to be included.
    #[must_use]
    pub fn conditions(&self) -> &[String] {
        self.conditions.as_deref().unwrap_or_default()
    }

    /// The strategy's configuration.
    #[must_use]
    pub fn config(&self) -> MaxTokensConfig {
        let default = MaxTokensConfig::default();
        MaxTokensConfig {
            memory_max_tokens: self.memory_max_tokens.unwrap_or(default.memory_max_tokens),
            conditions: self.conditions().to_vec(),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenShort {
    memory_strategy_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    memory_max_tokens: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    conditions: Option<Vec<String>>,
}

impl TryFrom<WrittenShort> for ShortTermSettings {
    type Error = Error;

    fn try_from(written: WrittenShort) -> Result<Self> {
        if written.memory_strategy_id != "max_tokens" {
            return Err(Error::invalid(OPERATION, "memory_strategy_id", "not `max_tokens`"));
        }
        check_number("memory_max_tokens", written.memory_max_tokens, OFF)?;
        check_names("conditions", written.conditions.as_deref())?;
        let WrittenShort { memory_max_tokens, conditions, .. } = written;
        let settings = MaxTokensSettings { memory_max_tokens, conditions };
        settings.config().check().map_err(|error| error.in_operation(OPERATION))?;
        Ok(Self::MaxTokens(settings))
    }
}

impl From<ShortTermSettings> for WrittenShort {
    fn from(ShortTermSettings::MaxTokens(settings): ShortTermSettings) -> Self {
        Self {
            memory_strategy_id: "max_tokens".to_owned(),
            memory_max_tokens: settings.memory_max_tokens,
            conditions: settings.conditions,
        }
    }
}
