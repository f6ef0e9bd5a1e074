//! The suite that proves backends equal: clauses, cases, and a runner.
//!
//! A *clause* is a sentence of a contract, written in the documentation of the kernel's traits. A *case* is a small
//! program that proves one clause against any backend. A [`Harness`] opens the backend.

mod assert;
pub mod case;
pub mod clause;
pub mod concurrent;
pub mod context;
mod contract_text;
#[cfg(feature = "cli")]
pub mod durable;
pub mod expect;
pub mod faults;
pub mod harness;
mod ledger;
pub mod level;
#[cfg(feature = "mimic")]
pub mod mimic;
pub mod model;
#[cfg(feature = "mutants")]
pub mod mutants;
#[cfg(feature = "cli")]
mod relayed;
pub mod report;
pub mod runner;
#[cfg(feature = "cli")]
pub mod service;
pub mod suites;
#[cfg(feature = "cli")]
pub mod url;

pub use assert::{assert_conforms, check, describe};
pub use case::{Case, CaseResult, Failure, Level};
pub use clause::{Clause, clauses};
pub use context::{Context, Handles};
pub use contract_text::contract_text;
pub use harness::{Harness, OpenOptions, Relayed, StoreSet};
pub use level::{Counterexample, Effort, LevelReport, Verdict};
pub use report::{AbsentBackend, CaseOutcome, CaseReport, Report, SUITE_VERSION, Summary};
pub use runner::RunOptions;
