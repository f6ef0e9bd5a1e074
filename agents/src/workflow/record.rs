//! What the store holds of a run.

use bytes::Bytes;
use larder_kernel::limits::VALUE_BYTES_MAX;
use larder_kernel::{
    AgentId, Appended, ChatMessage, Error, ErrorKind, Key, Result, Seq, SessionId, Thread, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::spec::WorkflowSpec;

/// Longest id of a run, in bytes.
const WORKFLOW_BYTES_MAX: usize = 256;

/// A stay in a state. Visits count up from 0 over the whole run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Visit {
    /// The state.
    pub state: String,
    /// The number of the visit: how many transitions came before it.
    pub number: u64,
}

/// A transition that was committed (PK-7).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransitionRecord {
    /// The state that was left.
    pub from: String,
    /// The event.
    pub event: String,
    /// The state that was entered.
    pub to: String,
    /// When it was committed, by the writer's clock. It informs; the order is that of the history.
    pub at: Timestamp,
    /// What makes a repetition harmless.
    pub event_id: String,
}

/// What later states are told of an earlier one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Carried {
    pub(crate) visit: Visit,
    pub(crate) text: String,
    /// Whether `text` is the end of the conversation, because no summary could be made.
    pub(crate) verbatim: bool,
    /// The last stored message that it covers, for a state whose conversation goes on.
    pub(crate) up_to: Option<Seq>,
}

/// Work that a commit leaves to be done on the history, by whoever comes next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Chore {
    /// Append a turn's messages, once.
    Append { thread: Thread, turn: String, messages: Vec<ChatMessage> },
    /// Copy the conversations of the run that this one was forked from.
    Copy { threads: Vec<Copied> },
    /// Clear a transient conversation that is over.
    Clear { thread: Thread },
}

/// A conversation to copy, up to its last message when the run was forked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Copied {
    pub(crate) from: Thread,
    pub(crate) to: Thread,
    pub(crate) up_to: Seq,
    /// Whether the copy's messages have other numbers.
    pub(crate) moved: bool,
}

/// A run, as one value of the bucket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Where the machine stands.
    pub(crate) current: Visit,
    /// Whose prompt and conversation hold: the visit in which the chain of agent-controlled states began.
    pub(crate) anchor: Visit,
    pub(crate) history: Vec<TransitionRecord>,
    pub(crate) carried: Vec<Carried>,
    /// How many carried texts made room for later ones.
    pub(crate) carried_left_out: u64,
    pub(crate) chore: Option<Chore>,
    /// Names the write, so that a writer who never got the answer knows its own.
    pub(crate) token: String,
}

impl Record {
    pub(crate) fn new(spec: &WorkflowSpec, token: String) -> Self {
        let start = Visit { state: spec.initial().to_owned(), number: 0 };
        Self {
            current: start.clone(),
            anchor: start,
            history: Vec::new(),
            carried: Vec::new(),
            carried_left_out: 0,
            chore: None,
            token,
        }
    }

    /// Moves the machine; the anchor stays.
    pub(crate) fn step(&mut self, event: &str, to: &str, event_id: &str) {
        self.history.push(TransitionRecord {
            from: self.current.state.clone(),
            event: event.to_owned(),
            to: to.to_owned(),
            at: Timestamp::now(),
            event_id: event_id.to_owned(),
        });
        self.current = Visit { state: to.to_owned(), number: self.current.number + 1 };
    }

    /// Notes that a summary, made before its last messages had their places, covers them too: unless others came in
    /// between, which it does not cover.
    pub(crate) fn covered(&mut self, session: &SessionId, placed: Appended) {
        let newest =
            self.carried.last_mut().filter(|carried| session.as_str() == stored_as(&carried.visit.state));
        if let Some(up_to) = newest.and_then(|carried| carried.up_to.as_mut())
            && up_to.get().checked_add(1) == Some(placed.first.get())
        {
            *up_to = placed.last;
        }
    }

    pub(crate) fn find(&self, event_id: &str) -> Option<&TransitionRecord> {
        self.history.iter().find(|transition| transition.event_id == event_id)
    }

    pub(crate) fn to_bytes(&self) -> Result<Bytes> {
        let json = serde_json::to_vec(self).map_err(|_| {
            Error::new(ErrorKind::Unexpected, "workflow.write", "the run cannot be written as JSON")
        })?;
        // Control characters take six bytes in JSON, so a turn within its limit may still not fit.
        let field = if matches!(self.chore, Some(Chore::Append { .. })) { "messages" } else { "workflow" };
        larder_kernel::check::at_most("workflow.write", field, json.len(), VALUE_BYTES_MAX)?;
        Ok(json.into())
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes)
            .map_err(|_| Error::new(ErrorKind::Corrupt, "workflow.read", "the stored run does not read back"))
    }
}

/// The session of a persistent state's conversation.
fn stored_as(state: &str) -> String {
    format!("p/{state}")
}

/// Where a run's things are.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    pub(crate) key: Key,
    agent: AgentId,
}

impl Address {
    pub(crate) fn new(operation: &'static str, id: &str) -> Result<Self> {
        larder_kernel::check::at_least(operation, "workflow", id.len(), 1)?;
        larder_kernel::check::at_most(operation, "workflow", id.len(), WORKFLOW_BYTES_MAX)?;
        larder_kernel::check::no_nul(operation, "workflow", id)?;
        Ok(Self { key: Key::new(id)?, agent: AgentId::new(format!("larder.workflow/{id}"))? })
    }

    pub(crate) fn persistent(&self, state: &str) -> Result<Thread> {
        self.thread(stored_as(state))
    }

    pub(crate) fn transient(&self, visit: &Visit) -> Result<Thread> {
        self.thread(format!("t{}/{}", visit.number, visit.state))
    }

    fn thread(&self, session: String) -> Result<Thread> {
        Ok(Thread { agent: self.agent.clone(), session: SessionId::new(session)? })
    }
}
