//! Sessions from outside, over the stores in memory, through more than one handle.

#![allow(clippy::unwrap_used, clippy::panic)]

mod lifecycle;
mod numbers;
mod persistence;
mod settings;
mod summaries;
mod support;
mod window;
