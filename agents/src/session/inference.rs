//! One inference: the window for the model, and what is stored when it has answered.

use std::fmt;
use std::time::Duration;

use larder_kernel::{
    AppendOptions, Appended, ChatMessage, Error, ErrorKind, IdempotencyKey, Replacement, Result, RunId, Seq,
    SessionId, StoredMessage, Thread, Ttl, Window,
};
use tokio::time::Instant;

use super::config::Persistence;
use super::flush::Mark;
use super::record::Record;
use super::sessions::Sessions;
use super::state::{Held, Reader, State, Walk};
use super::summarize::{OnSummaryFailure, Sizes};
use super::window::{Told, with_tokens};
use crate::tokens::tokens_of;

const BEGIN: &str = "session.begin";
const COMPLETE: &str = "session.complete";

/// Whether a request uses the session's memory (ATH-2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Memory {
    /// The session is prepended, and what is said is stored.
    #[default]
    On,
    /// The session is neither read nor written.
    Off,
}

/// What an inference is asked with.
#[derive(Debug, Clone)]
pub struct InferenceRequest {
    messages: Vec<ChatMessage>,
    memory: Memory,
    persistence: Persistence,
    idempotency_key: Option<IdempotencyKey>,
    run: Option<RunId>,
}

impl InferenceRequest {
    /// Asks with new messages: the user's, or the results of tools.
    #[must_use]
    pub fn new(messages: impl IntoIterator<Item = ChatMessage>) -> Self {
        Self {
            messages: messages.into_iter().collect(),
            memory: Memory::default(),
            persistence: Persistence::default(),
            idempotency_key: None,
            run: None,
        }
    }

    /// Says whether the session's memory is used.
    #[must_use]
    pub fn with_memory(mut self, memory: Memory) -> Self {
        self.memory = memory;
        self
    }

    /// Says what is stored afterwards.
    #[must_use]
    pub fn with_persistence(mut self, persistence: Persistence) -> Self {
        self.persistence = persistence;
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
    /// Nothing: the memory was off, or the persistence is `EPHEMERAL`.
    Nothing,
    /// The new messages, here.
    Appended(Appended),
    /// The whole conversation, in the place of what the session held.
    Replaced,
}

/// What the replacement of a session rests on.
struct Base {
    seen: Seq,
    stored: Vec<StoredMessage>,
    summary: Option<Held>,
    mark: Option<Mark>,
    /// Whether a summary of what is replaced is kept beside the thread.
    summarized: bool,
}

enum Plan {
    Nothing,
    Append,
    Replace(Base),
}

/// An inference that has its window and waits for the model's answer.
///
/// Nothing is stored before [`complete`](Self::complete); dropping the inference leaves the session as it was.
pub struct Inference {
    sessions: Sessions,
    id: SessionId,
    window: Window,
    new: Vec<ChatMessage>,
    run: Option<RunId>,
    key: IdempotencyKey,
    plan: Plan,
    ttl: Option<Duration>,
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

impl Sessions {
    /// Begins an inference: makes the window that the model is to see (ATH-2, ATH-4 to ATH-7).
    ///
    /// Past the profile's threshold the older messages become a summary first, if there is a
    /// [summarizer](Self::with_summarizer); `EPHEMERAL` inferences make none. Of several at once one makes it, and the
    /// others do not wait: their windows are made without. The window holds at most the profile's
    /// `max_tokens`, unless the system prompt, the hints, the summary and the new messages alone are more: those are
    /// always there.
    ///
    /// # Errors
    /// `NotFound`; `InvalidInput` naming `messages` for a message that cannot be stored or a tool's result that answers
    /// no call; the stores' own and the strategies'.
    ///
    /// # Cancellation
    /// The session is as it was; a summary is whole or absent.
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
            plan: Plan::Nothing,
            ttl: None,
            summary_failure: None,
        };
        if memory == Memory::Off {
            inference.window = Window::injected(inference.new.iter().cloned());
            return Ok(inference);
        }
        self.look(&mut inference, persistence).await?;
        Ok(inference)
    }

    /// Reads the session and makes the window and the plan.
    async fn look(&self, inference: &mut Inference, persistence: Persistence) -> Result<()> {
        let thread = self.thread(&inference.id);
        let started = Instant::now();
        let (record, reader) = self.used(BEGIN, &inference.id).await?;
        inference.ttl = record.ttl();
        let seen = match persistence {
            Persistence::Flush => Some(reader.history.thread_info(&thread).await?.last),
            _ => None,
        };
        let walk = Walk {
            reach: self.assembler.reach(&record),
            tokens: self.summarizer.as_ref().and(record.profile.summarization_threshold()),
            // What arrives from now on stays behind a replacement, so it is no part of what replaces.
            before: seen.map(|last| Seq::new(last.get().saturating_add(1))),
        };
        let state = reader.read(&thread, walk).await?;
        self.watch.loaded(started.elapsed());
        let state = match persistence {
            Persistence::Ephemeral => state,
            _ => Box::pin(self.summarized(inference, &reader, &record, walk, state)).await?,
        };
        let State { messages, summary, mark, revision, .. } = state;
        let assembled = self
            .assembler
            .assemble(
                &reader,
                &thread,
                &record,
                (messages, summary.as_ref()),
                &inference.new,
                &mut Told::default(),
            )
            .await?;
        inference.window = assembled.window;
        inference.plan = match (persistence, seen) {
            (Persistence::Ephemeral, _) => Plan::Nothing,
            (Persistence::Flush, Some(seen)) => {
                let summarized = revision.is_some();
                Plan::Replace(Base { seen, stored: assembled.stored, summary, mark, summarized })
            }
            _ => Plan::Append,
        };
        Ok(())
    }

