//! The strategies that a document names.

use larder_kernel::{CollectionName, Error, Result, check};
use serde::{Deserialize, Serialize};

use super::OPERATION;
use crate::compaction::{
    KnowledgeBaseConfig, LongTermMemory, MaxTokensConfig, NeuralyzerConfig, SearchMode, ShortTermMemory,
    SummarizerConfig,
};

/// What `max_tokens` includes when nothing else is said.
const MAX_TOKENS_DEFAULT: u64 = 10_000;
/// What the summarizer does when nothing else is said.
const SUMMARIZER_INTERACTIONS_DEFAULT: i64 = 20;
const SUMMARIZER_TOKENS_DEFAULT: i64 = 20_000;
const COD_LOOPS_DEFAULT: u64 = 5;
/// Stands for "never", and for "nothing" where a strategy includes something.
const OFF: i64 = -1;

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

/// A strategy that shortens a conversation that has grown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "WrittenLong", into = "WrittenLong")]
#[non_exhaustive]
pub enum LongTermSettings {
    /// `summarizer`: older interactions become a summary.
    Summarizer(SummarizerSettings),
    /// `neuralyzer`: older interactions are erased.
    Neuralyzer(NeuralyzerSettings),
}

/// When a long-term strategy acts and what it leaves, as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Triggers {
    input_tokens_threshold: Option<i64>,
    interaction_threshold_qty: Option<i64>,
    interaction_threshold_tokens: Option<i64>,
    on_tools_success_threshold: Option<Vec<String>>,
    on_tools_error_threshold: Option<Vec<String>>,
    interaction_keep: Option<i64>,
}

/// The settings of the summarizer, as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SummarizerSettings {
    triggers: Triggers,
    cod_max_loops: Option<i64>,
    instructions: Option<String>,
    knowledge_base: Option<WrittenKnowledgeBase>,
}

/// The settings of the neuralyzer, as written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NeuralyzerSettings {
    triggers: Triggers,
}

/// The signed settings that both strategies share, with what they mean where they are left out.
struct Resolved {
    input_tokens: i64,
    interactions: i64,
    interaction_tokens: i64,
    tools_success: Vec<String>,
    tools_error: Vec<String>,
    keep: usize,
}

fn threshold(written: Option<i64>, default: i64) -> Option<u64> {
    u64::try_from(written.unwrap_or(default)).ok()
}

impl LongTermSettings {
    fn parts(&self) -> (&Triggers, i64, i64) {
        match self {
            Self::Summarizer(settings) => {
                (&settings.triggers, SUMMARIZER_INTERACTIONS_DEFAULT, SUMMARIZER_TOKENS_DEFAULT)
            }
            Self::Neuralyzer(settings) => (&settings.triggers, OFF, OFF),
        }
    }

    /// Acts past this many tokens of the model's input; `None` for never.
    #[must_use]
    pub fn input_tokens_threshold(&self) -> Option<u64> {
        threshold(self.parts().0.input_tokens_threshold, OFF)
    }

    /// Acts past this many interactions; `None` for never.
    #[must_use]
    pub fn interaction_threshold_qty(&self) -> Option<u64> {
        let (triggers, quantity, _) = self.parts();
        threshold(triggers.interaction_threshold_qty, quantity)
    }

    /// Acts past this many tokens of all interactions; `None` for never.
    #[must_use]
    pub fn interaction_threshold_tokens(&self) -> Option<u64> {
        let (triggers, _, tokens) = self.parts();
        threshold(triggers.interaction_threshold_tokens, tokens)
    }

    /// Acts when one of these tools succeeded.
    #[must_use]
    pub fn on_tools_success(&self) -> &[String] {
        self.parts().0.on_tools_success_threshold.as_deref().unwrap_or_default()
    }

    /// Acts when one of these tools failed.
    #[must_use]
    pub fn on_tools_error(&self) -> &[String] {
        self.parts().0.on_tools_error_threshold.as_deref().unwrap_or_default()
    }

    /// How many of the newest interactions stay as they are.
    #[must_use]
    pub fn interaction_keep(&self) -> u64 {
        threshold(self.parts().0.interaction_keep, 0).unwrap_or(0)
    }
}

