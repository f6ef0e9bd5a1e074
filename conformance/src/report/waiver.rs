//! Waivers: known failures that a run tolerates, each with a reason and an expiry date.
//!
//! A waiver excuses failures and counterexamples. It never excuses an error or a level that did too little
//! work. From the day after its expiry date a waiver is itself an error, until you renew or remove it. A
//! waiver that matches no failure is reported as unused, so that you can remove it.

mod date;
#[cfg(feature = "report")]
mod file;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

pub use self::date::Date;
pub use super::outcome::Waived;
use super::{CaseOutcome, Report, Summary};
use crate::case::Level;
use crate::clause::clauses;

/// A known failure that a run tolerates.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Waiver {
    /// The backend's name in reports, with or without the description after a colon.
    pub backend: String,
    /// The clause that does not hold; `None` means any clause of the level.
    pub clause: Option<String>,
    /// The level at which the failure occurs; `None` means every level.
    pub level: Option<Level>,
    /// The reason for the waiver.
    pub reason: String,
    /// The last valid day, in UTC.
    pub expires: Date,
}

impl Waiver {
    /// Creates a waiver of every failure of a backend.
    #[must_use]
    pub fn new(backend: impl Into<String>, reason: impl Into<String>, expires: Date) -> Self {
        Self { backend: backend.into(), reason: reason.into(), expires, clause: None, level: None }
    }

    /// Describes the waived failure: backend, level, clause.
    #[must_use]
    pub fn subject(&self) -> String {
        let level = self.level.map_or_else(String::new, |level| format!(" {}", level.as_str()));
        let clause = self.clause.as_ref().map_or_else(String::new, |clause| format!(" {clause}"));
        format!("{}{level}{clause}", self.backend)
    }

    fn covers(&self, backend: &str, level: Level, clause: &str) -> bool {
        let named = |rest: &str| rest.is_empty() || rest.starts_with(": ");
        backend.strip_prefix(&self.backend).is_some_and(named)
            && self.level.is_none_or(|own| own == level)
            && self.clause.as_ref().is_none_or(|own| own == clause)
    }

    /// Checks the fields and names the first invalid one.
    fn check(&self) -> Result<(), WaiverError> {
        let wrong = |field: &str, message: &str| Err(WaiverError::new(message).at_field(field));
        if self.backend.trim().is_empty() {
            return wrong("backend", "has no backend; name one");
        }
        if self.reason.trim().is_empty() {
            return wrong("reason", "has no reason; write one");
        }
        match &self.clause {
            None if self.level.is_none() => wrong(
                "clause",
                "names neither a clause nor a level; name one or \
                                                             both",
            ),
            Some(id) if !clauses().iter().any(|clause| clause.id == *id) => {
                wrong("clause", &format!("the contract has no clause {id:?}"))
            }
            _ => Ok(()),
        }
    }

    /// Sets the clause that does not hold.
    #[must_use]
    pub fn with_clause(mut self, clause: impl Into<String>) -> Self {
        self.clause = Some(clause.into());
        self
    }

    /// Sets the level at which the failure occurs.
    #[must_use]
    pub fn with_level(mut self, level: impl Into<Option<Level>>) -> Self {
        self.level = level.into();
        self
    }
}

/// The result of a waiver in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum WaiverStatus {
    /// The waiver matched a failure.
    Used,
    /// The run tested the waived clauses, and none failed.
    Unused,
    /// The expiry date has passed, so the waiver excuses nothing and is an error.
    Expired,
    /// The run did not test the waived clauses.
    NotInRun,
}

impl WaiverStatus {
    /// Returns the words in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Used => "used",
            Self::Unused => "unused",
            Self::Expired => "expired",
            Self::NotInRun => "not in this run",
        }
    }
}

/// A waiver in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WaiverUse {
    /// The waiver.
    #[serde(flatten)]
    pub waiver: Waiver,
    /// The result of the waiver.
    pub status: WaiverStatus,
    /// The number of failures that the waiver matched, including failures that an expired waiver no longer
    /// excuses.
    pub matched: usize,
}

impl fmt::Display for WaiverUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { waiver, status, matched } = self;
        let subject = waiver.subject();
        let (expires, reason) = (waiver.expires, &waiver.reason);
        match status {
            WaiverStatus::Used => write!(f, "waived {matched} on {subject} until {expires}: {reason}"),
            WaiverStatus::Expired => {
                write!(
                    f,
                    "EXPIRED waiver of {subject}: it ended on {expires} (failures that need it: {matched}): \
                     {reason}"
                )
            }
            status => write!(f, "waiver {}: {subject}, until {expires}: {reason}", status.as_str()),
        }
    }
}

/// A validated list of waivers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Waivers(Vec<Waiver>);

