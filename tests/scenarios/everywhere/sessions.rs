//! Sessions as a caller sees them, through more than one handle.

pub(crate) mod documents;
pub(crate) mod drafts;
pub(crate) mod expiry;
pub(crate) mod explain;
pub(crate) mod lifecycle;
pub(crate) mod load;
pub(crate) mod persistence;
pub(crate) mod summaries;
pub(crate) mod window;