impl LongTermSettings {
    fn resolved(&self) -> Resolved {
        let (triggers, quantity, tokens) = self.parts();
        Resolved {
            input_tokens: triggers.input_tokens_threshold.unwrap_or(OFF),
            interactions: triggers.interaction_threshold_qty.unwrap_or(quantity),
            interaction_tokens: triggers.interaction_threshold_tokens.unwrap_or(tokens),
            tools_success: self.on_tools_success().to_vec(),
            tools_error: self.on_tools_error().to_vec(),
            keep: usize::try_from(self.interaction_keep()).unwrap_or(usize::MAX),
        }
    }

    /// The strategy's configuration.
    ///
    /// # Errors
    /// None for settings that were read: they are checked.
    pub fn config(&self) -> Result<LongTermMemory> {
        let Resolved { input_tokens, interactions, interaction_tokens, tools_success, tools_error, keep } =
            self.resolved();
        Ok(match self {
            Self::Summarizer(settings) => LongTermMemory::Summarizer(SummarizerConfig {
                input_tokens_threshold: input_tokens,
                interaction_threshold_qty: interactions,
                interaction_threshold_tokens: interaction_tokens,
                on_tools_success_threshold: tools_success,
                on_tools_error_threshold: tools_error,
                interaction_keep: keep,
                cod_max_loops: u32::try_from(settings.cod_max_loops()).unwrap_or(u32::MAX),
                instructions: settings.instructions.clone(),
                knowledge_base: settings.knowledge_base_config()?,
            }),
            Self::Neuralyzer(_) => LongTermMemory::Neuralyzer(NeuralyzerConfig {
                input_tokens_threshold: input_tokens,
                interaction_threshold_qty: interactions,
                interaction_threshold_tokens: interaction_tokens,
                on_tools_success_threshold: tools_success,
                on_tools_error_threshold: tools_error,
                interaction_keep: keep,
            }),
        })
    }
}

impl SummarizerSettings {
    fn knowledge_base_config(&self) -> Result<Option<KnowledgeBaseConfig>> {
        let Some(base) = &self.knowledge_base else { return Ok(None) };
        if base.search_mode.as_deref().is_some_and(|mode| mode != "always") {
            return Err(Error::invalid(OPERATION, "knowledge_base.search_mode", "not `always`"));
        }
        let collection_id = CollectionName::new(&base.collection_id)
            .map_err(|error| error.in_operation(OPERATION).with_field("knowledge_base.collection_id"))?;
        Ok(Some(KnowledgeBaseConfig { collection_id, search_mode: SearchMode::Always }))
    }

    /// Passes that make the summary denser.
    #[must_use]
    pub fn cod_max_loops(&self) -> u64 {
        self.cod_max_loops.and_then(|loops| u64::try_from(loops).ok()).unwrap_or(COD_LOOPS_DEFAULT)
    }

    /// What the model is told besides.
    #[must_use]
    pub fn instructions(&self) -> Option<&str> {
        self.instructions.as_deref()
    }

