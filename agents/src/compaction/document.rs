//! Pipelines as JSON documents.

use std::sync::Arc;

use larder_kernel::{CompactionStrategy, Error, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{
    Pipeline, SelectiveToolCall, SelectiveToolCallConfig, SlidingWindow, SlidingWindowConfig, Summarization,
    SummarizationConfig, SummaryMaker, TokenBudgetComposed, ToolResultTruncation, ToolResultTruncationConfig,
    Truncation, TruncationConfig,
};
use crate::tokens::TokenCounter;
use crate::written::{self, whole};

const OPERATION: &str = "pipeline.config";

/// The JSON form of a pipeline: the strategies in order, each with its settings next to its `type`.
///
/// ```
/// use std::sync::Arc;
/// use larder_agents::compaction::PipelineConfig;
/// use larder_agents::session::parse_config;
/// use larder_agents::tokens::{EstimatedTokenCounter, TokenCounter};
/// use larder_kernel::Error;
///
/// let config: PipelineConfig = parse_config(
///     r#"{"pipeline": [
///         {"type": "tool_result_truncation"},
///         {"type": "sliding_window", "max_messages": 40}
///     ]}"#,
/// )?;
/// let counter: Arc<dyn TokenCounter> = Arc::new(EstimatedTokenCounter);
/// let no_model = || Err(Error::invalid("example", "pipeline", "no model to summarize with"));
/// assert_eq!(config.build(&counter, &no_model)?.strategies().len(), 2);
///
/// let wrong = r#"{"pipeline": [{"type": "sliding_window", "max_messages": 0}]}"#;
/// let error = parse_config::<PipelineConfig>(wrong).unwrap_err();
/// assert!(error.message().starts_with("pipeline[0]: ") && error.message().contains("`max_messages`"));
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PipelineConfig {
    /// The strategies, in order.
    pub pipeline: Vec<StrategyConfig>,
}

/// The JSON form of a strategy.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "Map<String, Value>")]
#[non_exhaustive]
pub enum StrategyConfig {
    /// `sliding_window`.
    SlidingWindow(SlidingWindowConfig),
    /// `tool_result_truncation`.
    ToolResultTruncation(ToolResultTruncationConfig),
    /// `selective_tool_call`.
    SelectiveToolCall(SelectiveToolCallConfig),
    /// `summarization`.
    Summarization(SummarizationConfig),
    /// `truncation`.
    Truncation(TruncationConfig),
    /// `token_budget_composed`.
    TokenBudgetComposed(TokenBudgetComposedConfig),
}

/// The settings of [`TokenBudgetComposed`]: a budget, or a model whose input size determines the budget.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokenBudgetComposedConfig {
    /// The token budget. A window within it stays unchanged.
    #[serde(deserialize_with = "whole")]
    pub token_budget: Option<u64>,
    /// The model whose input size determines the budget.
    pub model: Option<String>,
    /// The part of the model's input size to use; 0.80 by default.
    pub trigger_ratio: Option<f64>,
    /// The strategies to run until the window fits.
    pub strategies: Vec<StrategyConfig>,
}

impl TokenBudgetComposedConfig {
    /// Checks all settings.
    ///
    /// # Errors
    /// `InvalidInput` with the setting.
    pub fn check(&self) -> Result<()> {
        let invalid = |field, message: &'static str| Err(Error::invalid(OPERATION, field, message));
        match (self.token_budget, &self.model) {
            (None, None) => invalid("token_budget", "is missing; set it or `model`"),
            (Some(_), Some(_)) => {
                invalid("model", "has no effect next to `token_budget`; remove one of them")
            }
            (Some(_), None) if self.trigger_ratio.is_some() => {
                invalid("trigger_ratio", "is a part of a `model` that is not set; set `model` or remove this")
            }
            (Some(0), None) => Err(Error::under_limit(OPERATION, "token_budget", 0, 1)),
            _ => Ok(()),
        }
    }
}

impl PipelineConfig {
    /// Builds the pipeline. Calls `maker` for the summary maker of each strategy that summarizes.
    ///
    /// # Errors
    /// `InvalidInput` with the invalid setting, and the errors of `maker`.
    pub fn build(
        &self,
        counter: &Arc<dyn TokenCounter>,
        maker: &dyn Fn() -> Result<SummaryMaker>,
    ) -> Result<Pipeline> {
        build(&self.pipeline, counter, maker)
    }
}

fn build(
    strategies: &[StrategyConfig],
    counter: &Arc<dyn TokenCounter>,
    maker: &dyn Fn() -> Result<SummaryMaker>,
) -> Result<Pipeline> {
    let built = strategies.iter().map(|strategy| -> Result<Arc<dyn CompactionStrategy>> {
        Ok(match strategy {
            StrategyConfig::SlidingWindow(config) => Arc::new(SlidingWindow::try_from(config.clone())?),
            StrategyConfig::ToolResultTruncation(config) => {
                Arc::new(ToolResultTruncation::try_from(config.clone())?)
            }
            StrategyConfig::SelectiveToolCall(config) => {
                Arc::new(SelectiveToolCall::try_from(config.clone())?)
            }
            StrategyConfig::Summarization(config) => Arc::new(Summarization::new(maker()?, config.clone())?),
            StrategyConfig::Truncation(config) => Arc::new(Truncation::try_from(config.clone())?),
            StrategyConfig::TokenBudgetComposed(config) => Arc::new(budget(config, counter, maker)?),
        })
    });
    built.collect()
}

