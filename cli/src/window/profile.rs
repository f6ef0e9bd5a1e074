//! The configuration documents of a window.

use std::path::Path;

use larder::compaction::{PipelineConfig, StrategyConfig};
use larder::session::{AgentMemory, LongTermSettings, MemoryConfig, MemoryDocument, SessionProfile};
use larder_kernel::Error;

use crate::thread::printable;

/// A document, with the name of its file.
pub(super) enum Profile {
    /// The profile of a session, which has the field `type`.
    Session { name: String, profile: SessionProfile },
    /// The memory settings of an agent.
    Memory { name: String, config: MemoryConfig, document: String },
    /// Strategies, in the field `pipeline`.
    Pipeline { name: String, config: PipelineConfig },
    /// The memory of agents that share sessions.
    Agent { name: String, memory: AgentMemory },
}

impl Profile {
    /// Reads a file. The names of the fields determine the kind of document.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        let name = printable(&path.display().to_string());
        let json = std::fs::read_to_string(path).map_err(|error| format!("cannot read {name}: {error}"))?;
        let wrong = |error: Error| format!("{name}: {}", printable(error.message()));
        Ok(match MemoryDocument::parse(&json).map_err(wrong)? {
            MemoryDocument::Session(profile) => Self::Session { name, profile },
            MemoryDocument::Memory(config) => Self::Memory { name, config, document: json },
            MemoryDocument::Pipeline(config) => Self::Pipeline { name, config },
            MemoryDocument::Agent(memory) => Self::Agent { name, memory },
            _ => return Err(format!("{name}: a window cannot be shown with this document")),
        })
    }

    /// Returns the file's name.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Session { name, .. }
            | Self::Memory { name, .. }
            | Self::Pipeline { name, .. }
            | Self::Agent { name, .. } => name,
        }
    }

    /// Returns the collection that a strategy of the document searches.
    pub(super) fn knowledge_base(&self) -> Option<&str> {
        let Self::Memory { config, .. } = self else { return None };
        config.long_term().iter().find_map(|settings| match settings {
            LongTermSettings::Summarizer(settings) => settings.knowledge_base_collection(),
            _ => None,
        })
    }

    /// Refuses a token budget that the system prompt alone exceeds.
    pub(super) fn check_room(&self, prompt_tokens: u64) -> Result<(), String> {
        let (name, budgets) = match self {
            // A session checks its budget itself, including its hints. The memory of agents has none.
            Self::Session { .. } | Self::Agent { .. } => return Ok(()),
            Self::Memory { name, config, .. } => {
                // 0 means that nothing is included, which is not a budget.
                let tokens = config
                    .short_term()
                    .iter()
                    .map(|settings| settings.max_tokens())
                    .filter(|tokens| *tokens > 0);
                (name, tokens.map(|tokens| ("memory_max_tokens", tokens)).collect())
            }
            Self::Pipeline { name, config } => {
                let mut budgets = Vec::new();
                budgets_of(&config.pipeline, &mut budgets);
                (name, budgets)
            }
        };
        match budgets.into_iter().find(|(_, budget)| prompt_tokens > *budget) {
            Some((field, budget)) => {
                let error = Error::invalid(
                    "window",
                    field,
                    "the system prompt does not fit into it; raise it or shorten the prompt",
                );
                Err(format!("{name}: {}", error.with_limit(prompt_tokens, budget)))
            }
            None => Ok(()),
        }
    }
}

fn budgets_of(strategies: &[StrategyConfig], budgets: &mut Vec<(&'static str, u64)>) {
    for strategy in strategies {
        if let StrategyConfig::TokenBudgetComposed(config) = strategy {
            budgets.extend(config.token_budget.map(|tokens| ("token_budget", tokens)));
            budgets_of(&config.strategies, budgets);
        }
    }
}
