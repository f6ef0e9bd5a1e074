//! Proves that storage backends behave alike: clauses, cases, levels, and one call that runs them.
//!
//! A *clause* is a sentence of a contract, written in the documentation of the kernel's traits. A *case* is a
//! small program that proves one clause against any backend. The *levels* beyond the cases run randomized
//! operations, concurrent clients, crashes and fault injection. A [`Harness`] opens the backend. [`Suite`]
//! runs the chosen levels and returns a [`Report`].
//! The author of a backend depends on this crate only. [`kernel`] is `larder-kernel`, with the traits to
//! implement. [`async_trait`](macro@async_trait), [`bytes`] and [`futures_util`] are the crates whose types
//! appear in those traits. The guide is `guide/src/writing-a-backend.md` in the repository, and
//! `larder new-backend` writes a crate to start from.
//!
//! # Versions
//!
//! The crate follows semantic versioning for every item on these pages. Hidden items (the modules behind the
//! levels, the runner and the cases) serve the `larder` command and can change in any release. Reports gain
//! fields in minor releases: read them, do not construct them.
//!
//! The suite has a separate version, [`SUITE_VERSION`], which every report names:
//! - *major*: a clause was removed or has a new meaning. Earlier proofs are no longer valid.
//! - *minor*: clauses, cases or levels were added, or levels require more. Earlier proofs stay valid, but a
//!   backend can turn out to break a clause that no case tested before.
//! - *patch*: cases prove the same clauses better.
//!
//! A minor or patch release of the crate can bring a minor version of the suite. To get new findings only
//! when you ask for them, pin the crate: `larder-conformance = "=0.1.0"`.
//!
//! # Features
//!
//! - `mimic`: `Suite::main`, a test target with one test for each case.
//! - `report`: `Report::write`, which writes JSON, JUnit XML, a page and badges; and waivers read from a
//!   file.
//! - `mutants`: intentionally wrong stores that test the suite itself; backends do not need it.

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
mod hooked;
mod large;
#[doc(hidden)]
pub mod latency;
#[doc(hidden)]
pub mod level;
#[cfg(test)]
mod memory;
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
/// The crates that the script of a model uses in addition, in the same build that this crate uses.
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
pub use harness::{Edge, EdgeFault, Harness, OpenOptions, Relayed, Staged, StoreSet};
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
