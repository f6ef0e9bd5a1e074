//! The keys of a thread.

use bytes::Bytes;
use larder_kernel::{AgentId, FencingToken, Namespace, SessionId, Thread};

use super::super::key::{Entity, KeyPrefix};
use super::super::script::Call;

/// A thread's entity, and its name in the index of its namespace.
#[derive(Clone)]
pub(super) struct Address {
    place: Entity,
    name: Bytes,
}

impl Address {
    pub(super) fn new(prefix: &KeyPrefix, namespace: &Namespace, thread: &Thread) -> Self {
        let (agent, session) = (thread.agent.as_str(), thread.session.as_str());
        Self {
            place: prefix.entity("thread", &[namespace.as_str(), agent, session]),
            name: Bytes::from(format!("{agent}\0{session}")),
        }
    }

    /// Returns the name in the index. Ids contain no NUL, so names sort by the bytes of the agent and then of
    /// the session.
    pub(super) fn name(&self) -> &Bytes {
        &self.name
    }

    pub(super) fn place(&self) -> &Entity {
        &self.place
    }

    /// Returns the key of the thread's counters.
    pub(super) fn head(&self) -> Bytes {
        self.place.part("head")
    }

    pub(super) fn messages(&self) -> Bytes {
        self.place.part("messages")
    }

    pub(super) fn channel(&self) -> Bytes {
        Bytes::from(self.place.channel())
    }

    /// Creates a call with the keys that every script on a thread has, and no arguments.
    pub(super) fn keys(&self) -> Call {
        Call::new()
            .key(self.head())
            .key(self.messages())
            .key(self.place.part("runs"))
            .key(self.place.part("events"))
            .key(self.place.part("replacements"))
            .key(self.place.part("refused"))
    }

    /// Creates a call with the keys and the first argument that every script on a thread has.
    pub(super) fn call(&self) -> Call {
        self.keys().bytes(self.channel())
    }
}

/// Returns the thread of a name. This program never wrote a name that violates the rules.
pub(super) fn named(name: &[u8]) -> Option<Thread> {
    let (agent, session) = std::str::from_utf8(name).ok()?.split_once('\0')?;
    Some(Thread { agent: AgentId::new(agent).ok()?, session: SessionId::new(session).ok()? })
}

/// Adds a fencing token to the arguments, or nothing.
pub(super) fn with_fence(call: Call, fence: Option<FencingToken>) -> Call {
    call.arg(fence.map(|token| token.to_string()).unwrap_or_default())
}
