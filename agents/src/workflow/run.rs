//! One run of a workflow: opening it, reading it, and moving it under compare-and-set.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use larder_kernel::{
    AppendOptions, BucketName, ChatMessage, Error, ErrorKind, HistoryProvider, IdempotencyKey, KeyValueStore,
    KeyValueStoreExt, Result, Revision, Thread,
};

use super::open_turn::OpenTurn;
use super::options::{TransientConversations, WorkflowOptions};
use super::record::{Address, Chore, Record, TransitionRecord, Visit};
use super::spec::{Persistence, StateSpec, WorkflowSpec};

/// The bucket that holds the runs.
const BUCKET: &str = "larder.workflows";

/// A run of a workflow, as one worker holds it (PK-7, PK-8).
///
/// Any number of workers may hold the same run. What a handle tells without asking the store is what it last read or
/// wrote: [`refresh`](Self::refresh) reads anew. See the [module](super) for an example.
pub struct Workflow {
    pub(crate) history: Arc<dyn HistoryProvider>,
    pub(crate) state: Arc<dyn KeyValueStore>,
    pub(crate) bucket: BucketName,
    pub(crate) id: String,
    pub(crate) address: Address,
    pub(crate) spec: WorkflowSpec,
    pub(crate) options: WorkflowOptions,
    pub(crate) record: Record,
    pub(crate) revision: Revision,
    /// The conversation of a transient state that is kept here alone.
    pub(crate) local: Option<(Visit, Vec<ChatMessage>)>,
    pub(crate) turn: Option<OpenTurn>,
}

impl Workflow {
    /// Begins a run under an id: 1 to 256 bytes of UTF-8 without NUL.
    ///
    /// # Errors
    /// `AlreadyExists` where the id has a run; `InvalidInput` naming `workflow` or the setting; the store's own.
    ///
    /// # Cancellation
    /// Begun or not begun.
    pub async fn start(
        history: Arc<dyn HistoryProvider>,
        state: Arc<dyn KeyValueStore>,
        spec: WorkflowSpec,
        options: WorkflowOptions,
        id: &str,
    ) -> Result<Self> {
        let mut workflow = Self::unread("workflow.start", history, state, spec, options, id)?;
        let bytes = workflow.record.to_bytes()?;
        let created = workflow.state.create(&workflow.bucket, &workflow.address.key, bytes).await;
        workflow.revision = created.map_err(|error| exists("workflow.start", error))?;
        Ok(workflow)
    }

    /// Goes on with a run, in whatever process (PK-8).
    ///
    /// # Errors
    /// `NotFound` where the id has no run; `InvalidInput` naming `workflow`, the setting, or `states` where the run stands
    /// in a state that the specification lacks; `Corrupt`; the store's own.
    ///
    /// # Cancellation
    /// Nothing to undo.
    pub async fn resume(
        history: Arc<dyn HistoryProvider>,
        state: Arc<dyn KeyValueStore>,
        spec: WorkflowSpec,
        options: WorkflowOptions,
        id: &str,
    ) -> Result<Self> {
        let mut workflow = Self::unread("workflow.resume", history, state, spec, options, id)?;
        workflow.read().await?;
        Ok(workflow)
    }

    /// Goes on with the run of an id, or begins it. Of workers that begin it at once, one does and the others go on.
    ///
    /// # Errors
    /// As [`start`](Self::start) and [`resume`](Self::resume).
    ///
    /// # Cancellation
    /// Begun or not begun.
    pub async fn open(
        history: Arc<dyn HistoryProvider>,
        state: Arc<dyn KeyValueStore>,
        spec: WorkflowSpec,
        options: WorkflowOptions,
        id: &str,
    ) -> Result<Self> {
        let mut workflow = Self::unread("workflow.open", history, state, spec, options, id)?;
        let bytes = workflow.record.to_bytes()?;
        match workflow.state.create(&workflow.bucket, &workflow.address.key, bytes).await {
            Ok(revision) => workflow.revision = revision,
            Err(error) if error.kind() == ErrorKind::Conflict => workflow.read().await?,
            Err(error) => return Err(error),
        }
        Ok(workflow)
    }

    fn unread(
        operation: &'static str,
        history: Arc<dyn HistoryProvider>,
        state: Arc<dyn KeyValueStore>,
        spec: WorkflowSpec,
        options: WorkflowOptions,
        id: &str,
    ) -> Result<Self> {
        options.check(&spec)?;
        let address = Address::new(operation, id)?;
        let record = Record::new(&spec, unique());
        let bucket = BucketName::new(BUCKET)?;
        let (id, revision) = (id.to_owned(), Revision::ZERO);
        let (local, turn) = (None, None);
        Ok(Self { history, state, bucket, id, address, spec, options, record, revision, local, turn })
    }

