//! A sequence of strategies that stops as soon as the window fits.

use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{
    CompactionStrategy, Error, Preparation, Prepared, Reach, Result, StrategyEffect, Window,
};

use super::Pipeline;
use crate::tokens::{TokenCounter, context_tokens_of, tokens_of};

const OPERATION: &str = "token_budget_composed.config";
const TRIGGER_RATIO: f64 = 0.80;

/// Runs its strategies in order until the window fits a token budget.
///
/// A window that fits stays unchanged. If the window does not fit after the last strategy, the result is that
/// of the last strategy. To enforce the budget, end with [`MaxTokens`](super::MaxTokens) of the same budget.
///
/// ```
/// use std::sync::Arc;
/// use larder_agents::compaction::{Pipeline, SlidingWindow, TokenBudgetComposed, ToolResultTruncation};
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
/// let steps = Pipeline::new().then(ToolResultTruncation::default()).then(SlidingWindow::new(1)?);
/// let window = Window::injected(["one two", "three"].map(ChatMessage::user));
/// let roomy = TokenBudgetComposed::new(3, Arc::new(Words), steps.clone())?;
/// assert_eq!(roomy.compact(window.clone()).await?.messages.len(), 2);
/// let tight = TokenBudgetComposed::new(2, Arc::new(Words), steps.clone())?;
/// assert_eq!(tight.compact(window).await?.messages.len(), 1);
///
/// let sized = TokenBudgetComposed::from_model("gpt-4o", Arc::new(Words), steps)?;
/// assert_eq!(sized.token_budget(), 102_400);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct TokenBudgetComposed {
    token_budget: u64,
    counter: Arc<dyn TokenCounter>,
    strategies: Pipeline,
}

impl TokenBudgetComposed {
    /// Creates a sequence that runs `strategies` until the window has at most `token_budget` tokens.
    ///
    /// # Errors
    /// `InvalidInput` with `token_budget` if it is 0.
    pub fn new(
        token_budget: u64,
        counter: Arc<dyn TokenCounter>,
        strategies: impl Into<Pipeline>,
    ) -> Result<Self> {
        if token_budget == 0 {
            return Err(Error::under_limit(OPERATION, "token_budget", 0, 1));
        }
        Ok(Self { token_budget, counter, strategies: strategies.into() })
    }

    /// Creates a sequence with a budget of 0.80 of the model's input size.
    ///
    /// # Errors
    /// `InvalidInput` with `model` if its input size is unknown.
    pub fn from_model(
        model: &str,
        counter: Arc<dyn TokenCounter>,
        strategies: impl Into<Pipeline>,
    ) -> Result<Self> {
        Self::from_model_with_ratio(model, counter, strategies, TRIGGER_RATIO)
    }

    /// Creates a sequence with a budget of the given part of the model's input size.
    ///
    /// # Errors
    /// `InvalidInput` with `model` if its input size is unknown. `InvalidInput` with `trigger_ratio` if it is
    /// not above 0 and at most 1.
    pub fn from_model_with_ratio(
        model: &str,
        counter: Arc<dyn TokenCounter>,
        strategies: impl Into<Pipeline>,
        trigger_ratio: f64,
    ) -> Result<Self> {
        if !(trigger_ratio > 0.0 && trigger_ratio <= 1.0) {
            return Err(Error::invalid(
                OPERATION,
                "trigger_ratio",
                "is not above 0 and at most 1; use a number in this range",
            ));
        }
        let Some(context_tokens) = context_tokens_of(model) else {
            let message = "has an unknown context size; set a token budget instead";
            return Err(Error::invalid(OPERATION, "model", message));
        };
        Self::new(part_of(context_tokens, trigger_ratio).max(1), counter, strategies)
    }

    /// Returns the token budget. A window within it stays unchanged.
    #[must_use]
    pub fn token_budget(&self) -> u64 {
        self.token_budget
    }

    /// Returns the strategies, in order.
    #[must_use]
    pub fn strategies(&self) -> &[Arc<dyn CompactionStrategy>] {
        self.strategies.strategies()
    }

    fn fits(&self, window: &Window) -> bool {
        let mut left = self.token_budget;
        window.messages.iter().all(|message| {
            let rest = left.checked_sub(tokens_of(&*self.counter, &message.message));
            left = rest.unwrap_or(0);
            rest.is_some()
        })
    }
}

/// Returns a part of a number of tokens, in whole tokens.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 0 and the number itself"
)]
fn part_of(tokens: u64, ratio: f64) -> u64 {
    let tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
    (f64::from(tokens) * ratio) as u64
}

