//! A sequence of strategies.

use std::any::Any;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{CompactionStrategy, Preparation, Prepared, Reach, Result, StrategyEffect, Window};

/// A sequence of strategies: each receives the result of the previous one. An empty pipeline changes nothing.
///
/// Put the strategy that loses least first, such as [`ToolResultTruncation`](super::ToolResultTruncation),
/// and the one that loses most last. A parameter of type `impl Into<Pipeline>` also accepts a single
/// strategy. A pipeline is itself a strategy, so pipelines nest.
///
/// The strategies of this module that drop messages treat stored instructions (messages of [`Role::System`])
/// like any other message. To keep the first message of a thread they would have to read all of it. If the
/// model must always read some instructions, put them in front of the window after compaction.
///
/// [`Role::System`]: larder_kernel::Role::System
///
/// The reach of a pipeline is that of its first strategy that is not [`Reach::Each`]. If all are `Each`, the
/// reach is `Each`, and a reader reads everything.
///
/// ```
/// use larder_agents::compaction::{Pipeline, SlidingWindow, ToolResultTruncation};
/// use larder_kernel::{ChatMessage, CompactionStrategy, Reach, Window};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let pipeline = Pipeline::new().then(ToolResultTruncation::default()).then(SlidingWindow::new(2)?);
/// assert_eq!(pipeline.reach(), Reach::Messages(2));
///
/// let window = Window::injected(["one", "two", "three"].map(ChatMessage::user));
/// let window = pipeline.compact(window).await?;
/// assert_eq!(window.messages[0].message.text, "two");
///
/// let same: Pipeline = SlidingWindow::new(2)?.into();
/// assert_eq!(same.strategies().len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Pipeline {
    strategies: Vec<Arc<dyn CompactionStrategy>>,
}

impl Pipeline {
    /// Creates an empty pipeline.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a strategy at the end. Adds the strategies of a pipeline one by one.
    #[must_use]
    pub fn then(mut self, strategy: impl CompactionStrategy) -> Self {
        // A pipeline is flattened, so that a reach in tokens is measured after the strategies that shorten
        // messages.
        if let Some(pipeline) = (&strategy as &dyn Any).downcast_ref::<Self>() {
            self.strategies.extend_from_slice(&pipeline.strategies);
            return self;
        }
        self.then_shared(Arc::new(strategy))
    }

    /// Adds a shared strategy at the end.
    #[must_use]
    pub fn then_shared(mut self, strategy: Arc<dyn CompactionStrategy>) -> Self {
        self.strategies.push(strategy);
        self
    }

    /// Returns the strategies, in order.
    #[must_use]
    pub fn strategies(&self) -> &[Arc<dyn CompactionStrategy>] {
        &self.strategies
    }

    /// Returns the number of strategies at the front that process each message independently.
    ///
    /// A reader that pages backwards may run these on each page as it arrives, and measure their result. A
    /// reach in bytes or tokens applies to the messages that the next strategy receives.
    #[must_use]
    pub fn each_len(&self) -> usize {
        self.strategies.iter().take_while(|strategy| strategy.reach() == Reach::Each).count()
    }
}

#[async_trait]
impl CompactionStrategy for Pipeline {
    fn name(&self) -> &'static str {
        "pipeline"
    }

    fn reach(&self) -> Reach {
        let reaches = self.strategies.iter().map(|strategy| strategy.reach());
        reaches.into_iter().find(|reach| *reach != Reach::Each).unwrap_or(Reach::Each)
    }

    fn drops(&self) -> bool {
        self.strategies.iter().any(|strategy| strategy.drops())
    }

    fn effect(&self) -> StrategyEffect {
        self.strategies.iter().map(|strategy| strategy.effect()).max().unwrap_or_default()
    }

    async fn compact(&self, mut window: Window) -> Result<Window> {
        for strategy in &self.strategies {
            window = strategy.compact(window).await?;
        }
        Ok(window)
    }

    async fn prepare(&self, window: Window, preparation: &Preparation) -> Result<Prepared> {
        let mut prepared = Prepared::from(window);
        for strategy in &self.strategies {
            prepared = prepared.then(&**strategy, preparation).await?;
        }
        Ok(prepared)
    }
}

