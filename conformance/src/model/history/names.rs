//! The names in operations: positions in a thread, agents and threads.

use larder_kernel::{AgentId, Thread};

use crate::model::recorder::owned_id;
use crate::model::rng::{Rng, valid};

/// The position in a thread that an operation names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum At {
    /// This number of positions before the thread's last number.
    FromLast(i64),
    /// This position.
    Exactly(i64),
}

pub(super) fn agent(rng: &mut Rng<'_>) -> AgentId {
    valid(AgentId::new(rng.id()))
}

/// Returns a thread as an argument.
pub(super) fn thread(thread: &Thread) -> String {
    format!("&Thread {{ agent: {}, session: {} }}", owned_id(&thread.agent), owned_id(&thread.session))
}