#[async_trait]
impl CompactionStrategy for TokenBudgetComposed {
    fn name(&self) -> &'static str {
        "token_budget_composed"
    }

    /// Combines the reach that the budget needs with that of the first strategy, if one reach can express
    /// both.
    fn reach(&self) -> Reach {
        match self.strategies().first().map(|strategy| strategy.reach()) {
            Some(Reach::Tokens(tokens)) => Reach::Tokens(tokens.max(self.token_budget)),
            _ => Reach::Everything,
        }
    }

    fn drops(&self) -> bool {
        self.strategies.drops()
    }

    fn effect(&self) -> StrategyEffect {
        self.strategies.effect()
    }

    async fn compact(&self, mut window: Window) -> Result<Window> {
        for strategy in self.strategies() {
            if self.fits(&window) {
                break;
            }
            window = strategy.compact(window).await?;
        }
        Ok(window)
    }

    async fn prepare(&self, window: Window, preparation: &Preparation) -> Result<Prepared> {
        let mut prepared = Prepared::from(window);
        for strategy in self.strategies() {
            if self.fits(&prepared.window) {
                break;
            }
            prepared = prepared.then(&**strategy, preparation).await?;
        }
        Ok(prepared)
    }
}

#[cfg(test)]
mod tests {
    use larder_kernel::{ChatMessage, ToolResult};

    use super::*;
    use crate::compaction::properties::Chars;
    use crate::compaction::{MaxTokens, MaxTokensConfig, SlidingWindow, ToolResultTruncation, Truncation};

    fn steps() -> Pipeline {
        Pipeline::new()
            .then(ToolResultTruncation::new(5).unwrap())
            .then(SlidingWindow::new(2).unwrap())
            .then(Truncation::chars(1).unwrap())
    }

    /// Proves: RAVI-11
    #[tokio::test]
    async fn strategies_run_in_order_only_until_the_window_fits() {
        let call = ChatMessage::assistant("").with_tool_call(larder_kernel::ToolCall::new("1", "t", "{}"));
        let window = Window::injected([
            ChatMessage::user("question"),
            call,
            ChatMessage::tool([ToolResult::new("1", "x".repeat(100))]),
            ChatMessage::assistant("yes"),
            ChatMessage::user("more"),
        ]);
        for (budget, messages, result_chars) in
            [(118, 5, 100), (117, 5, 25), (42, 2, 0), (7, 2, 0), (6, 0, 0)]
        {
            let strategy = TokenBudgetComposed::new(budget, Arc::new(Chars), steps()).unwrap();
            let fitted = strategy.compact(window.clone()).await.unwrap().messages;
            assert_eq!(fitted.len(), messages, "{budget}");
            let result = fitted.iter().flat_map(|message| &message.message.tool_results).next();
            assert_eq!(result.map_or(0, |result| result.content.len()), result_chars, "{budget}");
        }
    }

    /// Proves: RAVI-11
    #[test]
    fn a_model_sizes_the_budget() {
        let sized =
            |model, ratio| TokenBudgetComposed::from_model_with_ratio(model, Arc::new(Chars), steps(), ratio);
        let by_default = TokenBudgetComposed::from_model("gpt-4o", Arc::new(Chars), steps()).unwrap();
        assert_eq!(by_default.token_budget(), 102_400);
        assert_eq!(sized("gpt-4o", 0.5).unwrap().token_budget(), 64_000);
        assert_eq!(sized("gpt-4o", 1.0).unwrap().token_budget(), 128_000);
        assert_eq!(sized("gpt-4o", 1e-9).unwrap().token_budget(), 1);
        assert_eq!(sized("nobody-knows", 0.5).unwrap_err().field(), Some("model"));
        for ratio in [0.0, -1.0, 1.01, f64::NAN, f64::INFINITY] {
            assert_eq!(sized("gpt-4o", ratio).unwrap_err().field(), Some("trigger_ratio"));
        }
        let error = TokenBudgetComposed::new(0, Arc::new(Chars), steps()).unwrap_err();
        assert_eq!((error.field(), error.limit()), (Some("token_budget"), Some(1)));
    }

    #[test]
    fn the_reach_covers_both_the_budget_and_the_first_strategy() {
        let reach = |steps: Pipeline| TokenBudgetComposed::new(9, Arc::new(Chars), steps).unwrap().reach();
        let max_tokens = |memory_max_tokens| {
            let config = MaxTokensConfig { memory_max_tokens, ..MaxTokensConfig::default() };
            Pipeline::from(MaxTokens::new(&config, Arc::new(Chars)).unwrap())
        };
        assert_eq!(reach(steps()), Reach::Everything);
        assert_eq!(reach(Pipeline::new()), Reach::Everything);
        assert_eq!(reach(max_tokens(20)), Reach::Tokens(20));
        assert_eq!(reach(max_tokens(3)), Reach::Tokens(9));
    }
}
