//! The suite itself: its clauses and cases, its public API, and the levels against stores that are wrong on purpose.

mod api;
mod api_below;
mod clauses;
mod complete;
mod concurrent;
mod faults;
mod figures;
mod layout;
mod lossy;
mod model;
mod prose;
mod scripts;
mod unfinished;
mod wire;
