//! The context of one agent: it appends messages, and makes the window for the model.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::storage::history::check_append;
use larder_kernel::{
    AgentContextProtocol, AgentId, AppendOptions, Appended, ChatMessage, CompactionStrategy, Error,
    ErrorKind, HistoryRetention, Reach, Result, RunId, Seq, SessionId, StrategyEffect, Thread, Window,
    WindowMessage,
};

use super::ContextConfig;
use super::explain::{Assembly, WindowExplanation};
use super::memory::{LimitedWindow, MemoryProvider};
use super::reader::{ReadBack, Reader};
use crate::compaction::{Pipeline, Summary, close_tool_calls, summary_message};
use crate::scope;
use crate::tokens::{TokenCounter, with_tokens};

/// The conversations of one agent: appends messages and makes windows for the model.
///
/// The agent is that of the [scope](crate::scope) of the call, unless [`for_agent`](Self::for_agent) sets
/// one. Outside any scope it is `default`. Agents that share a session use a context for one common agent and
/// identify themselves as [authors](ContextConfig::with_author).
///
/// A window is a view. Making one reads no further back than its strategies need, and never changes stored
/// data.
///
/// ```
/// use larder_agents::context::AgentContext;
/// use larder_kernel::{AgentContextProtocol, ChatMessage, SessionId};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let context = AgentContext::default();
/// let session = SessionId::new("session-1")?;
/// context.append(&session, ChatMessage::user("What is the weather in Oslo?")).await?;
/// context.append(&session, ChatMessage::assistant("Snow, -3 °C.")).await?;
///
/// let window = context.get_prompt_window(&session).await?;
/// assert_eq!(window.messages.len(), 2);
/// println!("{}", context.explain_window(&session).await?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct AgentContext {
    pub(super) config: Arc<ContextConfig>,
    agent: Option<AgentId>,
}

impl fmt::Debug for AgentContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentContext")
            .field("pipeline", &self.config.pipeline)
            .field("retention", &self.config.retention)
            .finish_non_exhaustive()
    }
}

impl AgentContext {
    /// Creates a context from a configuration, for the agent of the scope.
    ///
    /// # Errors
    /// `InvalidInput` with the invalid setting.
    pub fn new(config: ContextConfig) -> Result<Self> {
        config.check()?;
        Ok(Self { config: Arc::new(config), agent: None })
    }

    /// Uses this agent in any scope.
    #[must_use]
    pub fn for_agent(mut self, agent: AgentId) -> Self {
        self.agent = Some(agent);
        self
    }

    /// Returns the retention of a run's messages after its end.
    #[must_use]
    pub fn retention(&self) -> HistoryRetention {
        self.config.retention
    }

    /// Returns the strategies.
    #[must_use]
    pub fn pipeline(&self) -> &Pipeline {
        &self.config.pipeline
    }

    pub(super) fn counter(&self) -> &dyn TokenCounter {
        &*self.config.counter
    }

    /// Returns the thread of a session.
    #[must_use]
    pub fn thread(&self, session: &SessionId) -> Thread {
        let agent = self.agent.clone().unwrap_or_else(|| scope::current_board().agent);
        Thread { agent, session: session.clone() }
    }

    /// Counts a message's tokens and appends it. Returns `None` if the retention or the memory forbids
    /// writes.
    ///
    /// # Errors
    /// As [`append_many`](Self::append_many).
    pub async fn append(&self, session: &SessionId, message: ChatMessage) -> Result<Option<Seq>> {
        let appended = self.append_many(session, vec![message], AppendOptions::default()).await?;
        Ok(appended.map(|appended| appended.last))
    }

