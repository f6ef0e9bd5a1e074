//! The strategies that shorten a conversation that has grown, and what their settings mean.

mod written;

use larder_kernel::{CollectionName, Error, Result};
use serde::{Deserialize, Serialize};

use self::written::{WrittenKnowledgeBase, WrittenLong};
use super::OPERATION;
use super::checks::OFF;
use crate::compaction::{
    KnowledgeBaseConfig, LongTermMemory, NeuralyzerConfig, SearchMode, SummarizerConfig,
};

/// What the summarizer does when nothing else is said.
const SUMMARIZER_INTERACTIONS_DEFAULT: i64 = 20;
const SUMMARIZER_TOKENS_DEFAULT: i64 = 20_000;
const COD_LOOPS_DEFAULT: u64 = 5;

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
