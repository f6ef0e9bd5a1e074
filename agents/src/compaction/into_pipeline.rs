//! Conversion of a single strategy into a pipeline.

use super::pipeline::Pipeline;

/// Lets a caller pass a single strategy without a wrapper.
macro_rules! strategies_need_no_wrapper {
    ($($strategy:ty),* $(,)?) => {$(
        impl From<$strategy> for Pipeline {
            fn from(strategy: $strategy) -> Self {
                Self::new().then(strategy)
            }
        }
    )*};
}

strategies_need_no_wrapper!(
    super::CombinedMemory,
    super::MaxTokens,
    super::Neuralyzer,
    super::SelectiveToolCall,
    super::SlidingWindow,
    super::Summarization,
    super::Summarizer,
    super::TokenBudgetComposed,
    super::ToolResultTruncation,
    super::Truncation,
);
