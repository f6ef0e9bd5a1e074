//! The sessions of an agent.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use larder_kernel::{
    AgentId, Author, CompactionStrategy, Error, HistoryProvider, KeyValueStore, LanguageModel, Result,
    SessionId, StoredMessage, StrategyEffect, Thread, check,
};

use super::config::{Ephemeral, Memory, Persistence};
use super::knowledge::Knowledge;
use super::metrics::{SessionAlert, SessionThresholds, Watch};
use super::profile::SessionProfile;
use super::record::Records;
use super::state::Reader;
use super::summarize::{OnSummaryFailure, Summarizer, SummaryOptions, SummaryPolicy};
use super::window::{Assembler, HintOrder};
use crate::compaction::{KnowledgeBase, SummaryStore};
use crate::context::memory::LimitedWindow;
use crate::load::OnLoadError;
use crate::tokens::{EstimatedTokenCounter, TokenCounter};

/// The longest system prompt, in bytes of UTF-8.
pub const SYSTEM_PROMPT_BYTES_MAX: usize = 1024 * 1024;
/// The longest hint, in bytes of UTF-8.
pub const HINT_BYTES_MAX: usize = 4 * 1024;
/// The largest number of hints in a session.
pub const HINTS_MAX: usize = 256;

/// The default agent of sessions.
const AGENT_DEFAULT: &str = "default";

/// The state of a session.
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub struct Session {
    /// The session's id.
    pub id: SessionId,
    /// The part of the session that the model sees.
    pub profile: SessionProfile,
    /// The system prompt, the first message of every window.
    pub system_prompt: String,
    /// All stored messages, oldest first.
    pub messages: Vec<StoredMessage>,
    /// The summary of the older messages.
    pub summary: Option<String>,
    /// The hints, which every window contains, in the order in which they were added.
    pub hints: Vec<String>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("profile", &self.profile)
            .field("messages", &self.messages.len())
            .field("summary", &self.summary.is_some())
            .field("hints", &self.hints.len())
            .finish_non_exhaustive()
    }
}

/// A session without its messages and its summary.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SessionInfo {
    /// The session's id.
    pub id: SessionId,
    /// The part of the session that the model sees.
    pub profile: SessionProfile,
    /// The system prompt, the first message of every window.
    pub system_prompt: String,
    /// The hints, which every window contains, in the order in which they were added.
    pub hints: Vec<String>,
}

impl fmt::Debug for SessionInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionInfo")
            .field("profile", &self.profile)
            .field("hints", &self.hints.len())
            .finish_non_exhaustive()
    }
}

/// The sessions of an agent, on any stores.
///
/// ```
/// use std::sync::Arc;
/// use larder_agents::session::{InferenceRequest, SessionProfile, Sessions};
/// use larder_agents::{InMemoryHistoryProvider, InMemoryKeyValueStore};
/// use larder_kernel::ChatMessage;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let sessions = Sessions::new(
///     Arc::new(InMemoryHistoryProvider::new()),
///     Arc::new(InMemoryKeyValueStore::new()),
/// )?;
/// let id = sessions.create(SessionProfile::default(), "You are terse.").await?;
/// sessions.add_hint(&id, "The user is from Oslo").await?;
///
/// let turn = sessions.begin(&id, InferenceRequest::new([ChatMessage::user("What is 2 + 2?")])).await?;
/// // Send the window to a model, and store its answer in the session.
/// turn.complete([ChatMessage::assistant("4")]).await?;
///
/// let turn = sessions.begin(&id, InferenceRequest::new([ChatMessage::user("Times 3?")])).await?;
/// let texts: Vec<_> = turn.window().messages.iter().map(|message| message.message.text.clone()).collect();
/// assert_eq!(
///     texts,
///     ["You are terse.", "[Important context]\n- The user is from Oslo", "What is 2 + 2?", "4", "Times 3?"]
/// );
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Sessions {
    pub(crate) agent: AgentId,
    pub(crate) records: Records,
    pub(crate) reader: Reader,
    pub(crate) assembler: Assembler,
    pub(crate) summarizer: Option<Summarizer>,
    pub(crate) summary_options: SummaryOptions,
    pub(crate) watch: Watch,
    pub(crate) ttl: Option<Duration>,
    /// The profile of new sessions.
    pub(crate) profile: SessionProfile,
    /// `true` if a configuration document sets the profile.
    pub(crate) has_profile: bool,
    pub(crate) persistence: Persistence,
    pub(crate) memory: Memory,
    pub(crate) ephemeral: Ephemeral,
    pub(crate) author: Option<Author>,
    pub(crate) knowledge: Option<Knowledge>,
    /// The collections that the configuration document searches.
    pub(crate) bases: Vec<KnowledgeBase>,
    pub(crate) on_load_error: OnLoadError,
}