    /// The run's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The workflow as it is written.
    #[must_use]
    pub fn spec(&self) -> &WorkflowSpec {
        &self.spec
    }

    /// The state in which the machine stands.
    #[must_use]
    pub fn current_state(&self) -> &str {
        &self.record.current.state
    }

    /// The stay in the current state.
    #[must_use]
    pub fn current_visit(&self) -> &Visit {
        &self.record.current
    }

    /// The stay whose prompt and conversation hold: the current one, or the one in which a chain of agent-controlled
    /// states began that has not landed yet.
    #[must_use]
    pub fn anchor(&self) -> &Visit {
        &self.record.anchor
    }

    /// The transitions that were committed, oldest first (PK-7).
    #[must_use]
    pub fn transitions(&self) -> &[TransitionRecord] {
        &self.record.history
    }

    /// Whether the workflow has ended: no event leads on. Turns may still be taken.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.spec.state(self.current_state()).is_some_and(StateSpec::is_terminal)
    }

    /// The thread of a state's conversation: of a persistent state, or of the transient state of the current visit
    /// where [`TransientConversations::UntilLeft`] is set. `None` for a state whose conversation is in no store.
    ///
    /// # Errors
    /// `InvalidInput` naming `state` where there is no such state.
    pub fn thread(&self, state: &str) -> Result<Option<Thread>> {
        if self.spec.state(state).is_none() {
            return Err(Error::invalid("workflow.thread", "state", "the workflow has no such state"));
        }
        let visit =
            [&self.record.anchor, &self.record.current].into_iter().find(|visit| visit.state == state);
        match (self.spec.state(state).map(StateSpec::persistence), visit) {
            (Some(Persistence::Persistent), _) => self.address.persistent(state).map(Some),
            (_, Some(visit)) => self.home(visit),
            _ => Ok(None),
        }
    }

    /// Reads the run anew.
    ///
    /// # Errors
    /// `Conflict` while a turn is open; `NotFound` where the run is gone; `Corrupt`; the store's own.
    ///
    /// # Cancellation
    /// The handle is as it was.
    pub async fn refresh(&mut self) -> Result<()> {
        self.no_turn("workflow.refresh")?;
        self.read().await
    }

    /// Moves the workflow from outside a turn, at once, and returns the transition. Repeating an event id with its event
    /// returns the first answer and moves nothing, from whichever handle.
    ///
    /// Into an agent-controlled state the prompt stays that of the state in which the workflow stood, as in a turn.
    ///
    /// # Errors
    /// `InvalidInput` naming `event` where the current state has no such event, or `event_id` where it is empty, over 512
    /// bytes or holds NUL; `Conflict` where the event id was used for another event, where another worker moved the
    /// workflow first, or while a turn is open; `ResourceExhausted` at the most transitions; the summarizer's own where it
    /// is set to fail; the stores' own. Nothing changes.
    ///
    /// # Cancellation
    /// Moved or not moved; the event id makes the retry safe.
    pub async fn fire(&mut self, event: &str, event_id: &str) -> Result<TransitionRecord> {
        const OPERATION: &str = "workflow.fire";
        self.no_turn(OPERATION)?;
        IdempotencyKey::new(event_id)
            .map_err(|error| error.in_operation(OPERATION).with_field("event_id"))?;
        self.read().await?;
        self.settle().await?;
        if let Some(done) = self.done(event, event_id)? {
            return Ok(done);
        }
        let target = self.spec.state(self.current_state()).and_then(|state| state.target(event));
        let Some(target) = target.map(str::to_owned) else {
            return Err(Error::invalid(OPERATION, "event", "the current state has no such event"));
        };
        self.check_room(OPERATION)?;
        let mut next = self.record.clone();
        next.step(event, &target, event_id);
        next.token = unique();
        self.land(&mut next, "", &[]).await?;
        match self.commit(next).await {
            Err(error) if error.kind() == ErrorKind::Conflict => {
                self.read().await?;
                self.done(event, event_id)?.ok_or(error)
            }
            Err(error) => Err(error),
            Ok(()) => {
                // Committed, and the chore with it: whoever comes next does what cannot be done now.
                let _ = self.settle().await;
                let last = self.record.history.last().cloned();
                last.ok_or_else(|| {
                    Error::new(ErrorKind::Unexpected, OPERATION, "a commit without a transition")
                })
            }
        }
    }

    /// The transition of an event id, if there is one.
    fn done(&self, event: &str, event_id: &str) -> Result<Option<TransitionRecord>> {
        match self.record.find(event_id) {
            Some(done) if done.event == event => Ok(Some(done.clone())),
            Some(_) => Err(Error::new(
                ErrorKind::Conflict,
                "workflow.fire",
                "the event id was used for another event",
            )),
            None => Ok(None),
        }
    }

    fn no_turn(&self, operation: &'static str) -> Result<()> {
        match self.turn {
            None => Ok(()),
            Some(_) => {
                Err(Error::new(ErrorKind::Conflict, operation, "a turn is open; end it or abandon it"))
            }
        }
    }

    /// Refuses a transition beyond the most that the run may have.
    pub(crate) fn check_room(&self, operation: &'static str) -> Result<()> {
        let size = larder_kernel::check::size;
        let (taken, most) = (size(self.record.history.len()), self.spec.max_transitions().into());
        if taken >= most {
            let error =
                Error::new(ErrorKind::ResourceExhausted, operation, "no further transition is allowed");
            return Err(error.with_field("max_transitions").with_limit(taken, most));
        }
        Ok(())
    }

    pub(crate) fn state_of(&self, visit: &Visit) -> Result<&StateSpec> {
        self.spec.state(&visit.state).ok_or_else(|| {
            Error::invalid(
                "workflow.read",
                "states",
                "the run stands in a state that the specification lacks",
            )
        })
    }

    /// The thread of a visit's conversation, if it is stored.
    pub(crate) fn home(&self, visit: &Visit) -> Result<Option<Thread>> {
        match (self.state_of(visit)?.persistence(), self.options.transient()) {
            (Persistence::Persistent, _) => self.address.persistent(&visit.state).map(Some),
            (Persistence::Transient, TransientConversations::UntilLeft) => {
                self.address.transient(visit).map(Some)
            }
            (Persistence::Transient, TransientConversations::Memory) => Ok(None),
        }
    }

    /// What the store holds now.
    pub(crate) async fn load(&self) -> Result<(Record, Revision)> {
        let entry = self.state.get(&self.bucket, &self.address.key).await?;
        let entry = entry
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "workflow.read", "there is no run of this id"))?;
        let record = Record::from_bytes(&entry.value)?;
        self.state_of(&record.current)?;
        self.state_of(&record.anchor)?;
        Ok((record, entry.revision))
    }

    pub(crate) async fn read(&mut self) -> Result<()> {
        let (record, revision) = self.load().await?;
        self.adopt(record, revision);
        Ok(())
    }

    fn adopt(&mut self, record: Record, revision: Revision) {
        if self.local.as_ref().is_some_and(|(visit, _)| *visit != record.anchor) {
            self.local = None;
        }
        (self.record, self.revision) = (record, revision);
    }

    /// Writes over what this handle last read, or finds that an earlier attempt did.
    pub(crate) async fn commit(&mut self, next: Record) -> Result<()> {
        let bytes = next.to_bytes()?;
        match self.state.put_at(&self.bucket, &self.address.key, bytes, self.revision).await {
            Ok(revision) => {
                self.adopt(next, revision);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Conflict => {
                let (stored, revision) = self.load().await?;
                let event = |record: &Record| record.history.last().map(|last| last.event.clone());
                let own = stored.token == next.token && stored.current == next.current;
                if own && event(&stored) == event(&next) {
                    self.adopt(stored, revision);
                    return Ok(());
                }
                let message = "another worker moved the workflow first; begin the turn again";
                Err(Error::new(ErrorKind::Conflict, "workflow.commit", message))
            }
            Err(error) => Err(error),
        }
    }

    /// Does what a commit left to do. Repeating it has no second effect, so any number of workers may.
    pub(crate) async fn settle(&mut self) -> Result<()> {
        while let Some(chore) = self.record.chore.clone() {
            let mut next = self.record.clone();
            next.chore = None;
            next.token = unique();
            match chore {
                Chore::Clear { thread } => {
                    self.history.clear(&thread).await?;
                }
                Chore::Copy { threads } => self.copy(&threads).await?,
                Chore::Append { thread, turn, messages } => {
                    let options = AppendOptions::default().with_idempotency_key(IdempotencyKey::new(turn)?);
                    let placed = self.history.append_many(&thread, messages, options).await?;
                    next.covered(&thread.session, placed);
                }
            }
            match self.commit(next).await {
                Err(error) if error.kind() == ErrorKind::Conflict => self.read().await?,
                other => other?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Workflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workflow")
            .field("history", &self.history)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// The error of a run that could not begin: its key was created by another.
pub(crate) fn exists(operation: &'static str, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Conflict => Error::new(ErrorKind::AlreadyExists, operation, "the id has a run"),
        _ => error,
    }
}

/// A name that no other write has: 128 bits from the hasher's random keys.
pub(crate) fn unique() -> String {
    let part = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", part(), part())
}
