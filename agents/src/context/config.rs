//! The configuration of an agent's context.

use std::sync::Arc;

use larder_kernel::{
    Author, CompactionStrategy, Error, HistoryProvider, HistoryRetention, Result, StrategyEffect,
};

use super::memory::MemoryProvider;
use crate::InMemoryHistoryProvider;
use crate::compaction::{Pipeline, SlidingWindow, SummaryStore};
use crate::tokens::{EstimatedTokenCounter, TokenCounter};

/// The default limit on the messages that a filtered window reads.
pub const SCAN_MESSAGES_MAX_DEFAULT: u64 = 100_000;

/// The configuration of an agent's context.
///
/// The default needs no argument: a history in memory, a window of the newest 100 messages, and no expiry.
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
    /// Creates a configuration with a window of the newest 100 messages of `history`.
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

    /// Sets the strategies that shorten the window. A single strategy needs no wrapper, and an empty pipeline
    /// keeps everything.
    #[must_use]
    pub fn with_pipeline(mut self, pipeline: impl Into<Pipeline>) -> Self {
        self.pipeline = pipeline.into();
        self
    }

    /// Sets the retention of a run's messages after its end.
    #[must_use]
    pub fn with_retention(mut self, retention: HistoryRetention) -> Self {
        self.retention = retention;
        self
    }

    /// Sets the part of the session's memory that the agent sees, and turns its writes on or off.
    #[must_use]
    pub fn with_memory(mut self, memory: impl Into<MemoryProvider>) -> Self {
        self.memory = memory.into();
        self
    }

    /// Begins windows with the thread's summary from this store and reads only the messages after it. A
    /// summary of removed messages is [ignored](SummaryStore::current).
    ///
    /// If a strategy of the pipeline makes summaries, pass the store in which it keeps them.
    #[must_use]
    pub fn with_summaries(mut self, summaries: SummaryStore) -> Self {
        self.summaries = Some(summaries);
        self
    }

    /// Sets the counter of message tokens. It counts each message once, when it is appended, and messages
    /// that were appended without a count.
    ///
    /// If strategies count tokens themselves, give them the same counter: this one measures a reach in
    /// tokens.
    #[must_use]
    pub fn with_counter(mut self, counter: Arc<dyn TokenCounter>) -> Self {
        self.counter = counter;
        self
    }

    /// Sets the author of messages that have none, for sessions that agents share.
    #[must_use]
    pub fn with_author(mut self, author: Author) -> Self {
        self.author = Some(author);
        self
    }

    /// Limits the number of messages that a window with a memory filter reads, newest first. A filtered
    /// window may need many messages, because strategies that process each message independently may drop
    /// messages that the filter keeps. Messages that the store's filter skips do not count. The default is
    /// [`SCAN_MESSAGES_MAX_DEFAULT`].
    #[must_use]
    pub fn with_scan_messages_max(mut self, messages: u64) -> Self {
        self.scan_messages_max = messages;
        self
    }

    /// Checks all settings.
    ///
    /// # Errors
    /// `InvalidInput` with the setting and the limit. The setting is `pipeline` for a strategy that erases.
    /// It is `memory` for one that shows a part of the thread if a strategy of the pipeline summarizes the
    /// thread.
    pub fn check(&self) -> Result<()> {
        const OPERATION: &str = "context.config";
        self.memory.check()?;
        let effect = self.pipeline.effect();
        if effect == StrategyEffect::Erases {
            let message = "contains a strategy that erases stored messages, and a context never changes its \
                           transcript; remove the strategy";
            return Err(Error::invalid(OPERATION, "pipeline", message));
        }
        if effect == StrategyEffect::Summarizes && self.memory.is_part() {
            let message = "reads a part of the thread, but a strategy of `pipeline` summarizes all of it; \
                           remove one \
                 of them";
            return Err(Error::invalid(OPERATION, "memory", message));
        }
        if self.scan_messages_max == 0 {
            return Err(Error::under_limit(OPERATION, "scan_messages_max", 0, 1));
        }
        Ok(())
    }
}