    /// The state after the summary that is due, where one is.
    async fn summarized(
        &self,
        inference: &mut Inference,
        reader: &Reader,
        record: &Record,
        walk: Walk,
        state: State,
    ) -> Result<State> {
        let (Some(summarizer), Some(max_tokens), Some(threshold)) =
            (&self.summarizer, record.profile.max_tokens(), record.profile.summarization_threshold())
        else {
            return Ok(state);
        };
        let thread = self.thread(&inference.id);
        let sizes = Sizes { max_tokens, threshold };
        if !summarizer.is_due(reader, &state, sizes) {
            return Ok(state);
        }
        match summarizer.run(reader, &thread, &state, sizes).await {
            Ok(false) => Ok(state),
            Ok(true) => {
                self.check_still_there(BEGIN, &inference.id).await?;
                reader.read(&thread, walk).await
            }
            Err(error) => {
                self.watch.summary_failed();
                if summarizer.on_failure == OnSummaryFailure::Fail {
                    return Err(error);
                }
                inference.summary_failure = Some(error);
                Ok(state)
            }
        }
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

    /// Stores the new messages and the model's answer, in one step, as the request's [`Persistence`] asks (ALQ-7).
    ///
    /// Calling it again with the same answer stores nothing more and returns the same, so it may be retried after any
    /// error.
    ///
    /// # Errors
    /// `NotFound` where the session was deleted meanwhile, and nothing of the inference remains; `Conflict` where the
    /// idempotency key stored another answer, or where the session that this inference was to replace was cleared or
    /// replaced meanwhile; `InvalidInput` for no messages, for more than 1,000, or what the store refuses; the stores'
    /// own.
    ///
    /// # Cancellation
    /// The messages are stored whole or not at all.
    pub async fn complete(&self, answer: impl IntoIterator<Item = ChatMessage>) -> Result<Persisted> {
        let answer = self.sessions.stamped(answer.into_iter().collect(), self.run.as_ref());
        let new: Vec<_> = self.new.iter().cloned().chain(answer).collect();
        let persisted = match &self.plan {
            Plan::Nothing => return Ok(Persisted::Nothing),
            Plan::Append => self.append(new).await?,
            Plan::Replace(base) => {
                let persisted = self.replace(base, new).await?;
                // A thread that held nothing has no time to live yet; a replacement leaves the one there is.
                if self.ttl.is_some() {
                    let set = self.history().set_ttl(&self.thread(), self.ttl.map(Ttl::sliding)).await;
                    set.map_err(|error| error.with_idempotent(true))?;
                }
                persisted
            }
        };
        self.sessions
            .check_still_there(COMPLETE, &self.id)
            .await
            .map_err(|error| error.with_idempotent(true))?;
        Ok(persisted)
    }

    /// Ends the inference without an answer. The session is as it was.
    pub fn cancel(self) {
        drop(self);
    }

    async fn append(&self, new: Vec<ChatMessage>) -> Result<Persisted> {
        let mut options = AppendOptions::default().with_idempotency_key(self.key.clone());
        options.ttl = self.ttl.map(Ttl::sliding);
        let appended = self.history().append_many(&self.thread(), new, options).await?;
        Ok(Persisted::Appended(appended))
    }

    async fn replace(&self, base: &Base, new: Vec<ChatMessage>) -> Result<Persisted> {
        let mut mark = Mark::new(&self.key, &new)?;
        if let Some(there) = base.mark.as_ref().filter(|there| there.id == mark.id) {
            return same(there, &mark);
        }
        let mut messages = Vec::with_capacity(base.stored.len() + new.len() + 1);
        if let Some(held) = &base.summary {
            (mark.summary, mark.covers) = (true, held.messages);
            messages.push(with_tokens(ChatMessage::system(held.text.as_str()), held.tokens));
        }
        messages.extend(base.stored.iter().map(|stored| ChatMessage::clone(&stored.message)));
        messages.extend(new);
        let Some(first) = messages.first_mut() else {
            return Err(Error::under_limit(COMPLETE, "messages", 0, 1));
        };
        mark.put_on(first);
        let replacement = Replacement::new(base.seen, messages);
        let error = match self.history().replace(&self.thread(), replacement).await {
            Ok(_) => {
                if base.summarized {
                    // It is of no use any more; the mark keeps everybody from it if it stays.
                    let _ = self.sessions.reader.summaries.remove(&self.thread()).await;
                }
                return Ok(Persisted::Replaced);
            }
            Err(error) => error,
        };
        if error.kind() != ErrorKind::Conflict {
            // Whoever tries again finds the mark, or replaces what is still there.
            return Err(error.with_idempotent(true));
        }
        // It may be this very replacement that came through before, unheard.
        let first = self.history().get_messages(&self.thread(), 0, 1).await?;
        match first.first().and_then(|stored| Mark::of(&stored.message)) {
            Some(there) if there.id == mark.id => same(&there, &mark),
            _ => Err(error),
        }
    }

    fn history(&self) -> &dyn larder_kernel::HistoryProvider {
        &*self.sessions.reader.history
    }

    fn thread(&self) -> Thread {
        self.sessions.thread(&self.id)
    }
}

/// What a replacement that was done already means for one with the same key.
fn same(there: &Mark, mark: &Mark) -> Result<Persisted> {
    if there.content == mark.content {
        return Ok(Persisted::Replaced);
    }
    Err(Error::new(ErrorKind::Conflict, COMPLETE, "the idempotency key was used for another answer")
        .with_field("idempotency_key"))
}
