//! A single run of a workflow: opening it, reading it, and moving it by compare-and-set.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;

use larder_kernel::{
    BucketName, ChatMessage, Error, ErrorKind, HistoryProvider, IdempotencyKey, KeyValueStore,
    KeyValueStoreExt, Result, Revision, Thread,
};

use super::open_turn::OpenTurn;
use super::options::{TransientConversations, WorkflowOptions};
use super::record::{Address, Record, TransitionRecord, Visit};
use super::spec::{Persistence, StateSpec, WorkflowSpec};
use super::transient::TransientSummaries;

/// The bucket that holds the runs.
const BUCKET: &str = "larder.workflows";

/// A handle to a run of a workflow.
///
/// Any number of workers may hold the same run. Methods that do not access the store return the state that
/// the handle last read or wrote; [`refresh`](Self::refresh) reads it again. See the [module](super) for an
/// example.
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
    /// The conversation of a transient state that is kept only in this handle.
    pub(crate) local: Option<(Visit, Vec<ChatMessage>)>,
    /// The summaries that transient states pass to later states.
    pub(crate) transient: TransientSummaries,
    pub(crate) turn: Option<OpenTurn>,
}

impl Workflow {
    /// Starts a run under an id: 1 to 256 bytes of UTF-8 without NUL.
    ///
    /// # Errors
    /// `AlreadyExists` if the id has a run. `InvalidInput` with `workflow` or the setting. The errors of the
    /// store.
    ///
    /// # Cancellation
    /// The run is started or not.
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

    /// Resumes a run, in any process.
    ///
    /// # Errors
    /// `NotFound` if the id has no run. `InvalidInput` with `workflow`, with the setting, or with `states` if
    /// the run is in a state that the specification does not have. `Corrupt`. The errors of the store.
    ///
    /// # Cancellation
    /// The call changes nothing.
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

