//! The sessions of an agent.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use larder_kernel::{
    AgentId, CompactionStrategy, Error, ErrorKind, HistoryProvider, KeyValueStore, LanguageModel,
    PageRequest, Result, SessionId, StoredMessage, Thread, check,
};
use tokio::time::Instant;

use super::metrics::{SessionAlert, SessionStats, SessionThresholds, Watch};
use super::profile::SessionProfile;
use super::record::{Hint, Records, Update};
use super::state::Reader;
use super::summarize::{OnSummaryFailure, Summarizer, SummaryPolicy};
use super::window::{Assembler, HintOrder, hint_tokens, hints_tokens};
use crate::compaction::SummaryStore;
use crate::tokens::TokenCounter;

/// Longest system prompt, in bytes of UTF-8.
pub const SYSTEM_PROMPT_BYTES_MAX: usize = 1024 * 1024;
/// Longest hint, in bytes of UTF-8.
pub const HINT_BYTES_MAX: usize = 4 * 1024;
/// Most hints of a session.
pub const HINTS_MAX: usize = 256;

/// How long a model may take for a summary when nothing else is said.
const SUMMARY_TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);
/// The agent of sessions when none is named.
const AGENT_DEFAULT: &str = "default";
/// Threads per page of a measurement.
const PAGE_THREADS: usize = 1_000;

