//! The suite that proves backends equal: clauses, cases, levels, and one call that runs them.
//!
//! A *clause* is a sentence of a contract, written in the documentation of the kernel's traits. A *case* is a small
//! program that proves one clause against any backend; the *levels* beyond the cases press a backend by chance and force.
//! A [`Harness`] opens the backend, and [`Suite`] runs what is asked for and yields a [`Report`].
//!
//! This crate is all that the author of a backend depends on: [`kernel`] is `larder-kernel`, with the traits to implement,
//! and [`async_trait`](macro@async_trait), [`bytes`] and [`futures_util`] come from the crates whose types stand in those
//! traits. The guide is `guide/src/writing-a-backend.md` in the repository, and `larder new-backend` writes a crate to begin with.
//!
//! # What the versions promise
//!
//! The crate follows semantic versioning in every item on these pages. What is hidden from them (the modules behind the
//! levels, the runner and the cases) is there for the `larder` command and can change in any release. Reports gain fields in
//! minor releases: read them, do not build them.
//!
//! The suite has a version of its own, [`SUITE_VERSION`], which every report names:
//! - *major*: a clause was removed or now means something else. What was proven before must be proven anew.
//! - *minor*: clauses, cases or levels were added, or levels ask for more. What held before still holds, but a backend can
//!   turn out not to keep a clause that nobody had asked about.
//! - *patch*: cases prove the same clauses better.
//!
//! A minor or patch release of the crate can bring a minor of the suite. Whoever wants new findings only when asked for pins
//! the crate: `larder-conformance = "=0.1.0"`.
//!
//! # Features
//!
//! - `mimic`: `Suite::main`, a test target with one test for each case.
//! - `report`: `Report::write`, which makes JSON, JUnit XML, a page and badges; and waivers read from a file.
//! - `mutants`: stores that are wrong on purpose, by which the suite itself is tested; backends do not need it.

mod assert;
mod calls;
#[doc(hidden)]
pub mod case;
#[doc(hidden)]
pub mod clause;
#[doc(hidden)]
pub mod concurrent;
#[doc(hidden)]
pub mod context;
mod contract_text;
mod describe;
#[doc(hidden)]
pub mod expect;
mod failure;
#[doc(hidden)]
pub mod faults;
#[doc(hidden)]
pub mod harness;
#[doc(hidden)]
pub mod latency;
#[doc(hidden)]
pub mod level;
#[cfg(feature = "mimic")]
#[doc(hidden)]
pub mod mimic;
#[doc(hidden)]
pub mod model;
#[cfg(feature = "mutants")]
#[doc(hidden)]
pub mod mutants;
#[doc(hidden)]
pub mod oracle;
#[doc(hidden)]
pub mod report;
#[doc(hidden)]
pub mod retry_open;
#[doc(hidden)]
pub mod runner;
mod suite;
#[doc(hidden)]
pub mod suites;

pub use async_trait::async_trait;
pub use bytes;
pub use futures_util;
/// The storage contracts: the crate `larder-kernel`.
pub use larder_kernel as kernel;
/// What the scripts of a model use beside these, in the very build that this crate uses.
#[cfg(feature = "mutants")]
#[doc(hidden)]
pub use {serde, serde_json, tokio};

#[doc(hidden)]
pub use assert::check;
pub use case::Level;
#[doc(hidden)]
pub use case::{Case, CaseResult, Failure};
pub use clause::{Clause, clauses};
#[doc(hidden)]
pub use context::{Context, Handles};
pub use contract_text::contract_text;
pub use describe::describe;
#[doc(hidden)]
pub use describe::describe_level;
pub use harness::{Harness, OpenOptions, Relayed, StoreSet};
pub use latency::Latency;
#[doc(hidden)]
pub use latency::Stopwatch;
#[doc(hidden)]
pub use level::Effort;
pub use level::{Counterexample, LevelReport, Verdict};
pub use report::waiver::{Date, Waived, Waiver, WaiverError, WaiverStatus, WaiverUse, Waivers};
pub use report::{
    AbsentBackend, BackendReport, CaseOutcome, CaseReport, LevelStanding, Report, SCHEMA_VERSION,
    SUITE_VERSION, Standing, Summary,
};
#[doc(hidden)]
pub use runner::RunOptions;
pub use suite::Suite;
#[doc(hidden)]
pub use suites::refusals;