impl fmt::Debug for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sessions")
            .field("records", &self.records)
            .field("reader", &self.reader)
            .field("watch", &self.watch)
            .finish_non_exhaustive()
    }
}

impl Sessions {
    /// Creates the sessions of the agent `default`, with messages in `history`, and records and summaries in
    /// `store`. By default, token counts are estimates and sessions do not expire.
    ///
    /// # Errors
    /// None in practice: the fixed names are valid.
    pub fn new(history: Arc<dyn HistoryProvider>, store: Arc<dyn KeyValueStore>) -> Result<Self> {
        let agent = AgentId::new(AGENT_DEFAULT)?;
        let summaries = SummaryStore::new(store.clone())?;
        Ok(Self {
            records: Records::new(store, agent.clone())?,
            agent,
            reader: Reader {
                history,
                summaries,
                counter: Arc::new(EstimatedTokenCounter),
                view: LimitedWindow::new().without_max_bytes(),
            },
            assembler: Assembler::default(),
            summarizer: None,
            summary_options: SummaryOptions::default(),
            watch: Watch::default(),
            ttl: None,
            profile: SessionProfile::default(),
            has_profile: false,
            persistence: Persistence::default(),
            memory: Memory::default(),
            ephemeral: Ephemeral::default(),
            author: None,
            knowledge: None,
            bases: Vec::new(),
            on_load_error: OnLoadError::default(),
        })
    }

    /// Counts tokens with `counter` instead of estimating them.
    #[must_use]
    pub fn with_token_counter(mut self, counter: Arc<dyn TokenCounter>) -> Self {
        self.reader.counter = counter;
        self
    }

    /// Sets the time to live of sessions created from now on, counted from their last use. It applies to the
    /// record with its prompt and hints, to the messages and to the summary.
    ///
    /// Each use by any caller restarts the time: reading a session, beginning and completing an inference,
    /// and changing hints. Each restart writes the small record once.
    ///
    /// # Errors
    /// `InvalidInput` with `ttl` for less than 1 ms or more than 100 years.
    pub fn with_ttl(mut self, ttl: Duration) -> Result<Self> {
        check::ttl("session.config", "ttl", ttl)?;
        self.ttl = Some(ttl);
        Ok(self)
    }

    /// Selects the sessions of another agent. Their threads are stored under its id.
    #[must_use]
    pub fn with_agent(mut self, agent: AgentId) -> Self {
        self.records = self.records.with_agent(agent.clone());
        self.agent = agent;
        self
    }

    /// Summarizes sessions above their threshold with `model`. Without a model, no summaries are made.
    #[must_use]
    pub fn with_summarizer(mut self, model: Arc<dyn LanguageModel>) -> Self {
        self.summarizer = Some(Summarizer { model, options: self.summary_options, answers: Arc::default() });
        self
    }

    /// Sets the summary policy, the reaction to a failed summary, and the time limit of one model call. The
    /// order of this call and of [`with_summarizer`](Self::with_summarizer) does not matter. The strategies
    /// of a [document](Self::configured) use the reaction and the time limit that are set before it.
    #[must_use]
    pub fn with_summaries(
        mut self,
        policy: SummaryPolicy,
        on_failure: OnSummaryFailure,
        timeout: Duration,
    ) -> Self {
        self.summary_options = SummaryOptions { policy, on_failure, timeout: Some(timeout) };
        if let Some(summarizer) = &mut self.summarizer {
            summarizer.options = self.summary_options;
        }
        self
    }

    /// Sets the position of the hints in the window.
    #[must_use]
    pub fn with_hint_order(mut self, order: HintOrder) -> Self {
        self.assembler.hint_order = order;
        self
    }

