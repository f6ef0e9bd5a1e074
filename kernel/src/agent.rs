//! What agents bring and are given: models, the compaction of context, and how long a conversation is kept.

pub mod context;
pub mod model;
pub mod supervision;
