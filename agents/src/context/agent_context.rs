//! The context of one agent: what it appends, and the window that its model reads (RAVI-4).

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
use crate::compaction::{Pipeline, Summary, pair_tool_calls, summary_message};
use crate::scope;
use crate::tokens::{TokenCounter, with_tokens};

/// One agent's conversations: appends to them and makes the windows that its model reads.
///
/// The agent is the one of the [scope](crate::scope) in which a call is made, unless [`for_agent`](Self::for_agent)
/// names one; outside any scope it is `default`. Agents that share a session use a context for one common agent and name
/// themselves as [authors](ContextConfig::with_author).
///
/// A window is a view: making one reads no further back than its strategies need, and never changes what is stored.
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
    /// A context as configured, for the agent of the scope.
    ///
    /// # Errors
    /// `InvalidInput` naming the setting that is refused.
    pub fn new(config: ContextConfig) -> Result<Self> {
        config.check()?;
        Ok(Self { config: Arc::new(config), agent: None })
    }

    /// The same context for this agent, whatever the scope.
    #[must_use]
    pub fn for_agent(mut self, agent: AgentId) -> Self {
        self.agent = Some(agent);
        self
    }

    /// What remains of a run when it ends.
    #[must_use]
    pub fn retention(&self) -> HistoryRetention {
        self.config.retention
    }

    /// The strategies.
    #[must_use]
    pub fn pipeline(&self) -> &Pipeline {
        &self.config.pipeline
    }

    pub(super) fn counter(&self) -> &dyn TokenCounter {
        &*self.config.counter
    }

    /// The thread of a session.
    #[must_use]
    pub fn thread(&self, session: &SessionId) -> Thread {
        let agent = self.agent.clone().unwrap_or_else(|| scope::current_board().agent);
        Thread { agent, session: session.clone() }
    }

    /// Appends a message, its tokens counted; `None` where retention or memory say that nothing is written.
    ///
    /// # Errors
    /// As [`append_many`](Self::append_many).
    pub async fn append(&self, session: &SessionId, message: ChatMessage) -> Result<Option<Seq>> {
        let appended = self.append_many(session, vec![message], AppendOptions::default()).await?;
        Ok(appended.map(|appended| appended.last))
    }

    /// Appends messages whole or not at all; `None` where retention or memory say that nothing is written.
    ///
    /// Tokens are counted here, once; a message that carries a count keeps it.
    ///
    /// # Errors
    /// `InvalidInput` for what the history refuses, also where nothing is written, and with `RUN` for a message that
    /// names no run, because nothing could ever clear it; the history's own.
    ///
    /// # Cancellation
    /// The batch is written whole or not at all.
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

    /// The message as it is stored: with its tokens and its author.
    pub(super) fn prepare(&self, mut message: ChatMessage) -> ChatMessage {
        if message.author.is_none() {
            message.author.clone_from(&self.config.author);
        }
        with_tokens(&*self.config.counter, message)
    }

    /// Ends a run and says how many messages went: all of the run with `RUN`, else none. Ending it again is harmless, so a
    /// run whose process died can be ended by whoever finds it.
    ///
    /// With `RUN`, a summary that may tell of the run goes as well.
    ///
    /// # Errors
    /// The history's own.
    ///
    /// # Cancellation
    /// All messages of the run are removed, or none; ending it again completes it.
    pub async fn end_run(&self, session: &SessionId, run: &RunId) -> Result<u64> {
        self.end_run_of(&self.thread(session), run, None).await
    }

    /// Ends a run whose first message, where one was written, stands at `first`.
    pub(super) async fn end_run_of(&self, thread: &Thread, run: &RunId, first: Option<Seq>) -> Result<u64> {
        let config = &*self.config;
        if config.retention != HistoryRetention::Run {
            return Ok(0);
        }
        let removed = match &config.memory {
            MemoryProvider::None => 0,
            MemoryProvider::Window(window) if !window.writes() => 0,
            MemoryProvider::Window(_) => config.history.clear_run(thread, run).await?,
            MemoryProvider::Custom(memory) => memory.clear_run(thread, run).await?,
        };
        if let Some(summaries) = &config.summaries {
            let kept = summaries.get(thread).await?;
            if kept.is_some_and(|kept| first.is_none_or(|first| kept.summary.up_to >= first)) {
                summaries.remove(thread).await?;
            }
        }
        Ok(removed)
    }

    /// Clears a session with its summary and says how many messages went.
    ///
    /// # Errors
    /// `Unsupported` where the memory lies somewhere else; the stores' own.
    ///
    /// # Cancellation
    /// The summary may be gone and the messages there, never the other way round.
    pub async fn clear(&self, session: &SessionId) -> Result<u64> {
        let thread = self.thread(session);
        if matches!(self.config.memory, MemoryProvider::Custom(_)) {
            let message = "a memory of one's own is cleared by its owner";
            return Err(Error::new(ErrorKind::Unsupported, "context.clear", message));
        }
        if let Some(summaries) = &self.config.summaries {
            summaries.remove(&thread).await?;
        }
        self.config.history.clear(&thread).await
    }

    /// The window of a session with messages that are not stored, as the newest.
    ///
    /// # Errors
    /// As [`get_prompt_window`](AgentContextProtocol::get_prompt_window).
    ///
    /// # Cancellation
    /// Nothing is stored.
    pub async fn window_with(&self, session: &SessionId, new: Vec<ChatMessage>) -> Result<Window> {
        Ok(self.assemble(self.thread(session), new, false).await?.window)
    }

    /// Makes the window of a session and says what each step did to it, and why.
    ///
    /// Its window is the one that [`get_prompt_window`](AgentContextProtocol::get_prompt_window) would return now. A
    /// strategy that summarizes asks its model, and stores nothing; the same question is not asked again for the window
    /// that follows.
    ///
    /// # Errors
    /// As `get_prompt_window`.
    ///
    /// # Cancellation
    /// Nothing is stored.
    pub async fn explain_window(&self, session: &SessionId) -> Result<WindowExplanation> {
        self.explain_window_with(session, Vec::new()).await
    }

    /// As [`explain_window`](Self::explain_window), with messages that are not stored, as the newest.
    ///
    /// # Errors
    /// As `get_prompt_window`.
    ///
    /// # Cancellation
    /// Nothing is stored.
    pub async fn explain_window_with(
        &self,
        session: &SessionId,
        new: Vec<ChatMessage>,
    ) -> Result<WindowExplanation> {
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
            // A summary reads everything since the last one.
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
                assembly.read(
                    "none",
                    Window { thread: Some(thread), messages: Vec::new() },
                    self.injected(new),
                );
            }
        }
        self.run_strategies(strategies, &mut assembly).await?;
        let paired = pair_tool_calls(assembly.window.messages.clone());
        if paired != assembly.window.messages {
            let window = Window { thread: assembly.window.thread.clone(), messages: paired };
            assembly.step("pair_tool_calls", true, window);
        }
        Ok(assembly)
    }

    fn injected(&self, new: Vec<ChatMessage>) -> Vec<WindowMessage> {
        new.into_iter().map(|message| WindowMessage::injected(self.prepare(message))).collect()
    }

    /// Reads the history: the summary first, then back from the newest message as far as the strategies look.
    async fn read_window(
        &self,
        thread: &Thread,
        memory: &LimitedWindow,
        each: &[Arc<dyn CompactionStrategy>],
        assembly: &mut Assembly,
    ) -> Result<()> {
        let config = &*self.config;
        // A summary tells of all authors: who may not see them all is not told.
        let summary = match &config.summaries {
            Some(summaries) if memory.filter().is_empty() => {
                // A look removes no summary of what is gone.
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
        // A part of a thread is no thread: a summary of it must not stand for the whole.
        let whole = !memory.is_part();
        assembly.read_back(back, whole, each, summary.as_ref());
        Ok(())
    }

    /// Puts the new messages behind what was read, through the strategies that look at each message alone.
    async fn add_new(
        &self,
        each: &[Arc<dyn CompactionStrategy>],
        new: Vec<ChatMessage>,
        assembly: &mut Assembly,
    ) -> Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        let mut window = Window { thread: assembly.window.thread.clone(), messages: self.injected(new) };
        let mut stages = vec![window.messages.clone()];
        for strategy in each {
            window = strategy.compact(window).await?;
            stages.push(window.messages.clone());
        }
        assembly.add(stages);
        Ok(())
    }
}

/// Puts the summary in front of every stage, as the strategies in front leave it.
async fn begin_with(
    back: &mut ReadBack,
    summary: &Summary,
    thread: &Thread,
    each: &[Arc<dyn CompactionStrategy>],
) -> Result<()> {
    let mut window = Window { thread: Some(thread.clone()), messages: vec![summary_message(summary)] };
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
