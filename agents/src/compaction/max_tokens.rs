//! Short-term memory: whole interactions within a token budget.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{CompactionStrategy, Error, Reach, Result, Window, WindowMessage};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::condition::InteractionCondition;
use super::groups::{keep_newest, newest_interaction, select, summary_head, summary_stays};
use crate::tokens::{TokenCounter, tokens_of};
use crate::written::{self, whole};

const OPERATION: &str = "max_tokens.config";
const ID: &str = "memory_strategy_id";
const MEMORY_MAX_TOKENS: i64 = 10_000;

/// A short-term strategy in an agent profile.
///
/// ```
/// use larder_agents::compaction::ShortTermMemory;
///
/// let json = r#"{"memory_strategy_id": "max_tokens", "memory_max_tokens": 8000}"#;
/// let ShortTermMemory::MaxTokens(config) = serde_json::from_str(json).unwrap() else { unreachable!() };
/// assert_eq!(config.memory_max_tokens, 8000);
/// assert!(config.conditions.is_empty());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "memory_strategy_id", rename_all = "snake_case", try_from = "Map<String, Value>")]
#[non_exhaustive]
pub enum ShortTermMemory {
    /// [`MaxTokens`].
    MaxTokens(MaxTokensConfig),
}

impl TryFrom<Map<String, Value>> for ShortTermMemory {
    type Error = Error;

    fn try_from(mut written: Map<String, Value>) -> Result<Self> {
        let name = written::take_name(OPERATION, ID, &mut written)?;
        match &*name {
            "max_tokens" => {
                written::settings(OPERATION, ID, written, MaxTokensConfig::check).map(Self::MaxTokens)
            }
            _ => Err(Error::invalid(OPERATION, ID, "is not `max_tokens`; use `max_tokens`")),
        }
    }
}

/// The settings of [`MaxTokens`] in an agent profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MaxTokensConfig {
    /// The largest number of tokens to include; -1 includes nothing.
    #[serde(deserialize_with = "whole")]
    pub memory_max_tokens: i64,
    /// The conditions that an interaction must satisfy, each in the syntax of [`InteractionCondition`]. All
    /// of them must hold.
    pub conditions: Vec<String>,
}

impl Default for MaxTokensConfig {
    fn default() -> Self {
        Self { memory_max_tokens: MEMORY_MAX_TOKENS, conditions: Vec::new() }
    }
}

impl MaxTokensConfig {
    /// Checks all settings.
    ///
    /// # Errors
    /// `InvalidInput` with the setting.
    pub fn check(&self) -> Result<()> {
        self.budget()?;
        self.parsed_conditions().map(|_| ())
    }

    fn budget(&self) -> Result<Option<u64>> {
        match self.memory_max_tokens {
            -1 => Ok(None),
            tokens => u64::try_from(tokens).map(Some).map_err(|_| {
                Error::invalid(OPERATION, "memory_max_tokens", "is below -1; use -1 to include nothing")
            }),
        }
    }

    fn parsed_conditions(&self) -> Result<Vec<InteractionCondition>> {
        self.conditions.iter().map(|condition| condition.parse()).collect()
    }
}

/// Keeps the newest interactions, each whole, within a token budget. The default is 10,000 tokens.
///
/// An interaction is one human turn and all replies to it. Selection runs from the newest interaction
/// backwards and ends at the first one that does not fit. If the newest one does not fit, no part of the
/// conversation is included.
///
/// With conditions, interactions that do not satisfy all of them are left out and do not use the budget. A
/// summary at the front of the window stays and counts against the budget, if the newest interaction fits
/// next to it.
///
/// ```
/// use std::sync::Arc;
/// use larder_agents::compaction::{MaxTokens, MaxTokensConfig};
/// use larder_agents::tokens::TokenCounter;
/// use larder_kernel::{ChatMessage, CompactionStrategy, Window};
///
/// #[derive(Debug)]
/// struct Words;
/// impl TokenCounter for Words {
///     fn name(&self) -> &str {
///         "words"
///     }
///     fn count(&self, text: &str) -> u64 {
///         text.split_whitespace().count() as u64
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let config = MaxTokensConfig { memory_max_tokens: 4, ..MaxTokensConfig::default() };
/// let strategy = MaxTokens::new(&config, Arc::new(Words))?;
/// let window = Window::injected([
///     ChatMessage::user("first question"),
///     ChatMessage::assistant("first answer"),
///     ChatMessage::user("second question"),
///     ChatMessage::assistant("answer"),
/// ]);
/// let window = strategy.compact(window).await?;
/// assert_eq!(window.messages[0].message.text, "second question");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct MaxTokens {
    /// `None` includes nothing.
    budget: Option<u64>,
    conditions: Vec<InteractionCondition>,
    counter: Arc<dyn TokenCounter>,
}