    /// Resumes the run of an id, or starts it. If several workers start it concurrently, one of them does and
    /// the others resume it.
    ///
    /// # Errors
    /// As [`start`](Self::start) and [`resume`](Self::resume).
    ///
    /// # Cancellation
    /// The run is started or not.
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
        let (local, transient, turn) = (None, TransientSummaries::default(), None);
        Ok(Self {
            history,
            state,
            bucket,
            id,
            address,
            spec,
            options,
            record,
            revision,
            local,
            transient,
            turn,
        })
    }

    /// Returns the run's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns the workflow's specification.
    #[must_use]
    pub fn spec(&self) -> &WorkflowSpec {
        &self.spec
    }

    /// Returns the current state.
    #[must_use]
    pub fn current_state(&self) -> &str {
        &self.record.current.state
    }

    /// Returns the current visit.
    #[must_use]
    pub fn current_visit(&self) -> &Visit {
        &self.record.current
    }

    /// Returns the visit whose prompt and conversation are used. This is the current one, or the one in which
    /// an unfinished chain of agent-controlled states began.
    #[must_use]
    pub fn anchor(&self) -> &Visit {
        &self.record.anchor
    }

    /// Returns the committed transitions, oldest first.
    #[must_use]
    pub fn transitions(&self) -> &[TransitionRecord] {
        &self.record.history
    }

    /// Returns `true` if the workflow has ended, so that no event leads on. Turns are still possible.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.spec.state(self.current_state()).is_some_and(StateSpec::is_terminal)
    }

    /// Returns the thread of a state's conversation, for a persistent state. Also returns it for the
    /// transient state of the current visit if [`TransientConversations::UntilLeft`] is set. Returns `None`
    /// for a state whose conversation is in no store.
    ///
    /// # Errors
    /// `InvalidInput` with `state` if the state does not exist.
    pub fn thread(&self, state: &str) -> Result<Option<Thread>> {
        if self.spec.state(state).is_none() {
            return Err(Error::invalid(
                "workflow.thread",
                "state",
                "the workflow does not define this state; check its name",
            ));
        }
        let visit =
            [&self.record.anchor, &self.record.current].into_iter().find(|visit| visit.state == state);
        match (self.spec.state(state).map(StateSpec::persistence), visit) {
            (Some(Persistence::Persistent), _) => self.address.persistent(state).map(Some),
            (_, Some(visit)) => self.home(visit),
            _ => Ok(None),
        }
    }

    /// Reads the run again.
    ///
    /// # Errors
    /// `Conflict` while a turn is open. `NotFound` if the run no longer exists. `Corrupt`. The errors of the
    /// store.
    ///
    /// # Cancellation
    /// The handle is unchanged.
    pub async fn refresh(&mut self) -> Result<()> {
        self.no_turn("workflow.refresh")?;
        self.read().await
    }

    /// Moves the workflow outside a turn, immediately, and returns the transition. Repeating an event id with
    /// its event returns the first result and moves nothing, from any handle.
    ///
    /// A transition into an agent-controlled state keeps the prompt of the previous state, as in a turn.
    ///
    /// # Errors
    /// `InvalidInput` with `event` if the current state has no such event. `InvalidInput` with `event_id` if
    /// it is empty, over 512 bytes or contains NUL. `Conflict` if the event id was used for another event, if
    /// another worker moved the workflow first, or while a turn is open. `ResourceExhausted` at the largest
    /// number of transitions. The errors of the summarizer if it is set to fail, and of the stores. After an
    /// error nothing has changed.
    ///
    /// # Cancellation
    /// The workflow has moved or not. The event id makes a retry safe.
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
            return Err(Error::invalid(
                OPERATION,
                "event",
                "the current state does not define this event; use one of its events",
            ));
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
                // The transition and its remaining work are committed, so the next worker can do the work
                // that cannot be done now.
                let _ = self.settle().await;
                let last = self.record.history.last().cloned();
                last.ok_or_else(|| {
                    Error::new(ErrorKind::Unexpected, OPERATION, "a commit without a transition")
                })
            }
        }
    }

    /// Returns the transition of an event id, if any.
    fn done(&self, event: &str, event_id: &str) -> Result<Option<TransitionRecord>> {
        match self.record.find(event_id) {
            Some(done) if done.event == event => Ok(Some(done.clone())),
            Some(_) => Err(Error::new(
                ErrorKind::Conflict,
                "workflow.fire",
                "the event id was used for a different event; use a new id",
            )),
            None => Ok(None),
        }
    }

    fn no_turn(&self, operation: &'static str) -> Result<()> {
        match self.turn {
            None => Ok(()),
            Some(_) => {
                Err(Error::new(ErrorKind::Conflict, operation, "a turn is open; complete it or abandon it"))
            }
        }
    }

    /// Rejects a transition beyond the limit of the run.
    pub(crate) fn check_room(&self, operation: &'static str) -> Result<()> {
        let size = larder_kernel::check::size;
        let (taken, most) = (size(self.record.history.len()), self.spec.max_transitions().into());
        if taken >= most {
            let error = Error::new(
                ErrorKind::ResourceExhausted,
                operation,
                "the limit of transitions is reached; end the turn",
            );
            return Err(error.with_field("max_transitions").with_limit(taken, most));
        }
        Ok(())
    }

    pub(crate) fn state_of(&self, visit: &Visit) -> Result<&StateSpec> {
        self.spec.state(&visit.state).ok_or_else(|| {
            Error::invalid(
                "workflow.read",
                "states",
                "the run is in a state that the specification does not define; use the specification that \
                 started it",
            )
        })
    }

    /// Returns the thread of a visit's conversation, if it is stored.
    pub(crate) fn home(&self, visit: &Visit) -> Result<Option<Thread>> {
        match (self.state_of(visit)?.persistence(), self.options.transient()) {
            (Persistence::Persistent, _) => self.address.persistent(&visit.state).map(Some),
            (Persistence::Transient, TransientConversations::UntilLeft) => {
                self.address.transient(visit).map(Some)
            }
            (Persistence::Transient, TransientConversations::Memory) => Ok(None),
        }
    }

    /// Reads the stored record.
    pub(crate) async fn load(&self) -> Result<(Record, Revision)> {
        let entry = self.state.get(&self.bucket, &self.address.key).await?;
        let entry = entry.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "workflow.read", "the run does not exist; start it first")
        })?;
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
}

impl fmt::Debug for Workflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workflow")
            .field("history", &self.history)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Returns the error of a run that could not start because another caller created its key.
pub(crate) fn exists(operation: &'static str, error: Error) -> Error {
    match error.kind() {
        ErrorKind::Conflict => Error::new(
            ErrorKind::AlreadyExists,
            operation,
            "a run with this id already exists; open it or use another id",
        ),
        _ => error,
    }
}

/// Returns a unique name of a write: 128 bits from the hasher's random keys.
pub(crate) fn unique() -> String {
    let part = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", part(), part())
}
