//! One inference: the window for the model, and what is stored when it has answered.

use std::fmt;
use std::time::Duration;

use larder_kernel::{
    Appended, ChatMessage, Error, IdempotencyKey, Result, RunId, Seq, SessionId, StrategyEffect, Window,
};
use tokio::time::Instant;

use super::config::{Ephemeral, Memory, Persistence};
use super::left_out::LeftOut;
use super::plan::{Base, Changes, Plan};
use super::sessions::Sessions;
use super::state::{Held, Reader, State, Walk};
use super::summarize::{Sizes, Summarizer};
use super::window::{Assembled, Parts, Told, with_tokens};
use crate::tokens::tokens_of;

const BEGIN: &str = "session.begin";
/// The maker of the summaries that a session's profile asks for.
const SESSION: &str = "session";

/// What an inference is asked with.
#[derive(Debug, Clone)]
pub struct InferenceRequest {
    messages: Vec<ChatMessage>,
    memory: Option<Memory>,
    persistence: Option<Persistence>,
    idempotency_key: Option<IdempotencyKey>,
    run: Option<RunId>,
}

impl InferenceRequest {
    /// Asks with new messages: the user's, or the results of tools.
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

    /// Says whether the session's memory is used, in the place of what the sessions are configured to do.
    #[must_use]
    pub fn with_memory(mut self, memory: Memory) -> Self {
        self.memory = Some(memory);
        self
    }

    /// Says what is stored afterwards, in the place of what the sessions are configured to store.
    #[must_use]
    pub fn with_persistence(mut self, persistence: Persistence) -> Self {
        self.persistence = Some(persistence);
        self
    }

    /// Makes a repetition of the whole inference harmless: of all that complete with one key, one is stored.
    ///
    /// An appending inference's key is remembered for good, a replacing one's until the next replacement.
    #[must_use]
    pub fn with_idempotency_key(mut self, key: IdempotencyKey) -> Self {
        self.idempotency_key = Some(key);
        self
    }

    /// Names the run that the messages belong to.
    #[must_use]
    pub fn with_run(mut self, run: RunId) -> Self {
        self.run = Some(run);
        self
    }
}

/// What an inference stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Persisted {
    /// Nothing: the memory was off or is only read, or the persistence is `EPHEMERAL`.
    Nothing,
    /// The new messages, here.
    Appended(Appended),
    /// The whole conversation, in the place of what the session held.
    Replaced,
}

/// An inference that has its window and waits for the model's answer.
///
/// Nothing is stored before [`complete`](Self::complete); dropping the inference leaves the session as it was.
pub struct Inference {
    pub(super) sessions: Sessions,
    pub(super) id: SessionId,
    window: Window,
    pub(super) new: Vec<ChatMessage>,
    pub(super) run: Option<RunId>,
    pub(super) key: IdempotencyKey,
    left_out: Vec<LeftOut>,
    pub(super) plan: Plan,
    pub(super) ttl: Option<Duration>,
    summary_failure: Option<Error>,
}

impl fmt::Debug for Inference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inference")
            .field("messages", &self.window.messages.len())
            .field("summary_failure", &self.summary_failure)
            .finish_non_exhaustive()
    }
}

/// A window, and what it was made of.
pub(super) struct Made {
    pub(super) assembled: Assembled,
    /// The session as it is with the new summary.
    pub(super) state: State,
    made_by: Option<&'static str>,
    /// Whether a summary was due and is missing.
    missing: bool,
    failure: Option<Error>,
}

/// Whether a summary of the session is due.
enum Due {
    No,
    Made(Held),
    /// Somebody else is at it, or there is nothing older to summarize.
    Missing,
}

impl Sessions {
    /// Begins an inference: makes the window that the model is to see (ATH-2, ATH-4 to ATH-7).
    ///
    /// Nothing is stored before the inference [completes](Inference::complete): a summary that was made and what a
    /// strategy erases are part of its completion.
    ///
    /// Past the profile's threshold the older messages become a summary first, if there is a
    /// [summarizer](Self::with_summarizer); so do messages that would leave the window before that. `EPHEMERAL` inferences
    /// ask no model. While one inference makes the summary, others do not wait: their windows are made without it. An
    /// inference that begins after that and before the first completes may ask the model again; one summary is stored.
    /// The window holds at most the profile's `max_tokens`, everything that the model receives included;
    /// [`Inference::left_out`] says which messages it lacks.
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` naming `messages` for a message that cannot be stored, a tool's result that answers no
    /// call, or new messages that are over `max_tokens` together with the prompt and the hints, before a model is asked;
    /// the stores' own and the strategies'.
    ///
    /// # Cancellation
    /// The session is as it was.
    ///
    /// # Complexity
    /// O(window), whatever the length of the session.
    pub async fn begin(&self, id: &SessionId, request: InferenceRequest) -> Result<Inference> {
        let InferenceRequest { messages, memory, persistence, idempotency_key, run } = request;
        messages.iter().try_for_each(|message| message.check(BEGIN))?;
        let new = self.stamped(messages, run.as_ref());
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
            left_out: Vec::new(),
            plan: Plan::Nothing,
            ttl: None,
            summary_failure: None,
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
        let thread = self.thread(&inference.id);
        let started = Instant::now();
        let (record, reader) = self.used(BEGIN, &inference.id).await?;
        inference.ttl = record.ttl();
        self.check_view(BEGIN, Some(&record.profile), persistence)?;
        let replaces = persistence == Persistence::Flush;
        let seen = match replaces || self.assembler.effect() == StrategyEffect::Erases {
            true => Some(reader.history.thread_info(&thread).await?.last),
            false => None,
        };
        let walk = Walk {
            reach: self.assembler.reach(&record),
            tokens: self.summarizer.as_ref().and(record.profile.summarization_threshold()),
            // What arrives from now on stays behind a replacement, so it is no part of what replaces.
            before: seen.filter(|_| replaces).map(|last| Seq::new(last.get().saturating_add(1))),
        };
        let state = reader.read(&thread, walk).await?;
        self.watch.loaded(started.elapsed());
        let asks_model = persistence != Persistence::Ephemeral;
        let parts =
            Parts { thread: &thread, record: &record, state: &state, new: &inference.new, asks_model };
        let made = self.make(&reader, parts, &mut Told::default()).await?;
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
            // What a summary that was due should have told of stays stored.
            Persistence::Flush if !missing => Plan::Replace(base, stored, changes),
            _ => Plan::Append(base, changes),
        };
        Ok(())
    }

    /// Makes the summary that is due, and the window, without storing anything.
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

    /// The summary that is due before the window is made.
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

    /// The messages as they are stored: counted once, and tagged with the run.
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
    /// What the model is to see.
    #[must_use]
    pub fn window(&self) -> &Window {
        &self.window
    }

    /// Why the summary that was due is not there, where it failed and the window was made without.
    #[must_use]
    pub fn summary_failure(&self) -> Option<&Error> {
        self.summary_failure.as_ref()
    }

    /// Which stored messages the window lacks and its summary does not cover, by what left them out. Messages that were
    /// left out are stored on, unless the strategy erases them or the inference is a `FLUSH`.
    #[must_use]
    pub fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    /// Ends the inference without an answer. The session is as it was.
    pub fn cancel(self) {
        drop(self);
    }
}
