//! The state of an open turn.

use larder_kernel::Error;

use super::record::Visit;

#[derive(Debug, Clone)]
pub(crate) struct OpenTurn {
    pub(crate) id: String,
    /// The visit whose conversation the turn belongs to.
    pub(crate) source: Visit,
    /// The number of transitions in this turn, including the pending one.
    pub(crate) fired: u32,
    pub(crate) pending: Option<Pending>,
    /// The error of a conversation that could not be loaded.
    pub(crate) load_failure: Option<Error>,
}

/// A transition that is committed at the end of the turn.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) event: String,
    pub(crate) to: String,
    pub(crate) event_id: String,
}
