//! A turn that was begun and not ended.

use super::record::Visit;

#[derive(Debug, Clone)]
pub(crate) struct OpenTurn {
    pub(crate) id: String,
    /// Whose conversation the turn belongs to.
    pub(crate) source: Visit,
    /// How many transitions it has made, the pending one included.
    pub(crate) fired: u32,
    pub(crate) pending: Option<Pending>,
}

/// A transition that is committed at the end of the turn.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) event: String,
    pub(crate) to: String,
    pub(crate) event_id: String,
}
