//! A single inference: the window for the model, and the data to store after the model's answer.

use std::fmt;
use std::time::Duration;

use larder_kernel::{Appended, ChatMessage, Error, IdempotencyKey, Result, RunId, SessionId, Window};

use super::config::{Ephemeral, Memory, Persistence};
use super::left_out::LeftOut;
use super::plan::{Base, Changes, Plan};
use super::sessions::Sessions;
use super::state::{Held, Loaded, Reader, State};
use super::summarize::{Sizes, Summarizer};
use super::window::{Assembled, Parts, Told, with_tokens};
use crate::tokens::tokens_of;

pub(super) const BEGIN: &str = "session.begin";
/// The name of the maker of summaries that a session's profile asks for.
const SESSION: &str = "session";

/// The input of an inference.
#[derive(Debug, Clone)]
pub struct InferenceRequest {
    messages: Vec<ChatMessage>,
    memory: Option<Memory>,
    persistence: Option<Persistence>,
    idempotency_key: Option<IdempotencyKey>,
    run: Option<RunId>,
}

impl InferenceRequest {
    /// Creates a request with new messages: those of the user, or the results of tools.
    #[must_use]
    pub fn new(messages: impl IntoIterator<Item = ChatMessage>) -> Self {
        Self {
            messages: messages.into_iter().collect(),
            memory: None,
            persistence: None,
            idempotency_key: None,
            run: None,
        }
    }

    /// Turns the session's memory on or off for this request, instead of the configured default.
    #[must_use]
    pub fn with_memory(mut self, memory: Memory) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Sets the data to store after this request, instead of the configured default.
    #[must_use]
    pub fn with_persistence(mut self, persistence: Persistence) -> Self {
        self.persistence = Some(persistence);
        self
    }

    /// Makes a retry of the whole inference safe: of all inferences that complete with one key, one is
    /// stored.
    ///
    /// The key of an inference that appends is remembered permanently. The key of one that replaces is
    /// remembered until the next replacement.
    #[must_use]
    pub fn with_idempotency_key(mut self, key: IdempotencyKey) -> Self {
        self.idempotency_key = Some(key);
        self
    }

    /// Sets the run of the messages.
    #[must_use]
    pub fn with_run(mut self, run: RunId) -> Self {
        self.run = Some(run);
        self
    }
}

/// The result of storing an inference.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Persisted {
    /// Nothing was stored: the memory was off or read-only, or the persistence is `EPHEMERAL`.
    Nothing,
    /// The new messages were appended at these positions.
    Appended(Appended),
    /// The whole conversation replaced the contents of the session.
    Replaced,
}

/// An inference with its window, ready for the model's answer.
///
/// Nothing is stored before [`complete`](Self::complete). If you drop the inference, the session stays
/// unchanged.
pub struct Inference {
    pub(super) sessions: Sessions,
    pub(super) id: SessionId,
    pub(super) window: Window,
    pub(super) new: Vec<ChatMessage>,
    pub(super) run: Option<RunId>,
    pub(super) key: IdempotencyKey,
    /// `true` if the caller chose the key, so that another inference may have used it.
    pub(super) is_keyed: bool,
    pub(super) left_out: Vec<LeftOut>,
    pub(super) plan: Plan,
    pub(super) ttl: Option<Duration>,
    summary_failure: Option<Error>,
    pub(super) load_failure: Option<Error>,
    /// `true` if the session's record could not be read, so that its time to live is unknown.
    pub(super) record_unread: bool,
}

impl fmt::Debug for Inference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inference")
            .field("messages", &self.window.messages.len())
            .field("summary_failure", &self.summary_failure)
            .field("load_failure", &self.load_failure)
            .finish_non_exhaustive()
    }
}

/// A window and the data that it was made from.
pub(super) struct Made {
    pub(super) assembled: Assembled,
    /// The state of the session with the new summary.
    pub(super) state: State,
    made_by: Option<&'static str>,
    /// `true` if a summary was due and could not be made.
    missing: bool,
    failure: Option<Error>,
}