impl Waivers {
    /// Validates each waiver.
    ///
    /// # Errors
    /// The first waiver that has no backend, no reason, or neither clause nor level; that names an unknown
    /// clause; or that repeats an earlier waiver.
    pub fn new(waivers: Vec<Waiver>) -> Result<Self, WaiverError> {
        for (index, waiver) in waivers.iter().enumerate() {
            waiver.check()?;
            if waivers[..index].iter().any(|earlier| earlier.subject() == waiver.subject()) {
                let message = format!("{} is waived twice", waiver.subject());
                return Err(WaiverError::new(message).at_field("backend"));
            }
        }
        Ok(Self(waivers))
    }

    /// Returns the waivers, in the order given.
    #[must_use]
    pub fn as_slice(&self) -> &[Waiver] {
        &self.0
    }
}

/// The error of an invalid list of waivers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaiverError {
    /// The file, if the list comes from a file.
    pub file: Option<PathBuf>,
    /// The line, counted from 1, if the list comes from a text.
    pub line: Option<usize>,
    /// The invalid field, if the error is about one.
    pub field: Option<String>,
    /// The description of the error.
    pub message: String,
}

impl WaiverError {
    fn new(message: impl Into<String>) -> Self {
        Self { file: None, line: None, field: None, message: message.into() }
    }

    fn at_field(mut self, field: &str) -> Self {
        self.field = Some(field.to_owned());
        self
    }
}

impl fmt::Display for WaiverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.file, self.line) {
            (Some(file), Some(line)) => write!(f, "{}:{line}: ", file.display())?,
            (Some(file), None) => write!(f, "{}: ", file.display())?,
            (None, Some(line)) => write!(f, "line {line}: ")?,
            (None, None) => f.write_str("waivers: ")?,
        }
        if let Some(field) = &self.field {
            write!(f, "field `{field}`: ")?;
        }
        f.write_str(&self.message)
    }
}

impl std::error::Error for WaiverError {}

impl Report {
    /// Marks the failures that the waivers excuse on the day `today`, and records the result of each waiver.
    /// Call it once, when the report is complete.
    pub fn waive(&mut self, waivers: &Waivers, today: Date) {
        for waiver in waivers.as_slice() {
            let expired = today > waiver.expires;
            let matched = self.apply(waiver, expired);
            let status = match matched {
                _ if expired => WaiverStatus::Expired,
                0 if self.tested(waiver) => WaiverStatus::Unused,
                0 => WaiverStatus::NotInRun,
                _ => WaiverStatus::Used,
            };
            self.waivers.push(WaiverUse { waiver: waiver.clone(), status, matched });
        }
        self.summary = Summary::of(&self.cases);
    }

    /// Counts the failures that the waiver matches, and waives each unless the waiver has expired.
    fn apply(&mut self, waiver: &Waiver, expired: bool) -> usize {
        let waived = Waived { reason: waiver.reason.clone(), expires: waiver.expires };
        let mut matched = 0;
        for case in &mut self.cases {
            let failed = case.outcome == CaseOutcome::Failed;
            if failed && waiver.covers(&case.backend, case.level, case.clause) {
                matched += 1;
                if !expired {
                    (case.outcome, case.waived) = (CaseOutcome::Waived, Some(waived.clone()));
                }
            }
        }
        for level in &mut self.levels {
            for found in &level.counterexamples {
                let new = !level.waived.contains_key(found.clause);
                if new && waiver.covers(&level.backend, level.level, found.clause) {
                    matched += 1;
                }
            }
            let covered = |clause: &&str| waiver.covers(&level.backend, level.level, clause);
            let clauses = level.counterexamples.iter().map(|found| found.clause).filter(covered);
            let clauses: Vec<_> = if expired { Vec::new() } else { clauses.collect() };
            for clause in clauses {
                level.waived.entry(clause).or_insert_with(|| waived.clone());
            }
        }
        matched
    }

    /// Returns `true` if the run has tested the clauses of the waiver.
    fn tested(&self, waiver: &Waiver) -> bool {
        let ran = |outcome| !matches!(outcome, CaseOutcome::Unsupported | CaseOutcome::Waiting);
        let case = self
            .cases
            .iter()
            .any(|case| ran(case.outcome) && waiver.covers(&case.backend, case.level, case.clause));
        // A level tests all clauses of its contract together.
        let contract =
            waiver.clause.as_ref().and_then(|id| clauses().into_iter().find(|clause| clause.id == *id));
        let contract = contract.and_then(|clause| clause.contract);
        let level = self.levels.iter().any(|level| {
            let about = contract.is_none() || level.contract.is_none() || level.contract == contract;
            about && waiver.covers(&level.backend, level.level, waiver.clause.as_deref().unwrap_or_default())
        });
        case || level
    }
}
