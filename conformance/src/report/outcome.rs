//! How cases end, counted.

use std::collections::BTreeMap;

use larder_kernel::{Capabilities, Contract};
use serde::Serialize;

use super::waiver::Date;
use crate::case::Level;

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
    /// The clause does not hold, and a waiver says so.
    Waived,
    /// The case needs a method that the store does not implement; nothing is known of the clause.
    Waiting,
}

impl CaseOutcome {
    /// The word in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Unsupported => "unsupported",
            Self::Error => "error",
            Self::Waived => "waived",
            Self::Waiting => "waiting",
        }
    }
}

/// Why a failure is borne with, and how long.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Waived {
    /// The reason.
    pub reason: String,
    /// The last day, in UTC.
    pub expires: Date,
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
    #[serde(skip_serializing_if = "String::is_empty")]
    pub expected: String,
    /// What came, where it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub got: String,
    /// The waiver of its failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waived: Option<Waived>,
    /// The method that the case needs and the store does not implement, as `contract.method`.
    #[serde(skip_serializing_if = "Option::is_none")]
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
    /// It does not, and a waiver says so.
    pub waived: usize,
    /// A method is missing.
    pub waiting: usize,
}

impl Summary {
    /// Counts one more.
    pub fn add(&mut self, outcome: CaseOutcome) {
        match outcome {
            CaseOutcome::Passed => self.passed += 1,
            CaseOutcome::Failed => self.failed += 1,
            CaseOutcome::Unsupported => self.unsupported += 1,
            CaseOutcome::Error => self.errors += 1,
            CaseOutcome::Waived => self.waived += 1,
            CaseOutcome::Waiting => self.waiting += 1,
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
    /// clause does not hold, 2 when nothing ran, an error hides the answer or a method is missing.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self { failed: 1.., .. } => 1,
            Self { errors: 1.., .. } | Self { waiting: 1.., .. } | Self { passed: 0, .. } => 2,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_in_which_nothing_passed_is_never_a_pass() {
        let summary = |passed, failed, unsupported, errors| Summary {
            passed,
            failed,
            unsupported,
            errors,
            ..Summary::default()
        };
        assert_eq!(summary(0, 0, 0, 0).exit_code(), 2);
        assert_eq!(summary(0, 0, 9, 0).exit_code(), 2);
        assert_eq!(summary(9, 0, 1, 0).exit_code(), 0);
        assert_eq!(summary(9, 1, 0, 1).exit_code(), 1);
        assert_eq!(summary(9, 0, 0, 1).exit_code(), 2);
        assert_eq!(Summary { passed: 9, waived: 1, ..Summary::default() }.exit_code(), 0);
        assert_eq!(Summary { waived: 1, ..Summary::default() }.exit_code(), 2);
        assert_eq!(Summary { passed: 9, waiting: 1, ..Summary::default() }.exit_code(), 2);
        assert_eq!(Summary { passed: 9, failed: 1, waiting: 1, ..Summary::default() }.exit_code(), 1);
    }
}
