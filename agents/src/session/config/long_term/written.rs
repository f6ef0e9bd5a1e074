//! Long-term strategies as a document writes them.

use larder_kernel::{Error, Result};
use serde::{Deserialize, Serialize};

use super::{LongTermSettings, NeuralyzerSettings, SummarizerSettings, Triggers};
use crate::compaction::LongTermMemory;
use crate::session::config::OPERATION;
use crate::session::config::checks::{OFF, check_names, check_number};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenKnowledgeBase {
    pub(super) collection_id: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) search_mode: Option<String>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WrittenLong {
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
