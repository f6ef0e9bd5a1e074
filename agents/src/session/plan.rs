//! What an inference will store.

use std::sync::Arc;

use larder_kernel::{PendingWrite, Seq, StoredMessage};

use super::state::{Held, State};

/// What an inference saw of the session.
pub(super) struct Base {
    /// The thread's last place when it was read.
    pub(super) seen: Seq,
    pub(super) state: State,
    /// The summary that the session has after the inference.
    pub(super) summary: Option<Held>,
}

/// What is stored besides messages.
pub(super) struct Changes {
    /// What made the summary, where it is a new one.
    pub(super) made_by: Option<&'static str>,
    pub(super) erases_up_to: Option<Seq>,
    pub(super) writes: Vec<Arc<dyn PendingWrite>>,
}

/// What a completion does.
pub(super) enum Plan {
    Nothing,
    /// Clears the session.
    Forget,
    Append(Base, Changes),
    /// With the messages of the window that the session holds.
    Replace(Base, Vec<StoredMessage>, Changes),
}