/// The state of a due summary.
enum Due {
    No,
    Made(Held),
    /// Another caller holds the claim, or no older messages can be summarized.
    Missing,
}

impl Sessions {
    /// Begins an inference: makes the window for the model.
    ///
    /// Nothing is stored before the inference [completes](Inference::complete). A new summary and the
    /// erasures of a strategy are part of its completion.
    ///
    /// Above the profile's threshold the older messages first become a summary, if a
    /// [summarizer](Self::with_summarizer) is set. The same applies to messages that would otherwise leave
    /// the window earlier. `EPHEMERAL` inferences ask no model.
    ///
    /// While one inference makes the summary, others do not wait: their windows are made without it. An
    /// inference that begins after that uses the same summary, in any process, whether the first completes or
    /// not. Until then the summary is in the key-value store for at most a day, where no reader finds it.
    ///
    /// The window has at most the profile's `max_tokens`, including everything that the model receives.
    /// [`Inference::left_out`] returns the missing messages.
    ///
    /// # Errors
    /// `NotFound`. `InvalidInput` with `messages`, before a model is asked: for a message that cannot be
    /// stored, for a tool result without its call, or for new messages that exceed `max_tokens` together with
    /// the prompt and the hints. The errors of the stores and of the strategies.
    ///
    /// # Cancellation
    /// The session is unchanged.
    ///
    /// # Complexity
    /// O(window), for a session of any length.
    pub async fn begin(&self, id: &SessionId, request: InferenceRequest) -> Result<Inference> {
        let InferenceRequest { messages, memory, persistence, idempotency_key, run } = request;
        messages.iter().try_for_each(|message| message.check(BEGIN))?;
        let new = self.stamped(messages, run.as_ref());
        let is_keyed = idempotency_key.is_some();
        let key = match idempotency_key {
            Some(key) => key,
            None => IdempotencyKey::new(uuid::Uuid::new_v4().to_string())?,
        };
        let mut inference = Inference {
            sessions: self.clone(),
            id: id.clone(),
            window: Window::default(),
            new,
            run,
            key,
            is_keyed,
            left_out: Vec::new(),
            plan: Plan::Nothing,
            ttl: None,
            summary_failure: None,
            load_failure: None,
            record_unread: false,
        };
        if memory.unwrap_or(self.memory) == Memory::Off {
            inference.window = Window::injected(inference.new.iter().cloned());
            return Ok(inference);
        }
        self.look(&mut inference, persistence.unwrap_or(self.persistence)).await?;
        Ok(inference)
    }

    /// Reads the session and makes the window and the plan.
    async fn look(&self, inference: &mut Inference, persistence: Persistence) -> Result<()> {
        let loaded = match self.load(inference, persistence).await {
            Err(error) if self.on_load_error.continues(&error) => {
                return self.begin_empty(inference, persistence, error).await;
            }
            loaded => loaded?,
        };
        let Loaded { record, reader, seen, state } = loaded;
        let thread = self.thread(&inference.id);
        let asks_model = persistence != Persistence::Ephemeral;
        let parts =
            Parts { thread: &thread, record: &record, state: &state, new: &inference.new, asks_model };
        let made = self.make(&reader, parts, &mut Told::default()).await;
        let asked = made.as_ref().map_or(true, |made| made.made_by.is_some() || made.failure.is_some());
        let found = match asks_model && asked {
            // The draft of a summary must not outlive a session that was deleted during the model call.
            true => self.check_still_there(BEGIN, &inference.id).await,
            false => Ok(()),
        };
        let made = made?;
        found?;
        let Made { assembled, state, made_by, missing, failure } = made;
        let Assembled { stored, summary, erases_up_to, writes, .. } = assembled;
        inference.summary_failure = failure;
        inference.window = assembled.window;
        inference.left_out = assembled.left_out;
        let made_by = made_by.filter(|_| summary.is_some());
        let base = Base { seen: seen.unwrap_or_default(), state, summary };
        let changes = Changes { made_by, erases_up_to, writes };
        inference.plan = match persistence {
            _ if !self.reader.view.writes() => Plan::Nothing,
            Persistence::Ephemeral if self.ephemeral == Ephemeral::LosesSession => Plan::Forget,
            Persistence::Ephemeral => Plan::Nothing,
            // If the due summary is missing, the messages that it should have covered stay stored.
            Persistence::Flush if !missing => Plan::Replace(base, stored, changes),
            _ => Plan::Append(base, changes),
        };
        Ok(())
    }

