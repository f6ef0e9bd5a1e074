//! What a run found.

use std::collections::BTreeMap;

use larder_kernel::{Capabilities, Contract};
use serde::Serialize;

use crate::case::Level;
use crate::clause::clauses;
use crate::level::LevelReport;

/// The version of the set of clauses and cases. It grows when a clause is added or changed.
pub const SUITE_VERSION: &str = "1.2.0";

/// How a case ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CaseOutcome {
    /// The clause holds.
    Passed,
    /// The clause does not hold.
    Failed,
    /// The backend does not declare the capability that the case needs.
    Unsupported,
    /// The engine or the service failed; nothing is known of the clause.
    Error,
}

/// One case on one backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CaseReport {
    /// The clause.
    pub clause: &'static str,
    /// The case's name.
    pub case: String,
    /// The contract.
    pub contract: Contract,
    /// The backend's name.
    pub backend: String,
    /// How hard it pressed.
    pub level: Level,
    /// How it ended.
    pub outcome: CaseOutcome,
    /// Why it did not pass; empty where it did.
    pub reason: String,
    /// What the clause leads to, where it failed.
    #[serde(skip)]
    pub expected: String,
    /// What came, where it failed.
    #[serde(skip)]
    pub got: String,
    /// The method that the contract demands and that answered `Unsupported`, as `contract.method`.
    #[serde(skip)]
    pub missing: Option<&'static str>,
    /// How long it took, in microseconds.
    pub elapsed_us: u64,
}

/// A backend that was tested.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BackendReport {
    /// Its name.
    pub name: String,
    /// Where it is, with secrets hidden.
    pub url: String,
    /// What it declares for each contract that it serves.
    pub capabilities: BTreeMap<Contract, Capabilities>,
}

/// A backend that was to be tested and could not be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AbsentBackend {
    /// Its name.
    pub name: String,
    /// Why it is not there.
    pub reason: String,
    /// Whether the run is worth nothing without it.
    pub required: bool,
}

/// How many cases ended how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Summary {
    /// The clause holds.
    pub passed: usize,
    /// It does not.
    pub failed: usize,
    /// The capability is not declared.
    pub unsupported: usize,
    /// Nothing is known.
    pub errors: usize,
}

impl Summary {
    /// Counts one more.
    pub fn add(&mut self, outcome: CaseOutcome) {
        match outcome {
            CaseOutcome::Passed => self.passed += 1,
            CaseOutcome::Failed => self.failed += 1,
            CaseOutcome::Unsupported => self.unsupported += 1,
            CaseOutcome::Error => self.errors += 1,
        }
    }

    /// Counts the cases of a list.
    pub fn of<'a>(cases: impl IntoIterator<Item = &'a CaseReport>) -> Self {
        let mut summary = Self::default();
        for case in cases {
            summary.add(case.outcome);
        }
        summary
    }

    /// How a program that ran the suite exits: 0 when every case that could run passed and at least one did, 1 when a
    /// clause does not hold, 2 when nothing ran or an error hides the answer.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self { failed: 1.., .. } => 1,
            Self { errors: 1.., .. } | Self { passed: 0, .. } => 2,
            _ => 0,
        }
    }
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The version of the suite.
    pub suite_version: &'static str,
    /// The seed, with which the run can be repeated.
    pub seed: u64,
    /// The backends.
    pub backends: Vec<BackendReport>,
    /// The backends that were to be tested and could not be.
    pub absent: Vec<AbsentBackend>,
    /// The cases.
    pub cases: Vec<CaseReport>,
    /// The levels beyond the cases, those that were asked for.
    pub levels: Vec<LevelReport>,
    /// The counts.
    pub summary: Summary,
}

impl Report {
    /// A run that has found nothing yet.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            suite_version: SUITE_VERSION,
            seed,
            backends: Vec::new(),
            absent: Vec::new(),
            cases: Vec::new(),
            levels: Vec::new(),
            summary: Summary::default(),
        }
    }

    /// Adds what was found on one backend.
    pub fn add(&mut self, backend: BackendReport, cases: Vec<CaseReport>) {
        self.backends.push(backend);
        for case in &cases {
            self.summary.add(case.outcome);
        }
        self.cases.extend(cases);
    }

    /// How a program that ran the suite exits: as [`Summary::exit_code`] and [`LevelReport::exit_code`] say, 1 before 2,
    /// and 2 as well where a required backend is not there. Where levels were asked for alone, no case needs to have run.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let levels = self.levels.iter().map(LevelReport::exit_code);
        let cases = match self.summary {
            summary if summary == Summary::default() && !self.levels.is_empty() => 0,
            summary => summary.exit_code(),
        };
        let codes: Vec<u8> = levels.chain([cases]).collect();
        let worst = if codes.contains(&1) { 1 } else { codes.into_iter().max().unwrap_or(2) };
        match worst {
            0 if self.absent.iter().any(|absent| absent.required) => 2,
            code => code,
        }
    }

    /// The cases that failed, with every clause that they show not to hold.
    pub fn failures(&self) -> impl Iterator<Item = &CaseReport> {
        self.cases.iter().filter(|case| case.outcome == CaseOutcome::Failed)
    }

    /// The ids of the clauses that a case showed not to hold, or whose own method is missing: each once, in order.
    #[must_use]
    pub fn broken_clauses(&self) -> Vec<&'static str> {
        let clauses = clauses();
        let method = |id| clauses.iter().find(|clause| clause.id == id).map(|clause| clause.method.as_str());
        let own = |case: &&CaseReport| {
            case.missing.is_none_or(|missing| missing.rsplit('.').next() == method(case.clause))
        };
        in_order(self.failures().filter(own))
    }

    /// The ids of the clauses of which nothing is known, because every case that failed needed a method which is missing
    /// and is not the clause's own: each once, in order.
    #[must_use]
    pub fn unjudged_clauses(&self) -> Vec<&'static str> {
        let broken = self.broken_clauses();
        in_order(self.failures().filter(|case| !broken.contains(&case.clause)))
    }
}

fn in_order<'a>(cases: impl Iterator<Item = &'a CaseReport>) -> Vec<&'static str> {
    let mut ids: Vec<_> = cases.map(|case| case.clause).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_in_which_nothing_passed_is_never_a_pass() {
        let summary = |passed, failed, unsupported, errors| Summary { passed, failed, unsupported, errors };
        assert_eq!(summary(0, 0, 0, 0).exit_code(), 2);
        assert_eq!(summary(0, 0, 9, 0).exit_code(), 2);
        assert_eq!(summary(9, 0, 1, 0).exit_code(), 0);
        assert_eq!(summary(9, 1, 0, 1).exit_code(), 1);
        assert_eq!(summary(9, 0, 0, 1).exit_code(), 2);
    }
}
