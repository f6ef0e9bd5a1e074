//! Types for agent runtimes: model traits, context compaction and history retention.

pub mod context;
pub mod model;
pub mod supervision;