impl FromIterator<Arc<dyn CompactionStrategy>> for Pipeline {
    fn from_iter<I: IntoIterator<Item = Arc<dyn CompactionStrategy>>>(strategies: I) -> Self {
        Self { strategies: strategies.into_iter().collect() }
    }
}

impl From<Vec<Arc<dyn CompactionStrategy>>> for Pipeline {
    fn from(strategies: Vec<Arc<dyn CompactionStrategy>>) -> Self {
        Self { strategies }
    }
}

impl From<Arc<dyn CompactionStrategy>> for Pipeline {
    fn from(strategy: Arc<dyn CompactionStrategy>) -> Self {
        Self { strategies: vec![strategy] }
    }
}

impl<S: CompactionStrategy> From<Arc<S>> for Pipeline {
    fn from(strategy: Arc<S>) -> Self {
        Self { strategies: vec![strategy] }
    }
}

#[cfg(test)]
mod tests {
    use larder_kernel::ChatMessage;

    use super::*;
    use crate::compaction::{SlidingWindow, ToolResultTruncation, Truncation};

    /// Proves: RAVI-5
    #[tokio::test]
    async fn an_empty_pipeline_changes_nothing() {
        let window = Window::injected([ChatMessage::system("s"), ChatMessage::user("u")]);
        let pipeline = Pipeline::new();
        assert_eq!(pipeline.compact(window.clone()).await.unwrap(), window);
        assert_eq!((pipeline.reach(), pipeline.drops()), (Reach::Each, false));
    }

    /// Proves: RAVI-5
    #[tokio::test]
    async fn strategies_run_in_order_and_nest() {
        let messages = || Window::injected(["a", "bb", "c"].map(ChatMessage::user));
        let inner = Pipeline::new().then(SlidingWindow::new(2).unwrap());
        let pipeline = Pipeline::new().then(inner).then(Truncation::chars(1).unwrap());
        let window = pipeline.compact(messages()).await.unwrap();
        assert_eq!(window.into_messages()[0].text, "c");
        let none_fit = Pipeline::new().then(Truncation::chars(2).unwrap());
        assert_eq!(none_fit.compact(messages()).await.unwrap().messages.len(), 1);
    }

    /// Proves: RAVI-5
    #[test]
    fn the_first_strategy_across_messages_sets_the_reach() {
        let each = ToolResultTruncation::default;
        let pipeline = Pipeline::new().then(each()).then(SlidingWindow::default());
        assert_eq!(pipeline.reach(), Reach::Messages(100));
        assert_eq!(pipeline.each_len(), 1);
        assert!(pipeline.drops());
        let outer = Pipeline::new().then(Pipeline::from(each())).then(pipeline).then(each());
        assert_eq!(outer.reach(), Reach::Messages(100));
        assert_eq!((outer.strategies().len(), outer.each_len()), (4, 2));
        assert_eq!((Pipeline::from(each()).reach(), Pipeline::from(each()).drops()), (Reach::Each, false));
    }

    /// Proves: RAVI-5
    #[test]
    fn one_strategy_needs_no_wrapper() {
        fn takes(pipeline: impl Into<Pipeline>) -> usize {
            pipeline.into().strategies().len()
        }
        let shared: Arc<dyn CompactionStrategy> = Arc::new(SlidingWindow::default());
        assert_eq!(takes(SlidingWindow::default()), 1);
        assert_eq!(takes(Arc::new(SlidingWindow::default())), 1);
        assert_eq!(takes(shared.clone()), 1);
        assert_eq!(takes(vec![shared.clone(), shared.clone()]), 2);
        assert_eq!(takes(std::iter::repeat_n(shared, 3).collect::<Pipeline>()), 3);
        assert_eq!(takes(Pipeline::new()), 0);
    }
}