    /// Applies these strategies to the stored messages, in order, before the profile's limit.
    #[must_use]
    pub fn with_strategies(mut self, strategies: Vec<Arc<dyn CompactionStrategy>>) -> Self {
        self.assembler.strategies = strategies;
        self
    }

    /// Sets the author of messages that have none. Agents that share a session use the sessions of one agent,
    /// by [`with_agent`](Self::with_agent), and each sets its own author.
    #[must_use]
    pub fn with_author(mut self, author: Author) -> Self {
        self.author = Some(author);
        self
    }

    /// Sets the part of a session that the agent sees, and turns the storing of its inferences on or off. By
    /// default, the agent sees everything and its inferences are stored.
    ///
    /// # Errors
    /// The errors of [`LimitedWindow::check`]. `InvalidInput` with `memory` if it shows only a part of a
    /// session and a strategy is set that summarizes or erases, because that strategy needs the whole
    /// session. The same applies if a [document](Self::configured) sets a profile with summaries or the
    /// persistence `FLUSH`. [`begin`](Self::begin) returns the same error if such strategies are set later,
    /// if the session's profile asks for summaries, and for a `FLUSH`.
    pub fn with_memory(mut self, memory: LimitedWindow) -> Result<Self> {
        memory.check()?;
        self.reader.view = memory;
        let profile = self.has_profile.then_some(&self.profile);
        self.check_view("session.config", profile, self.persistence)?;
        Ok(self)
    }

    /// Sets the default for inferences whose request does not set [`Memory`]. Without this call, they use the
    /// memory of their session.
    #[must_use]
    pub fn with_default_memory(mut self, memory: Memory) -> Self {
        self.memory = memory;
        self
    }

    /// Sets the effect of an `EPHEMERAL` inference on the session. By default, the session is kept.
    #[must_use]
    pub fn with_ephemeral(mut self, ephemeral: Ephemeral) -> Self {
        self.ephemeral = ephemeral;
        self
    }

    /// Rejects operations that need the whole session, for an agent that sees only a part of it.
    pub(crate) fn check_view(
        &self,
        operation: &'static str,
        profile: Option<&SessionProfile>,
        persistence: Persistence,
    ) -> Result<()> {
        let view = &self.reader.view;
        if view.reads() && !view.is_part() {
            return Ok(());
        }
        let message = if self.assembler.effect() > StrategyEffect::None {
            "reads a part of the session, but a strategy of `strategies` summarizes or erases all of it; \
             remove one of them"
        } else if self.summarizer.is_some() && profile.is_some_and(|p| p.summarization_threshold().is_some())
        {
            "reads a part of the session, but `summarization_threshold` asks for a summary of all of it; \
             remove one of them"
        } else if persistence == Persistence::Flush && view.writes() {
            "reads a part of the session, but the `persistence` FLUSH replaces all of it; use another \
             persistence"
        } else {
            return Ok(());
        };
        Err(Error::invalid(operation, "memory", message))
    }

    /// Sets the limits above which alerts are raised.
    ///
    /// # Errors
    /// The errors of [`SessionThresholds::check`].
    pub fn with_thresholds(mut self, thresholds: SessionThresholds) -> Result<Self> {
        thresholds.check()?;
        self.watch.set_thresholds(thresholds);
        Ok(self)
    }

    /// Calls `on_alert` with each alert. It runs inside the call that exceeded the limit, so keep it short.
    #[must_use]
    pub fn with_on_alert(mut self, on_alert: impl Fn(&SessionAlert) + Send + Sync + 'static) -> Self {
        self.watch.set_on_alert(Arc::new(on_alert));
        self
    }

    /// Returns the thread of a session.
    #[must_use]
    pub fn thread(&self, id: &SessionId) -> Thread {
        Thread { agent: self.agent.clone(), session: id.clone() }
    }

    pub(crate) fn check_room(
        &self,
        operation: &'static str,
        field: &'static str,
        profile: &SessionProfile,
        tokens: u64,
    ) -> Result<()> {
        match profile.max_tokens() {
            Some(max_tokens) if tokens > max_tokens => Err(Error::invalid(
                operation,
                field,
                "the system prompt and the hints exceed the window; shorten them or raise `max_tokens`",
            )
            .with_limit(tokens, max_tokens)),
            _ => Ok(()),
        }
    }
}
