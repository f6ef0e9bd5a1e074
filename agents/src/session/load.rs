//! The data that an inference reads, and the window without it.

use larder_kernel::{Error, ErrorKind, Result, Seq, StrategyEffect, Window};
use tokio::time::Instant;

use super::config::{Ephemeral, Persistence};
use super::inference::{BEGIN, Inference};
use super::left_out::LeftOut;
use super::plan::{Base, Changes, Plan};
use super::sessions::Sessions;
use super::state::{Loaded, State, Walk};
use super::window::{Parts, Told, check_answers};
use crate::load::OnLoadError;

/// The name of the step that leaves all messages out after a load error.
const LOAD_ERROR: &str = "load_error";

impl Sessions {
    /// Sets the reaction to a session that [`begin`](Self::begin) cannot load. By default, `begin` returns
    /// the error.
    ///
    /// With [`OnLoadError::Empty`], the window has the new messages only, after the prompt and the hints if
    /// the session's record can be read. [`Inference::load_failure`] returns the error. No model is asked.
    /// Completing the inference removes nothing: a `FLUSH` appends. Only an `EPHEMERAL` that
    /// [loses its session](Ephemeral::LosesSession) does so. `begin` still returns the error for new
    /// messages that are results of stored tool calls, because no model accepts them without the calls.
    #[must_use]
    pub fn with_on_load_error(mut self, on_load_error: OnLoadError) -> Self {
        self.on_load_error = on_load_error;
        self
    }

    /// Reads the session.
    pub(super) async fn load(&self, inference: &mut Inference, persistence: Persistence) -> Result<Loaded> {
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
            // Messages that arrive from now on stay after a replacement, so they are not part of it.
            before: seen.filter(|_| replaces).map(|last| Seq::new(last.get().saturating_add(1))),
            after: None,
        };
        let state = reader.read(&thread, walk).await?;
        self.watch.loaded(started.elapsed());
        Ok(Loaded { record, reader, seen, state })
    }

    /// Makes the window of a session that could not be loaded.
    pub(super) async fn begin_empty(
        &self,
        inference: &mut Inference,
        persistence: Persistence,
        failure: Error,
    ) -> Result<()> {
        let record = match self.records.need(BEGIN, &inference.id).await {
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(error),
            record => record.ok(),
        };
        let empty = Window::injected(inference.new.iter().cloned());
        if check_answers(&empty.messages, 0).is_err() {
            return Err(failure);
        }
        inference.record_unread = record.is_none();
        inference.window = match record {
            None => empty,
            Some(record) => {
                inference.ttl = record.ttl();
                let (thread, state) = (self.thread(&inference.id), State::default());
                let new = &inference.new;
                let parts = Parts { thread: &thread, record: &record, state: &state, new, asks_model: false };
                let fixed = self.assembler.fixed(&*self.reader.counter, &parts)?;
                let told = &mut Told::default();
                self.assembler.assemble(&self.reader, &parts, fixed, told).await?.window
            }
        };
        inference.left_out =
            vec![LeftOut { strategy: LOAD_ERROR, messages: Vec::new(), before: Some(Seq::MAX) }];
        inference.load_failure = Some(failure);
        let base = Base { seen: Seq::ZERO, state: State::default(), summary: None };
        let changes = Changes { made_by: None, erases_up_to: None, writes: Vec::new() };
        inference.plan = match persistence {
            _ if !self.reader.view.writes() => Plan::Nothing,
            Persistence::Ephemeral if self.ephemeral == Ephemeral::LosesSession => Plan::Forget,
            Persistence::Ephemeral => Plan::Nothing,
            _ => Plan::Append(base, changes),
        };
        Ok(())
    }
}