impl MaxTokens {
    /// Creates the strategy from its settings.
    ///
    /// # Errors
    /// `InvalidInput` with the setting.
    pub fn new(config: &MaxTokensConfig, counter: Arc<dyn TokenCounter>) -> Result<Self> {
        Ok(Self { budget: config.budget()?, conditions: config.parsed_conditions()?, counter })
    }

    fn tokens(&self, messages: &[WindowMessage]) -> u64 {
        let tokens = messages.iter().map(|message| tokens_of(&*self.counter, &message.message));
        tokens.fold(0, u64::saturating_add)
    }

    fn counts(&self, interaction: &[WindowMessage]) -> bool {
        self.conditions.iter().all(|condition| condition.holds(interaction))
    }

    /// Returns the included interactions, newest first, and `true` if the summary is included.
    fn included(&self, messages: &[WindowMessage], budget: u64) -> (Vec<Range<usize>>, bool) {
        let head = summary_head(messages);
        let summary = self.tokens(&messages[..head]);
        let mut summary_is_in = head > 0 && summary_stays(summary, None, budget);
        let mut left = budget;
        let mut included: Vec<Range<usize>> = Vec::new();
        let mut end = messages.len();
        while end > head {
            let newest = newest_interaction(&messages[head..end]);
            let interaction = head + newest.start..end;
            end = interaction.start;
            if !self.counts(&messages[interaction.clone()]) {
                continue;
            }
            let tokens = self.tokens(&messages[interaction.clone()]);
            if head > 0 && included.is_empty() {
                summary_is_in = summary_stays(summary, Some(tokens), budget);
                left = if summary_is_in { budget - summary } else { budget };
            }
            match left.checked_sub(tokens) {
                Some(rest) => left = rest,
                None => break,
            }
            included.push(interaction);
        }
        (included, summary_is_in)
    }
}

#[async_trait]
impl CompactionStrategy for MaxTokens {
    fn name(&self) -> &'static str {
        "max_tokens"
    }

    fn reach(&self) -> Reach {
        match self.budget {
            None => Reach::Messages(0),
            Some(budget) if self.conditions.is_empty() => Reach::Tokens(budget),
            // Interactions that do not count use no budget, so the number of tokens does not bound the
            // lookback.
            Some(_) => Reach::Everything,
        }
    }

    fn drops(&self) -> bool {
        true
    }

    async fn compact(&self, mut window: Window) -> Result<Window> {
        let Some(budget) = self.budget else {
            window.messages.clear();
            return Ok(window);
        };
        let (included, with_summary) = self.included(&window.messages, budget);
        if self.conditions.is_empty() {
            let start = included.last().map_or(window.messages.len(), |oldest| oldest.start);
            window.messages = keep_newest(window.messages, start, with_summary);
            return Ok(window);
        }
        let mut stays = vec![false; window.messages.len()];
        if let Some(summary) = stays.first_mut() {
            *summary = with_summary;
        }
        for interaction in included {
            stays[interaction].fill(true);
        }
        window.messages = select(window.messages, |place| stays[place], |_| true);
        Ok(window)
    }
}

#[cfg(test)]
mod tests {
    use larder_kernel::{ChatMessage, Metadata, Seq, ToolCall, ToolResult};

    use super::*;
    use crate::compaction::properties::Chars;

    fn strategy(memory_max_tokens: i64, conditions: &[&str]) -> MaxTokens {
        let conditions = conditions.iter().map(|condition| (*condition).to_owned()).collect();
        MaxTokens::new(&MaxTokensConfig { memory_max_tokens, conditions }, Arc::new(Chars)).unwrap()
    }