    /// Appends all messages or none. Returns `None` if the retention or the memory forbids writes.
    ///
    /// Tokens are counted once, here. A message that has a count keeps it.
    ///
    /// # Errors
    /// `InvalidInput` for messages that the history rejects, even if nothing is written. `InvalidInput` with
    /// retention `RUN` for a message without a run, because it could never be cleared. The errors of the
    /// history.
    ///
    /// # Cancellation
    /// All messages of the batch are written or none.
    pub async fn append_many(
        &self,
        session: &SessionId,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Option<Appended>> {
        self.append_to(&self.thread(session), messages, options).await
    }

    pub(super) async fn append_to(
        &self,
        thread: &Thread,
        messages: Vec<ChatMessage>,
        options: AppendOptions,
    ) -> Result<Option<Appended>> {
        let messages: Vec<ChatMessage> = messages.into_iter().map(|message| self.prepare(message)).collect();
        check_append(&messages, &options)?;
        let config = &*self.config;
        if config.retention == HistoryRetention::None {
            return Ok(None);
        }
        if config.retention == HistoryRetention::Run && messages.iter().any(|message| message.run.is_none()) {
            return Err(Error::invalid(
                "context.append",
                "run",
                "kept for its run only, a message must name it",
            ));
        }
        match &config.memory {
            MemoryProvider::None => Ok(None),
            MemoryProvider::Window(window) if !window.writes() => Ok(None),
            MemoryProvider::Window(_) => {
                config.history.append_many(thread, messages, options).await.map(Some)
            }
            MemoryProvider::Custom(memory) => memory.write(thread, messages, options).await,
        }
    }

    /// Prepares a message for storage: sets its token count and its author.
    pub(super) fn prepare(&self, mut message: ChatMessage) -> ChatMessage {
        if message.author.is_none() {
            message.author.clone_from(&self.config.author);
        }
        with_tokens(&*self.config.counter, message)
    }

    /// Ends a run and returns the number of removed messages: all messages of the run with retention `RUN`,
    /// otherwise none. You may repeat the call, so any process can end the run of a crashed one.
    ///
    /// With `RUN`, a summary that may cover messages of the run is removed too.
    ///
    /// # Errors
    /// The errors of the history.
    ///
    /// # Cancellation
    /// All messages of the run are removed or none. Repeat the call to complete it.
    pub async fn end_run(&self, session: &SessionId, run: &RunId) -> Result<u64> {
        self.end_run_of(&self.thread(session), run, None).await
    }

    /// Ends a run. `first` is the position of its first message, if one was written.
    pub(super) async fn end_run_of(&self, thread: &Thread, run: &RunId, first: Option<Seq>) -> Result<u64> {
        let config = &*self.config;
        if config.retention != HistoryRetention::Run {
            return Ok(0);
        }
        let removed = match &config.memory {
            MemoryProvider::None => 0,
            MemoryProvider::Window(window) if !window.writes() => 0,
            MemoryProvider::Window(_) => config.history.clear_run(thread, run, None).await?,
            MemoryProvider::Custom(memory) => memory.clear_run(thread, run).await?,
        };
        if let Some(summaries) = &config.summaries {
            summaries.drop_drafts(thread).await?;
            let kept = summaries.get(thread).await?;
            if kept.is_some_and(|kept| first.is_none_or(|first| kept.summary.up_to >= first)) {
                summaries.remove(thread).await?;
            }
        }
        Ok(removed)
    }

    /// Clears a session with its summary and returns the number of removed messages.
    ///
    /// # Errors
    /// `Unsupported` with a custom memory, and the errors of the stores.
    ///
    /// # Cancellation
    /// The summary may be removed while the messages remain, never the reverse.
    pub async fn clear(&self, session: &SessionId) -> Result<u64> {
        let thread = self.thread(session);
        if matches!(self.config.memory, MemoryProvider::Custom(_)) {
            let message = "this context uses a custom memory, which it cannot clear; clear the memory itself";
            return Err(Error::new(ErrorKind::Unsupported, "context.clear", message));
        }
        if let Some(summaries) = &self.config.summaries {
            summaries.remove(&thread).await?;
        }
        self.config.history.clear(&thread, None).await
    }

    /// Makes the window of a session, followed by messages that are not stored.
    ///
    /// # Errors
    /// As [`get_prompt_window`](AgentContextProtocol::get_prompt_window). `InvalidInput` with the field of a
    /// message that could not be stored.
    ///
    /// # Cancellation
    /// The call stores nothing.
    pub async fn window_with(&self, session: &SessionId, new: Vec<ChatMessage>) -> Result<Window> {
        check_new(&new)?;
        Ok(self.assemble(self.thread(session), new, false).await?.window)
    }

    /// Makes the window of a session and explains the effect of each step.
    ///
    /// The result contains the window that [`get_prompt_window`](AgentContextProtocol::get_prompt_window)
    /// would return now. A strategy that summarizes asks its model, but stores nothing. The next window does
    /// not ask the same question again.
    ///
    /// # Errors
    /// As `get_prompt_window`.
    ///
    /// # Cancellation
    /// The call stores nothing.
    pub async fn explain_window(&self, session: &SessionId) -> Result<WindowExplanation> {
        self.explain_window_with(session, Vec::new()).await
    }

    /// Works as [`explain_window`](Self::explain_window), with messages at the end that are not stored.
    ///
    /// # Errors
    /// As `get_prompt_window`.
    ///
    /// # Cancellation
    /// The call stores nothing.
    pub async fn explain_window_with(
        &self,
        session: &SessionId,
        new: Vec<ChatMessage>,
    ) -> Result<WindowExplanation> {
        check_new(&new)?;
        let assembly = self.assemble(self.thread(session), new, true).await?;
        Ok(assembly.explain(&*self.config.counter))
    }

    pub(super) async fn assemble(
        &self,
        thread: Thread,
        new: Vec<ChatMessage>,
        explains: bool,
    ) -> Result<Assembly> {
        let config = &*self.config;
        let reach = match config.pipeline.effect() {
            StrategyEffect::None => config.pipeline.reach(),
            // A summary needs every message since the last one.
            _ => Reach::Everything,
        };
        let mut assembly = Assembly::new(thread.clone(), reach, explains);
        let mut strategies = config.pipeline.strategies();
        match &config.memory {
            MemoryProvider::Custom(memory) => {
                let window = memory.read(&thread).await?;
                assembly.read("custom", window, self.injected(new));
            }
            MemoryProvider::Window(window) if window.reads() => {
                let each;
                (each, strategies) = strategies.split_at(config.pipeline.each_len());
                self.read_window(&thread, window, each, &mut assembly).await?;
                self.add_new(each, new, &mut assembly).await?;
            }
            MemoryProvider::Window(_) | MemoryProvider::None => {
                assembly.read("none", Window::new(Vec::new()).with_thread(thread), self.injected(new));
            }
        }
        self.run_strategies(strategies, &mut assembly).await?;
        let paired = close_tool_calls(&assembly.window.messages);
        if paired != assembly.window.messages {
            let window = Window::new(paired).with_thread(assembly.window.thread.clone());
            assembly.step("pair_tool_calls", true, window);
        }
        Ok(assembly)
    }

    fn injected(&self, new: Vec<ChatMessage>) -> Vec<WindowMessage> {
        new.into_iter().map(|message| WindowMessage::injected(self.prepare(message))).collect()
    }

    /// Reads the history: first the summary, then backwards from the newest message as far as the strategies
    /// need.
    async fn read_window(
        &self,
        thread: &Thread,
        memory: &LimitedWindow,
        each: &[Arc<dyn CompactionStrategy>],
        assembly: &mut Assembly,
    ) -> Result<()> {
        let config = &*self.config;
        // A summary covers messages of all authors, so an agent that may not see all of them does not get it.
        let summary = match &config.summaries {
            Some(summaries) if memory.filter().is_empty() => {
                // An explanation does not remove an outdated summary.
                let kept = match assembly.explains() {
                    true => summaries.look(&*config.history, thread).await?,
                    false => summaries.current(&*config.history, thread).await?.map(|kept| (kept, true)),
                };
                kept.filter(|(_, current)| *current).map(|(kept, _)| kept)
            }
            _ => None,
        };
        let summary = summary.map(|kept| kept.summary);
        let reader = Reader {
            history: &*config.history,
            thread,
            after: summary.as_ref().map(|summary| summary.up_to),
            filter: memory.filter(),
            last: memory.last(),
            max_bytes: memory.max_bytes(),
            each,
            reach: assembly.reach,
            counter: &*config.counter,
            scan_messages_max: config.scan_messages_max,
            keeps_stages: assembly.explains(),
        };
        let mut back = reader.read().await?;
        if let Some(summary) = &summary {
            begin_with(&mut back, summary, thread, each).await?;
        }
        // A summary of a part of the thread must not be stored as the summary of the whole thread.
        let whole = !memory.is_part();
        assembly.read_back(back, whole, each, summary.as_ref());
        Ok(())
    }

    /// Adds the new messages at the end, after applying the strategies that process each message
    /// independently.
    async fn add_new(
        &self,
        each: &[Arc<dyn CompactionStrategy>],
        new: Vec<ChatMessage>,
        assembly: &mut Assembly,
    ) -> Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        let mut window = Window::new(self.injected(new)).with_thread(assembly.window.thread.clone());
        let mut stages = vec![window.messages.clone()];
        for strategy in each {
            window = strategy.compact(window).await?;
            stages.push(window.messages.clone());
        }
        assembly.add(stages);
        Ok(())
    }
}

/// Rejects new messages that could not be stored.
fn check_new(new: &[ChatMessage]) -> Result<()> {
    new.iter().try_for_each(|message| message.check("context.window"))
}

/// Puts the summary in front of every stage, in the form that the strategies that process each message
/// independently give it.
async fn begin_with(
    back: &mut ReadBack,
    summary: &Summary,
    thread: &Thread,
    each: &[Arc<dyn CompactionStrategy>],
) -> Result<()> {
    let mut window = Window::new(vec![summary_message(summary)]).with_thread(thread.clone());
    let mut heads = vec![window.messages.clone()];
    for strategy in each {
        window = strategy.compact(window).await?;
        heads.push(window.messages.clone());
    }
    let skipped = heads.len() - back.stages.len();
    for (stage, head) in back.stages.iter_mut().zip(heads.into_iter().skip(skipped)) {
        stage.splice(0..0, head);
    }
    Ok(())
}

#[async_trait]
impl AgentContextProtocol for AgentContext {
    async fn get_prompt_window(&self, session: &SessionId) -> Result<Window> {
        self.window_with(session, Vec::new()).await
    }
}
