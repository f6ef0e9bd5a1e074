//! Long-term memory followed by short-term memory.

use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{
    CompactionStrategy, Error, Origin, Preparation, Prepared, Reach, Result, StrategyEffect, Window,
    WindowMessage,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::neuralyzer::NeuralyzerConfig;
use super::summarizer::SummarizerConfig;
use crate::written;

const OPERATION: &str = "long_term_memory.config";
const ID: &str = "long_term_memory_id";

/// A long-term strategy in an agent profile.
///
/// ```
/// use larder_agents::compaction::LongTermMemory;
///
/// let json =
///     r#"{"long_term_memory_id": "neuralyzer", "interaction_threshold_qty": 30, "interaction_keep": 5}"#;
/// let LongTermMemory::Neuralyzer(config) = serde_json::from_str(json).unwrap() else { unreachable!() };
/// assert_eq!((config.interaction_threshold_qty, config.interaction_threshold_tokens), (30, -1));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "long_term_memory_id", rename_all = "snake_case", try_from = "Map<String, Value>")]
#[non_exhaustive]
pub enum LongTermMemory {
    /// [`Summarizer`](super::Summarizer).
    Summarizer(SummarizerConfig),
    /// [`Neuralyzer`](super::Neuralyzer).
    Neuralyzer(NeuralyzerConfig),
}

impl TryFrom<Map<String, Value>> for LongTermMemory {
    type Error = Error;

    fn try_from(mut written: Map<String, Value>) -> Result<Self> {
        let name = written::take_name(OPERATION, ID, &mut written)?;
        match &*name {
            "summarizer" => {
                written::settings(OPERATION, ID, written, SummarizerConfig::check).map(Self::Summarizer)
            }
            "neuralyzer" => {
                written::settings(OPERATION, ID, written, NeuralyzerConfig::check).map(Self::Neuralyzer)
            }
            _ => Err(Error::invalid(
                OPERATION,
                ID,
                "is neither `summarizer` nor `neuralyzer`; use one of them",
            )),
        }
    }
}

/// Runs long-term strategies, then short-term strategies on the messages that remain.
///
/// The short-term strategies select among the remaining interactions. The summary of the other interactions
/// stays in front of them.
#[derive(Debug, Clone, Default)]
pub struct CombinedMemory {
    long_term: Vec<Arc<dyn CompactionStrategy>>,
    short_term: Vec<Arc<dyn CompactionStrategy>>,
}

impl CombinedMemory {
    /// Creates a memory from strategies that summarize or erase, and strategies that limit the model's input.
    /// Each list runs in its order.
    #[must_use]
    pub fn new(
        long_term: Vec<Arc<dyn CompactionStrategy>>,
        short_term: Vec<Arc<dyn CompactionStrategy>>,
    ) -> Self {
        Self { long_term, short_term }
    }
}

#[async_trait]
impl CompactionStrategy for CombinedMemory {
    /// Returns `combined`. With a single strategy, returns the name of that strategy, so that an explanation
    /// shows it.
    fn name(&self) -> &'static str {
        let mut all = self.long_term.iter().chain(&self.short_term);
        match (all.next(), all.next()) {
            (Some(only), None) => only.name(),
            _ => "combined",
        }
    }

    fn reach(&self) -> Reach {
        let all = self.long_term.iter().chain(&self.short_term);
        let first = all.map(|strategy| strategy.reach()).find(|reach| *reach != Reach::Each);
        // Without any strategy everything is included. Strategies that process each message independently
        // do not limit the caller's next strategy.
        match first {
            Some(reach) => reach,
            None if self.long_term.is_empty() && self.short_term.is_empty() => Reach::Everything,
            None => Reach::Each,
        }
    }

    fn drops(&self) -> bool {
        self.long_term.iter().chain(&self.short_term).any(|strategy| strategy.drops())
    }

    fn effect(&self) -> StrategyEffect {
        let all = self.long_term.iter().chain(&self.short_term);
        all.map(|strategy| strategy.effect()).max().unwrap_or_default()
    }

    async fn compact(&self, mut window: Window) -> Result<Window> {
        for strategy in &self.long_term {
            window = strategy.compact(window).await?;
        }
        let mut front = take_front(&mut window);
        for strategy in &self.short_term {
            window = strategy.compact(window).await?;
        }
        front.append(&mut window.messages);
        window.messages = front;
        Ok(window)
    }

    async fn prepare(&self, window: Window, preparation: &Preparation) -> Result<Prepared> {
        let mut prepared = Prepared::from(window);
        for strategy in &self.long_term {
            prepared = prepared.then(&**strategy, preparation).await?;
        }
        let mut front = take_front(&mut prepared.window);
        for strategy in &self.short_term {
            prepared = prepared.then(&**strategy, preparation).await?;
        }
        front.append(&mut prepared.window.messages);
        prepared.window.messages = front;
        Ok(prepared)
    }
}

/// Takes the summary and the instructions before it out of a window. Takes nothing if the window has no
/// summary.
fn take_front(window: &mut Window) -> Vec<WindowMessage> {
    let is_summary = |message: &WindowMessage| matches!(message.origin, Origin::Summary(_));
    let end = window.messages.iter().position(is_summary).map_or(0, |place| place + 1);
    let rest = window.messages.split_off(end);
    std::mem::replace(&mut window.messages, rest)
}
