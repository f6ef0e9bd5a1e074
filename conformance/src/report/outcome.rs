//! The results of cases, and their counts.

use std::collections::BTreeMap;

use larder_kernel::{Capabilities, Contract};
use serde::Serialize;

use super::waiver::Date;
use crate::case::Level;

/// The result of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CaseOutcome {
    /// The clause holds.
    Passed,
    /// The clause does not hold.
    Failed,
    /// The backend does not declare the capability that the case needs.
    Unsupported,
    /// The suite or the service failed. The clause is untested.
    Error,
    /// The clause does not hold, and a waiver excuses it.
    Waived,
    /// The case needs a method that the store does not implement. The clause is untested.
    Waiting,
}

impl CaseOutcome {
    /// Returns the word in reports.
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

/// The reason and the expiry date of a waived failure.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Waived {
    /// The reason.
    pub reason: String,
    /// The last valid day, in UTC.
    pub expires: Date,
}

/// The result of one case on one backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CaseReport {
    /// The clause.
    pub clause: &'static str,
    /// The case's name.
    pub case: String,
    /// The contract.
    pub contract: Contract,
    /// The backend's name.
    pub backend: String,
    /// The level of the case.
    pub level: Level,
    /// The result.
    pub outcome: CaseOutcome,
    /// The reason why the case did not pass; empty if it passed.
    pub reason: String,
    /// The result that the clause requires, if the case failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub expected: String,
    /// The actual result, if the case failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub got: String,
    /// The waiver of its failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waived: Option<Waived>,
    /// The method that the case needs and the store does not implement, as `contract.method`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing: Option<&'static str>,
    /// The duration in microseconds.
    pub elapsed_us: u64,
}

impl CaseReport {
    /// Creates the result of a case that passed.
    #[must_use]
    pub fn passed(
        clause: &'static str,
        case: impl Into<String>,
        contract: Contract,
        backend: impl Into<String>,
        level: Level,
    ) -> Self {
        Self {
            clause,
            case: case.into(),
            contract,
            backend: backend.into(),
            level,
            outcome: CaseOutcome::Passed,
            reason: String::new(),
            expected: String::new(),
            got: String::new(),
            waived: None,
            missing: None,
            elapsed_us: 0,
        }
    }
}

/// A tested backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BackendReport {
    /// The name in reports.
    pub name: String,
    /// The URL, with secrets hidden.
    pub url: String,
    /// The declared capabilities of each contract that the backend serves.
    pub capabilities: BTreeMap<Contract, Capabilities>,
}

impl BackendReport {
    /// Creates a tested backend. The URL contains no secrets.
    #[must_use]
    pub fn new(
        name: impl Into<String>,
        url: impl Into<String>,
        capabilities: BTreeMap<Contract, Capabilities>,
    ) -> Self {
        Self { name: name.into(), url: url.into(), capabilities }
    }
}

/// A backend that the run could not test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct AbsentBackend {
    /// The name in reports.
    pub name: String,
    /// The reason why the backend is missing.
    pub reason: String,
    /// True if the run fails without this backend.
    pub required: bool,
}

impl AbsentBackend {
    /// Creates a backend that the run could not test.
    #[must_use]
    pub fn new(name: impl Into<String>, reason: impl Into<String>, required: bool) -> Self {
        Self { name: name.into(), reason: reason.into(), required }
    }
}

/// The number of cases by result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// The cases whose clause holds.
    pub passed: usize,
    /// The cases whose clause does not hold.
    pub failed: usize,
    /// The cases whose capability is not declared.
    pub unsupported: usize,
    /// The cases that ended in an error. Their clauses are untested.
    pub errors: usize,
    /// The failed cases that a waiver excuses.
    pub waived: usize,
    /// The cases that need a missing method.
    pub waiting: usize,
}

impl Summary {
    /// Counts one more result.
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

    /// Returns the exit code of a program that ran the suite.
    ///
    /// It is 0 if at least one case ran and every case that could run passed. It is 1 if a clause does not
    /// hold. It is 2 if nothing ran, an error hides the result, or a method is missing.
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