    /// Makes the due summary and the window, without storing anything.
    pub(super) async fn make(&self, reader: &Reader, parts: Parts<'_>, told: &mut Told) -> Result<Made> {
        let fixed = self.assembler.fixed(&*reader.counter, &parts)?;
        let mut state = parts.state.clone();
        let (mut made_by, mut missing, mut failure) = (None, false, None);
        if parts.asks_model {
            match Box::pin(self.summarized(reader, &parts, fixed)).await {
                Ok(Due::Made(held)) => {
                    made_by = Some(SESSION);
                    state.take_in(held);
                }
                Ok(due) => missing = matches!(due, Due::Missing),
                Err(error) => {
                    self.watch.summary_failed();
                    if self.summarizer.as_ref().is_some_and(Summarizer::fails) {
                        return Err(error);
                    }
                    missing = true;
                    failure = Some(error);
                }
            }
        }
        let parts = Parts { state: &state, ..parts };
        let mut assembled = self.assembler.assemble(reader, &parts, fixed, told).await?;
        missing |= assembled.summary_missing;
        let failure = failure.or(assembled.failure.take());
        Ok(Made { made_by: assembled.made_by.or(made_by), assembled, state, missing, failure })
    }

    /// Makes the summary that is due before the window.
    async fn summarized(&self, reader: &Reader, parts: &Parts<'_>, fixed: u64) -> Result<Due> {
        let profile = &parts.record.profile;
        let (Some(summarizer), Some(max_tokens), Some(threshold)) =
            (&self.summarizer, profile.max_tokens(), profile.summarization_threshold())
        else {
            return Ok(Due::No);
        };
        let sizes = Sizes { max_tokens, threshold, fixed };
        if !summarizer.is_due(reader, parts.state, sizes) {
            return Ok(Due::No);
        }
        let made = summarizer.run(reader, parts.thread, parts.state, sizes).await?;
        Ok(made.map_or(Due::Missing, Due::Made))
    }

    /// Prepares messages for storage: counts their tokens once and sets the run.
    pub(crate) fn stamped(&self, messages: Vec<ChatMessage>, run: Option<&RunId>) -> Vec<ChatMessage> {
        let stamp = |mut message: ChatMessage| {
            if message.token_count.is_none() {
                let tokens = tokens_of(&*self.reader.counter, &message);
                message = with_tokens(message, tokens);
            }
            if message.run.is_none() {
                message.run = run.cloned();
            }
            if message.author.is_none() {
                message.author.clone_from(&self.author);
            }
            message
        };
        messages.into_iter().map(stamp).collect()
    }
}

impl Inference {
    /// Returns the window for the model.
    #[must_use]
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Returns the error of a due summary that failed, if the window was made without it.
    #[must_use]
    pub fn summary_failure(&self) -> Option<&Error> {
        self.summary_failure.as_ref()
    }

    /// Returns the error of a session that could not be loaded, if the window was made without its messages.
    /// See [`Sessions::with_on_load_error`].
    #[must_use]
    pub fn load_failure(&self) -> Option<&Error> {
        self.load_failure.as_ref()
    }

    /// Returns the stored messages that are missing from the window and that its summary does not cover,
    /// grouped by the step that left them out. These messages stay stored, unless the strategy erases them or
    /// the inference is a `FLUSH`.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Ends the inference without an answer. The session stays unchanged.
    pub fn cancel(self) {
        drop(self);
    }
}