/// A session as it stands.
#[derive(Clone, PartialEq)]
pub struct Session {
    /// Its id.
    pub id: SessionId,
    /// How much of it the model sees.
    pub profile: SessionProfile,
    /// What stands first in every window.
    pub system_prompt: String,
    /// All stored messages, oldest first.
    pub messages: Vec<StoredMessage>,
    /// What the older messages say, told shorter.
    pub summary: Option<String>,
    /// What the model should always know, in the order it was added.
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

/// The sessions of an agent, on any stores.
///
/// ```
/// use std::sync::Arc;
/// use larder_agents::session::{InferenceRequest, SessionProfile, Sessions};
/// use larder_agents::tokens::TokenCounter;
/// use larder_agents::{InMemoryHistoryProvider, InMemoryKeyValueStore};
/// use larder_kernel::ChatMessage;
///
/// #[derive(Debug)]
/// struct Words;
///
/// impl TokenCounter for Words {
///     fn name(&self) -> &str {
///         "words"
///     }
///     fn count(&self, text: &str) -> u64 {
///         text.split_whitespace().map(|_| 1).sum()
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let sessions = Sessions::new(
///     Arc::new(InMemoryHistoryProvider::new()),
///     Arc::new(InMemoryKeyValueStore::new()),
///     Arc::new(Words),
/// )?;
/// let id = sessions.create(SessionProfile::default(), "You are terse.").await?;
/// sessions.add_hint(&id, "The user is from Oslo").await?;
///
/// let turn = sessions.begin(&id, InferenceRequest::new([ChatMessage::user("What is 2 + 2?")])).await?;
/// // The window goes to a model, and the answer into the session.
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
    agent: AgentId,
    pub(crate) records: Records,
    pub(crate) reader: Reader,
    pub(crate) assembler: Assembler,
    pub(crate) summarizer: Option<Summarizer>,
    pub(crate) watch: Watch,
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
    /// Sessions of the agent `default`, with messages in `history`, and records and summaries in `store`.
    ///
    /// # Errors
    /// None that the fixed names can cause.
    pub fn new(
        history: Arc<dyn HistoryProvider>,
        store: Arc<dyn KeyValueStore>,
        counter: Arc<dyn TokenCounter>,
    ) -> Result<Self> {
        let agent = AgentId::new(AGENT_DEFAULT)?;
        let summaries = SummaryStore::new(store.clone())?;
        Ok(Self {
            records: Records::new(store, agent.clone())?,
            agent,
            reader: Reader { history, summaries, counter },
            assembler: Assembler::default(),
            summarizer: None,
            watch: Watch::default(),
        })
    }

    /// The sessions of another agent: their threads are under its id.
    #[must_use]
    pub fn with_agent(mut self, agent: AgentId) -> Self {
        self.records = self.records.with_agent(agent.clone());
        self.agent = agent;
        self
    }

    /// Lets a model summarize sessions past their threshold. Without one there are no summaries.
    #[must_use]
    pub fn with_summarizer(mut self, model: Arc<dyn LanguageModel>) -> Self {
        self.summarizer = Some(Summarizer {
            model,
            policy: SummaryPolicy::default(),
            on_failure: OnSummaryFailure::default(),
            timeout: SUMMARY_TIMEOUT_DEFAULT,
        });
        self
    }

    /// Says when to summarize, what to do when it fails, and how long one answer of the model may take. Nothing without
    /// a [summarizer](Self::with_summarizer).
    #[must_use]
    pub fn with_summaries(
        mut self,
        policy: SummaryPolicy,
        on_failure: OnSummaryFailure,
        timeout: Duration,
    ) -> Self {
        if let Some(summarizer) = &mut self.summarizer {
            (summarizer.policy, summarizer.on_failure, summarizer.timeout) = (policy, on_failure, timeout);
        }
        self
    }

    /// Says where the hints stand.
    #[must_use]
    pub fn with_hint_order(mut self, order: HintOrder) -> Self {
        self.assembler.hint_order = order;
        self
    }

    /// Puts the stored messages through these strategies, in this order, before the profile's limit.
    #[must_use]
    pub fn with_strategies(mut self, strategies: Vec<Arc<dyn CompactionStrategy>>) -> Self {
        self.assembler.strategies = strategies;
        self
    }

    /// Sets the limits past which alerts are raised.
    ///
    /// # Errors
    /// What [`SessionThresholds::check`] refuses.
    pub fn with_thresholds(mut self, thresholds: SessionThresholds) -> Result<Self> {
        thresholds.check()?;
        self.watch.set_thresholds(thresholds);
        Ok(self)
    }

    /// Calls a function with each alert. It runs where the limit was passed, so it should not take long.
    #[must_use]
    pub fn with_on_alert(mut self, on_alert: impl Fn(&SessionAlert) + Send + Sync + 'static) -> Self {
        self.watch.set_on_alert(Arc::new(on_alert));
        self
    }

    /// The thread of a session.
    #[must_use]
    pub fn thread(&self, id: &SessionId) -> Thread {
        Thread { agent: self.agent.clone(), session: id.clone() }
    }

    /// Creates a session and returns its id, which nobody can guess (ATH-1).
    ///
    /// # Errors
    /// `InvalidInput` naming `system_prompt` or a field of the profile: a prompt over 1 MiB, or one that does not fit
    /// into `max_tokens`; the store's own.
    ///
    /// # Cancellation
    /// Created or not created.
    pub async fn create(
        &self,
        profile: SessionProfile,
        system_prompt: impl Into<String>,
    ) -> Result<SessionId> {
        let id = SessionId::new(uuid::Uuid::new_v4().to_string())?;
        self.create_as(&id, profile, system_prompt).await?;
        Ok(id)
    }

    /// Creates a session with an id of the caller's.
    ///
    /// # Errors
    /// As [`create`](Self::create), and `AlreadyExists`.
    ///
    /// # Cancellation
    /// Created or not created.
    pub async fn create_as(
        &self,
        id: &SessionId,
        profile: SessionProfile,
        system_prompt: impl Into<String>,
    ) -> Result<()> {
        const OPERATION: &str = "session.create";
        let prompt: String = system_prompt.into();
        profile.check()?;
        check::at_most(OPERATION, "system_prompt", prompt.len(), SYSTEM_PROMPT_BYTES_MAX)?;
        let tokens = self.reader.counter.count(&prompt);
        self.check_room(OPERATION, "max_tokens", &profile, tokens)?;
        let record = self.records.draft(id, profile, prompt, tokens);
        self.records.create(OPERATION, id, &record).await
    }

    /// Reads a session whole: its messages, its summary, its hints and its profile (ATH-1).
    ///
    /// # Errors
    /// `NotFound`; the stores' own.
    ///
    /// # Cancellation
    /// Nothing to undo.
    ///
    /// # Complexity
    /// O(messages).
    pub async fn get(&self, id: &SessionId) -> Result<Session> {
        let started = Instant::now();
        let record = self.records.need("session.get", id).await?;
        let (messages, held) = self.reader.read_all(&self.thread(id)).await?;
        self.watch.loaded(started.elapsed());
        Ok(Session {
            id: id.clone(),
            profile: record.profile,
            system_prompt: record.system_prompt,
            messages,
            summary: held.map(|held| held.text),
            hints: record.hints.into_iter().map(|hint| hint.text).collect(),
        })
    }

    /// Deletes a session with its messages and its summary, and says whether it was there (ATH-1).
    ///
    /// Repeating it is harmless, and finishes a deletion that was cut off. An inference that completes afterwards is
    /// `NotFound` and leaves nothing behind.
    ///
    /// # Errors
    /// The stores' own.
    ///
    /// # Cancellation
    /// The session is there, or gone for everybody; what is left of it goes when the call is repeated.
    pub async fn delete(&self, id: &SessionId) -> Result<bool> {
        const OPERATION: &str = "session.delete";
        let was_there = self.records.mark_deleted(OPERATION, id).await?;
        self.wipe(id).await?;
        self.records.remove_deleted(OPERATION, id).await?;
        Ok(was_there)
    }

    /// Adds a hint at the end, and says whether it is new (ATH-6). Hints survive every summary.
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` naming `hint` for an empty one, one over 4 KiB, one that does not fit into
    /// `max_tokens` beside the others, or more than 256 hints; the store's own.
    ///
    /// # Cancellation
    /// Added or not added.
    pub async fn add_hint(&self, id: &SessionId, hint: &str) -> Result<bool> {
        const OPERATION: &str = "session.add_hint";
        check::at_least(OPERATION, "hint", hint.trim().len(), 1)?;
        check::at_most(OPERATION, "hint", hint.len(), HINT_BYTES_MAX)?;
        let tokens = hint_tokens(&*self.reader.counter, hint);
        let change = |record: &mut super::record::Record| {
            if record.hints.iter().any(|known| known.text == hint) {
                return Ok(Update::Keep(false));
            }
            check::at_most(OPERATION, "hint", record.hints.len() + 1, HINTS_MAX)?;
            record.hints.push(Hint { text: hint.to_owned(), tokens });
            let fixed = record.system_prompt_tokens + hints_tokens(&*self.reader.counter, &record.hints);
            self.check_room(OPERATION, "hint", &record.profile, fixed)?;
            Ok(Update::Write(true))
        };
        self.records.update(OPERATION, id, change).await
    }

    /// Removes a hint and says whether it was there.
    ///
    /// # Errors
    /// `NotFound`; the store's own.
    ///
    /// # Cancellation
    /// Removed or not removed.
    pub async fn remove_hint(&self, id: &SessionId, hint: &str) -> Result<bool> {
        let change = |record: &mut super::record::Record| {
            let before = record.hints.len();
            record.hints.retain(|known| known.text != hint);
            Ok(if record.hints.len() == before { Update::Keep(false) } else { Update::Write(true) })
        };
        self.records.update("session.remove_hint", id, change).await
    }

    /// Counts the agent's sessions and what they hold, sets the gauges, and raises an alert where there are too many
    /// (PK-6). Call it from time to time; it reads counts, no messages.
    ///
    /// # Errors
    /// The stores' own.
    ///
    /// # Cancellation
    /// Nothing to undo.
    ///
    /// # Complexity
    /// O(sessions).
    // The average is for people: beyond 2^53 messages it shows the nearest float.
    #[allow(clippy::cast_precision_loss)]
    pub async fn measure(&self) -> Result<SessionStats> {
        let active_sessions = self.records.count().await?;
        let (mut messages, mut bytes_stored) = (0_u64, 0_u64);
        let mut page = PageRequest::first(PAGE_THREADS);
        loop {
            let listed = self.reader.history.list_threads(Some(&self.agent), page).await?;
            for thread in &listed.items {
                messages += thread.messages;
                bytes_stored += thread.bytes;
            }
            let Some(next) = listed.next else { break };
            page = PageRequest::after(next, PAGE_THREADS);
        }
        let history_messages_avg =
            if active_sessions == 0 { 0.0 } else { messages as f64 / active_sessions as f64 };
        let stats = SessionStats { active_sessions, history_messages_avg, bytes_stored };
        self.watch.measured(&stats);
        Ok(stats)
    }

    /// Removes what a session that is gone holds outside its record.
    async fn wipe(&self, id: &SessionId) -> Result<()> {
        let thread = self.thread(id);
        self.reader.history.clear(&thread).await?;
        self.reader.summaries.remove(&thread).await?;
        Ok(())
    }

    /// After a write: where the session went meanwhile, the write must go too.
    pub(crate) async fn check_still_there(&self, operation: &'static str, id: &SessionId) -> Result<()> {
        match self.records.need(operation, id).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.wipe(id).await?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    fn check_room(
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
                "the system prompt and the hints do not fit into the window",
            )
            .with_limit(tokens, max_tokens)),
            _ => Ok(()),
        }
    }
}