fn budget(
    config: &TokenBudgetComposedConfig,
    counter: &Arc<dyn TokenCounter>,
    maker: &dyn Fn() -> Result<SummaryMaker>,
) -> Result<TokenBudgetComposed> {
    config.check()?;
    let steps = build(&config.strategies, counter, maker)?;
    match (config.token_budget, &config.model, config.trigger_ratio) {
        (Some(budget), ..) => TokenBudgetComposed::new(budget, counter.clone(), steps),
        (None, model, Some(ratio)) => {
            let model = model.as_deref().unwrap_or_default();
            TokenBudgetComposed::from_model_with_ratio(model, counter.clone(), steps, ratio)
        }
        (None, model, None) => {
            TokenBudgetComposed::from_model(model.as_deref().unwrap_or_default(), counter.clone(), steps)
        }
    }
}

impl TryFrom<Map<String, Value>> for StrategyConfig {
    type Error = Error;

    fn try_from(mut written: Map<String, Value>) -> Result<Self> {
        let kind = written::take_name(OPERATION, "type", &mut written)?;
        Ok(match &*kind {
            "sliding_window" => Self::SlidingWindow(settings(written, SlidingWindowConfig::check)?),
            "tool_result_truncation" => {
                Self::ToolResultTruncation(settings(written, ToolResultTruncationConfig::check)?)
            }
            "selective_tool_call" => {
                Self::SelectiveToolCall(settings(written, SelectiveToolCallConfig::check)?)
            }
            "summarization" => Self::Summarization(settings(written, SummarizationConfig::check)?),
            "truncation" => Self::Truncation(settings(written, TruncationConfig::check)?),
            "token_budget_composed" => {
                Self::TokenBudgetComposed(settings(written, TokenBudgetComposedConfig::check)?)
            }
            _ => {
                let message = "is unknown; use `sliding_window`, `tool_result_truncation`, \
                               `selective_tool_call`, `summarization`, `truncation` or \
                               `token_budget_composed`";
                return Err(Error::invalid(OPERATION, "type", message));
            }
        })
    }
}

fn settings<T: DeserializeOwned>(
    written: Map<String, Value>,
    check: impl FnOnce(&T) -> Result<()>,
) -> Result<T> {
    written::settings(OPERATION, "pipeline", written, check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::parse_config;
    use crate::tokens::EstimatedTokenCounter;

    fn no_maker() -> Result<SummaryMaker> {
        Err(Error::invalid("test", "pipeline", "no model"))
    }

    /// Proves: RAVI-5, RAVI-11
    #[test]
    fn every_strategy_has_a_written_form() {
        let config: PipelineConfig = parse_config(
            r#"{"pipeline": [
                {"type": "tool_result_truncation", "max_chars": 300},
                {"type": "selective_tool_call", "keep_recent_groups": 2},
                {"type": "token_budget_composed", "model": "gpt-4o", "trigger_ratio": 0.5, "strategies": [
                    {"type": "sliding_window"}, {"type": "truncation", "max_chars": 9000}
                ]},
                {"type": "token_budget_composed", "token_budget": 10}
            ]}"#,
        )
        .unwrap();
        let counter: Arc<dyn TokenCounter> = Arc::new(EstimatedTokenCounter);
        let pipeline = config.build(&counter, &no_maker).unwrap();
        let names: Vec<_> = pipeline.strategies().iter().map(|strategy| strategy.name()).collect();
        let budget = "token_budget_composed";
        assert_eq!(names, ["tool_result_truncation", "selective_tool_call", budget, budget]);
        let summarized: PipelineConfig =
            parse_config(r#"{"pipeline": [{"type": "summarization"}]}"#).unwrap();
        assert_eq!(summarized.build(&counter, &no_maker).unwrap_err().field(), Some("pipeline"));
    }

    #[test]
    fn a_wrong_setting_is_refused_by_the_path_of_its_field() {
        for (strategy, field) in [
            (r#"{"type": "psychic"}"#, "`type`"),
            (r#"{"max_messages": 3}"#, "`type`"),
            (r#"{"type": "sliding_window", "max_messages": -2}"#, "`max_messages`"),
            (r#"{"type": "sliding_window", "max_messages": 0}"#, "`max_messages`"),
            (r#"{"type": "sliding_window", "max_chars": 5}"#, "`max_chars`"),
            (r#"{"type": "tool_result_truncation", "max_chars": "5"}"#, "`max_chars`"),
            (r#"{"type": "truncation"}"#, "`max_messages`"),
            (r#"{"type": "summarization", "min_old_tokens": 0}"#, "`min_old_tokens`"),
            (r#"{"type": "token_budget_composed", "token_budget": 0}"#, "`token_budget`"),
            (r#"{"type": "token_budget_composed"}"#, "`token_budget`"),
            (r#"{"type": "token_budget_composed", "token_budget": 9, "model": "x"}"#, "`model`"),
            (
                concat!(
                    r#"{"type": "token_budget_composed", "token_budget": 9, "strategies": [{"type": "#,
                    r#""truncation", "max_chars": -4}]}"#,
                ),
                "`max_chars`",
            ),
        ] {
            let json = format!(r#"{{"pipeline": [{{"type": "sliding_window"}}, {strategy}]}}"#);
            let error = parse_config::<PipelineConfig>(&json).unwrap_err();
            let message = error.message();
            assert!(message.contains("pipeline[1]") && message.contains(field), "{strategy}: {message}");
        }
    }
}