    async fn texts(strategy: MaxTokens, window: &Window) -> Vec<String> {
        let messages = strategy.compact(window.clone()).await.unwrap().into_messages();
        messages.iter().map(|message| message.text.clone()).collect()
    }

    fn conversation() -> Window {
        let topic = |text: &str, topic: &str| {
            ChatMessage::user(text).with_metadata(Metadata::new().with("topic", topic))
        };
        Window::injected([
            ChatMessage::assistant("hi"),
            topic("q1", "billing"),
            ChatMessage::assistant("").with_tool_call(ToolCall::new("1", "t", "{}")),
            ChatMessage::tool([ToolResult::new("1", "r")]),
            ChatMessage::assistant("a1"),
            topic("q2", "other"),
            ChatMessage::assistant("a2"),
            topic("q3", "billing"),
        ])
    }

    /// Proves: ALQ-2
    #[tokio::test]
    async fn whole_interactions_are_kept_until_the_budget_is_spent() {
        let window = conversation();
        assert!(texts(strategy(1, &[]), &window).await.is_empty());
        assert_eq!(texts(strategy(5, &[]), &window).await, ["q3"]);
        assert_eq!(texts(strategy(6, &[]), &window).await, ["q2", "a2", "q3"]);
        assert_eq!(texts(strategy(13, &[]), &window).await, ["q2", "a2", "q3"]);
        assert_eq!(texts(strategy(14, &[]), &window).await.len(), 7);
        assert_eq!(texts(strategy(16, &[]), &window).await.len(), 8);
    }

    /// Proves: ALQ-2
    #[tokio::test]
    async fn minus_one_includes_nothing_and_reads_nothing() {
        assert!(texts(strategy(-1, &[]), &conversation()).await.is_empty());
        assert_eq!(strategy(-1, &[]).reach(), Reach::Messages(0));
        assert_eq!(strategy(10, &[]).reach(), Reach::Tokens(10));
        assert_eq!(strategy(10, &["role == user"]).reach(), Reach::Everything);
    }

    /// Proves: ALQ-2
    #[tokio::test]
    async fn conditions_say_which_interactions_count() {
        let window = conversation();
        let billing = || strategy(10, &["metadata.topic == billing"]);
        assert_eq!(texts(billing(), &window).await, ["q1", "", "", "a1", "q3"]);
        let both = strategy(100, &["metadata.topic == billing", "tool lacks t"]);
        assert_eq!(texts(both, &window).await, ["q3"]);
    }

    /// Proves: ALQ-2, ALQ-6
    #[tokio::test]
    async fn a_summary_is_part_of_the_budget() {
        let mut window = conversation();
        window.messages.insert(0, WindowMessage::summary(Seq::new(7), ChatMessage::system("sum")));
        assert_eq!(texts(strategy(5, &[]), &window).await, ["sum", "q3"]);
        assert_eq!(texts(strategy(4, &[]), &window).await, ["q3"]);
        assert_eq!(texts(strategy(9, &[]), &window).await, ["sum", "q2", "a2", "q3"]);
        assert_eq!(texts(strategy(9, &["text == nobody"]), &window).await, ["sum"]);
    }

    /// Proves: ALQ-2, ALQ-8
    #[test]
    fn settings_are_checked_by_name() {
        let config: MaxTokensConfig = serde_json::from_str("{}").unwrap();
        assert_eq!((config.memory_max_tokens, config.conditions.len()), (10_000, 0));
        let refused = |config: &MaxTokensConfig| config.check().unwrap_err().field();
        assert_eq!(
            refused(&MaxTokensConfig { memory_max_tokens: -2, ..config.clone() }),
            Some("memory_max_tokens")
        );
        assert_eq!(refused(&MaxTokensConfig { conditions: vec!["x".into()], ..config }), Some("conditions"));
        let json = r#"{"memory_strategy_id":"max_tokens","memory_max_tokens":8000,"conditions":[]}"#;
        let document: ShortTermMemory = serde_json::from_str(json).unwrap();
        assert_eq!(serde_json::to_string(&document).unwrap(), json);
        assert!(
            serde_json::from_str::<ShortTermMemory>(r#"{"memory_strategy_id":"max_tokens","max":1}"#)
                .is_err()
        );
        assert!(serde_json::from_str::<ShortTermMemory>(r#"{"memory_strategy_id":"min_tokens"}"#).is_err());
    }
}
