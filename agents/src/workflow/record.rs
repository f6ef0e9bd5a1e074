//! The stored form of a run.

use bytes::Bytes;
use larder_kernel::limits::VALUE_BYTES_MAX;
use larder_kernel::{
    AgentId, Appended, ChatMessage, Error, ErrorKind, Key, Result, Seq, SessionId, Thread, Timestamp,
};
use serde::{Deserialize, Serialize};

use super::spec::WorkflowSpec;

/// The longest id of a run, in bytes.
const WORKFLOW_BYTES_MAX: usize = 256;

/// A visit to a state. Visits count up from 0 over the whole run.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Visit {
    /// The state.
    pub state: String,
    /// The number of the visit, which is the number of transitions before it.
    pub number: u64,
}

/// A committed transition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TransitionRecord {
    /// The state that was left.
    pub from: String,
    /// The event.
    pub event: String,
    /// The state that was entered.
    pub to: String,
    /// The time of the commit, by the writer's clock. It is informational; the order is that of the history.
    pub at: Timestamp,
    /// The idempotency key of the transition.
    pub event_id: String,
}

/// The text that later states receive about an earlier one. The stored run has those of persistent states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Carried {
    pub(crate) visit: Visit,
    pub(crate) text: String,
    /// `true` if `text` is the end of the conversation, because no summary could be made.
    pub(crate) verbatim: bool,
    /// The last stored message that the text covers, for a persistent state.
    #[serde(default, serialize_with = "crate::stored_seq::optional")]
    pub(crate) up_to: Option<Seq>,
}

/// Work on the history that a commit leaves for the next worker.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Chore {
    /// Appends a turn's messages, once.
    Append { thread: Thread, turn: String, messages: Vec<ChatMessage> },
    /// Copies the conversations of the run that this one was forked from.
    Copy { threads: Vec<Copied> },
    /// Clears a transient conversation whose state was left.
    Clear { thread: Thread },
}

/// A conversation to copy, up to its last message at the time of the fork.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Copied {
    pub(crate) from: Thread,
    pub(crate) to: Thread,
    #[serde(serialize_with = "crate::stored_seq::number")]
    pub(crate) up_to: Seq,
    /// `true` if the copy's messages have other positions.
    pub(crate) moved: bool,
}

/// A run, as one value of the bucket.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The current visit.
    pub(crate) current: Visit,
    /// The visit whose prompt and conversation are used: the one in which the chain of agent-controlled
    /// states began.
    pub(crate) anchor: Visit,
    pub(crate) history: Vec<TransitionRecord>,
    pub(crate) carried: Vec<Carried>,
    /// The number of carried texts that were dropped for later ones.
    pub(crate) carried_left_out: u64,
    pub(crate) chore: Option<Chore>,
    /// The unique name of the write. A writer that never received the reply recognizes its own write by it.
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

    /// Moves the run to another state. The anchor stays.
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

    /// Extends a summary to the messages that it was made from but that had no positions yet. Does nothing if
    /// other messages were appended in between, because the summary does not cover those.
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
        // Control characters take 6 bytes in JSON, so a turn within its limit may still exceed the value
        // size.
        let field = if matches!(self.chore, Some(Chore::Append { .. })) { "messages" } else { "workflow" };
        larder_kernel::check::at_most("workflow.write", field, json.len(), VALUE_BYTES_MAX)?;
        Ok(json.into())
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|_| {
            Error::new(ErrorKind::Corrupt, "workflow.read", "the stored run is corrupt; start a new run")
        })
    }
}

/// Returns the session of a persistent state's conversation.
fn stored_as(state: &str) -> String {
    format!("p/{state}")
}

/// The location of a run's data.
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
