//! Tests of sessions as a whole.

mod lost_replies;
mod records;
mod settings;
