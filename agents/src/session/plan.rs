//! The planned writes of an inference.

use std::sync::Arc;

use larder_kernel::{PendingWrite, Seq, StoredMessage};

use super::state::{Held, State};

/// The state of the session that an inference has read.
pub(super) struct Base {
    /// The last position of the thread at the time of the read.
    pub(super) seen: Seq,
    pub(super) state: State,
    /// The summary of the session after the inference.
    pub(super) summary: Option<Held>,
}

/// The changes to store apart from messages.
pub(super) struct Changes {
    /// The strategy that made the summary, if it is new.
    pub(super) made_by: Option<&'static str>,
    pub(super) erases_up_to: Option<Seq>,
    pub(super) writes: Vec<Arc<dyn PendingWrite>>,
}

/// The write that completes an inference.
pub(super) enum Plan {
    Nothing,
    /// Clears the session.
    Forget,
    Append(Base, Changes),
    /// Replaces the session with its messages that are in the window.
    Replace(Base, Vec<StoredMessage>, Changes),
}
