//! What an agent's context is made of (RAVI-4).

use std::sync::Arc;

use larder_kernel::{
    Author, CompactionStrategy, Error, HistoryProvider, HistoryRetention, Result, StrategyEffect,
};

use super::memory::MemoryProvider;
use crate::InMemoryHistoryProvider;
use crate::compaction::{Pipeline, SlidingWindow, SummaryStore};
use crate::tokens::{EstimatedTokenCounter, TokenCounter};

/// How many messages a filtered window reads at most unless told otherwise.
pub const SCAN_MESSAGES_MAX_DEFAULT: u64 = 100_000;

/// What an agent's context is made of.
///
/// The default needs no argument: a history in memory, of which the newest 100 messages are the window, kept for good.
///
/// ```
/// use std::sync::Arc;
/// use larder_agents::InMemoryHistoryProvider;
/// use larder_agents::compaction::{Pipeline, SlidingWindow, ToolResultTruncation};
/// use larder_agents::context::{AgentContext, ContextConfig};
/// use larder_kernel::HistoryRetention;
///
/// let config = ContextConfig::new(Arc::new(InMemoryHistoryProvider::new()))
///     .with_pipeline(Pipeline::new().then(ToolResultTruncation::default()).then(SlidingWindow::new(40)?))
///     .with_retention(HistoryRetention::Run);
/// let context = AgentContext::new(config)?;
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ContextConfig {
    pub(super) history: Arc<dyn HistoryProvider>,
    pub(super) pipeline: Pipeline,
    pub(super) retention: HistoryRetention,
    pub(super) memory: MemoryProvider,
    pub(super) summaries: Option<SummaryStore>,
    pub(super) counter: Arc<dyn TokenCounter>,
    pub(super) author: Option<Author>,
    pub(super) scan_messages_max: u64,
}

impl Default for ContextConfig {
    fn default() -> Self {
        Self::new(Arc::new(InMemoryHistoryProvider::new()))
    }
}

impl ContextConfig {
    /// A window of the newest 100 messages of `history`.
    #[must_use]
    pub fn new(history: Arc<dyn HistoryProvider>) -> Self {
        Self {
            history,
            pipeline: SlidingWindow::default().into(),
            retention: HistoryRetention::default(),
            memory: MemoryProvider::default(),
            summaries: None,
            counter: Arc::new(EstimatedTokenCounter),
            author: None,
            scan_messages_max: SCAN_MESSAGES_MAX_DEFAULT,
        }
    }

    /// Makes the window fit by these strategies; one strategy needs no wrapper, and an empty pipeline keeps everything.
    #[must_use]
    pub fn with_pipeline(mut self, pipeline: impl Into<Pipeline>) -> Self {
        self.pipeline = pipeline.into();
        self
    }

    /// Sets what remains of a run when it ends.
    #[must_use]
    pub fn with_retention(mut self, retention: HistoryRetention) -> Self {
        self.retention = retention;
        self
    }

    /// Sets what the agent sees of the session's memory, and whether it adds to it.
    #[must_use]
    pub fn with_memory(mut self, memory: impl Into<MemoryProvider>) -> Self {
        self.memory = memory.into();
        self
    }

    /// Begins windows with the summary that a thread has in this store, and reads only the messages after it. A summary of
    /// messages that are gone is [left out](SummaryStore::current).
    ///
    /// Where a strategy of the pipeline makes summaries, this is the store that it keeps them in.
    #[must_use]
    pub fn with_summaries(mut self, summaries: SummaryStore) -> Self {
        self.summaries = Some(summaries);
        self
    }

    /// Counts the tokens of messages, once, when they are appended, and of messages that were appended without a count.
    ///
    /// Where strategies count tokens themselves, give them the same counter: a reach in tokens is read by this one.
    #[must_use]
    pub fn with_counter(mut self, counter: Arc<dyn TokenCounter>) -> Self {
        self.counter = counter;
        self
    }

    /// Names the agent and its role on each message that names no author, for sessions that agents share.
    #[must_use]
    pub fn with_author(mut self, author: Author) -> Self {
        self.author = Some(author);
        self
    }

    /// Limits how many messages a window whose memory is filtered reads, newest first, to be as long as its strategies
    /// look: those in front may drop what the filter keeps. The store looks for these messages, and what it passes by
    /// does not count. [`SCAN_MESSAGES_MAX_DEFAULT`] unless told otherwise.
    #[must_use]
    pub fn with_scan_messages_max(mut self, messages: u64) -> Self {
        self.scan_messages_max = messages;
        self
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// `InvalidInput` naming the setting and the limit: `pipeline` for a strategy that erases, and `memory` for one that
    /// shows a part of the thread where a strategy of the pipeline summarizes the thread.
    pub fn check(&self) -> Result<()> {
        const OPERATION: &str = "context.config";
        self.memory.check()?;
        let effect = self.pipeline.effect();
        if effect == StrategyEffect::Erases {
            let message = "a strategy erases stored messages, and a context leaves its transcript as it is";
            return Err(Error::invalid(OPERATION, "pipeline", message));
        }
        if effect == StrategyEffect::Summarizes && self.memory.is_part() {
            let message =
                "the memory shows a part of the thread, and a strategy of `pipeline` summarizes all of it";
            return Err(Error::invalid(OPERATION, "memory", message));
        }
        if self.scan_messages_max == 0 {
            return Err(Error::under_limit(OPERATION, "scan_messages_max", 0, 1));
        }
        Ok(())
    }
}
