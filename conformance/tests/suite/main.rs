//! Tests of the suite: its clauses and cases, its public API, and the levels against stores with defects.

mod api;
mod api_below;
mod clauses;
mod complete;
mod concurrent;
mod faults;
mod figures;
mod layout;
mod model;
mod prose;
mod scripts;
mod shape;
mod unfinished;
mod wire;