    /// The vector collection that takes each summary.
    #[must_use]
    pub fn knowledge_base_collection(&self) -> Option<&str> {
        self.knowledge_base.as_ref().map(|base| base.collection_id.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenKnowledgeBase {
    collection_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    search_mode: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenLong {
    long_term_memory_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    input_tokens_threshold: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interaction_threshold_qty: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interaction_threshold_tokens: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_tools_success_threshold: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_tools_error_threshold: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    interaction_keep: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cod_max_loops: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instructions: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    knowledge_base: Option<WrittenKnowledgeBase>,
}

impl TryFrom<WrittenLong> for LongTermSettings {
    type Error = Error;

    fn try_from(written: WrittenLong) -> Result<Self> {
        let triggers = Triggers {
            input_tokens_threshold: written.input_tokens_threshold,
            interaction_threshold_qty: written.interaction_threshold_qty,
            interaction_threshold_tokens: written.interaction_threshold_tokens,
            on_tools_success_threshold: written.on_tools_success_threshold,
            on_tools_error_threshold: written.on_tools_error_threshold,
            interaction_keep: written.interaction_keep,
        };
        let (cod_max_loops, instructions, knowledge_base) =
            (written.cod_max_loops, written.instructions, written.knowledge_base);
        let memory = match written.long_term_memory_id.as_str() {
            "summarizer" => {
                Self::Summarizer(SummarizerSettings { triggers, cod_max_loops, instructions, knowledge_base })
            }
            "neuralyzer" => {
                let foreign = [
                    ("cod_max_loops", cod_max_loops.is_some()),
                    ("instructions", instructions.is_some()),
                    ("knowledge_base", knowledge_base.is_some()),
                ];
                if let Some((field, _)) = foreign.into_iter().find(|(_, given)| *given) {
                    return Err(Error::invalid(OPERATION, field, "has no meaning for `neuralyzer`"));
                }
                Self::Neuralyzer(NeuralyzerSettings { triggers })
            }
            _ => {
                let message = "neither `summarizer` nor `neuralyzer`";
                return Err(Error::invalid(OPERATION, "long_term_memory_id", message));
            }
        };
        memory.check()?;
        Ok(memory)
    }
}

impl From<LongTermSettings> for WrittenLong {
    fn from(memory: LongTermSettings) -> Self {
        let (id, triggers, rest) = match memory {
            LongTermSettings::Summarizer(SummarizerSettings {
                triggers,
                cod_max_loops,
                instructions,
                knowledge_base,
            }) => {
                let rest = Self { cod_max_loops, instructions, knowledge_base, ..Self::default() };
                ("summarizer", triggers, rest)
            }
            LongTermSettings::Neuralyzer(NeuralyzerSettings { triggers }) => {
                ("neuralyzer", triggers, Self::default())
            }
        };
        Self {
            long_term_memory_id: id.to_owned(),
            input_tokens_threshold: triggers.input_tokens_threshold,
            interaction_threshold_qty: triggers.interaction_threshold_qty,
            interaction_threshold_tokens: triggers.interaction_threshold_tokens,
            on_tools_success_threshold: triggers.on_tools_success_threshold,
            on_tools_error_threshold: triggers.on_tools_error_threshold,
            interaction_keep: triggers.interaction_keep,
            ..rest
        }
    }
}

impl LongTermSettings {
    fn check(&self) -> Result<()> {
        let (triggers, ..) = self.parts();
        check_number("input_tokens_threshold", triggers.input_tokens_threshold, OFF)?;
        check_number("interaction_threshold_qty", triggers.interaction_threshold_qty, OFF)?;
        check_number("interaction_threshold_tokens", triggers.interaction_threshold_tokens, OFF)?;
        check_number("interaction_keep", triggers.interaction_keep, 0)?;
        check_names("on_tools_success_threshold", triggers.on_tools_success_threshold.as_deref())?;
        check_names("on_tools_error_threshold", triggers.on_tools_error_threshold.as_deref())?;
        if let Some(quantity) = self.interaction_threshold_qty()
            && self.interaction_keep() > quantity
        {
            return Err(Error::invalid(
                OPERATION,
                "interaction_keep",
                "over interaction_threshold_qty: there would be nothing to take",
            )
            .with_limit(self.interaction_keep(), quantity));
        }
        if let Self::Summarizer(settings) = self {
            check_number("cod_max_loops", settings.cod_max_loops, 1)?;
        }
        let checked = match self.config()? {
            LongTermMemory::Summarizer(config) => config.check(),
            LongTermMemory::Neuralyzer(config) => config.check(),
        };
        checked.map_err(|error| error.in_operation(OPERATION))
    }
}

fn check_number(field: &'static str, written: Option<i64>, least: i64) -> Result<()> {
    match written {
        Some(number) if number < least => {
            let message = if least == OFF { "neither -1 nor a size" } else { "under the limit" };
            Err(Error::invalid(OPERATION, field, message)
                .with_context("actual", number)
                .with_context("least", least))
        }
        _ => Ok(()),
    }
}

fn check_names(field: &'static str, names: Option<&[String]>) -> Result<()> {
    names.unwrap_or_default().iter().try_for_each(|name| check::at_least(OPERATION, field, name.len(), 1))
}
