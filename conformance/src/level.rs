//! Results of the levels beyond the cases: randomized, concurrent, crash and fault-injection tests.
//!
//! A case proves a clause by an example. These levels run until a number of operations, histories, kills or
//! faults is reached. A level that reaches a smaller number proves nothing, even if it found no error.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_kernel::Contract;
use serde::Serialize;

use crate::case::Level;
use crate::report::waiver::Waived;

/// The amount of work of the levels, and their random seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// The random seed. The report names it.
    pub seed: u64,
    /// True for at least ten times the work, as for a nightly run.
    pub long: bool,
    /// The time limit of one call.
    pub timeout: Duration,
    /// The share of the work to do, in thousandths; 1,000 is all of it. A smaller share shows that a level
    /// works. A level that does less than required is not proven.
    pub per_mille: u32,
}

impl Default for Effort {
    /// Seed 1, the work of a run for each change, and 30 s for a call.
    fn default() -> Self {
        Self { seed: 1, long: false, timeout: Duration::from_secs(30), per_mille: 1_000 }
    }
}

impl Effort {
    /// Returns the share of a required number.
    #[must_use]
    pub fn share_of(&self, required: u64) -> u64 {
        required.saturating_mul(u64::from(self.per_mille)).div_ceil(1_000)
    }
}

/// Evidence that a clause does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Counterexample {
    /// The id of the clause.
    pub clause: &'static str,
    /// The expected and the actual result, in a sentence. It contains no text that a user stored.
    pub finding: String,
    /// The steps that reproduce the finding: runnable Rust, or the recorded history.
    pub script: String,
    /// The seed of the single trial that found it.
    pub seed: u64,
}

impl Counterexample {
    /// Creates the evidence that a clause does not hold.
    #[must_use]
    pub fn new(clause: &'static str, finding: String, script: String, seed: u64) -> Self {
        Self { clause, finding, script, seed }
    }
}

/// The result of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// The level executed enough, and nothing contradicted the contract.
    Proven,
    /// The level executed too little to prove anything.
    NotProven,
    /// A counterexample contradicts the contract.
    Broken,
    /// Counterexamples contradict the contract, and waivers excuse all of them.
    Waived,
    /// The suite or the service failed.
    Error,
}

impl Verdict {
    /// Returns the words in reports.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proven => "proven",
            Self::NotProven => "not proven",
            Self::Broken => "broken",
            Self::Waived => "waived",
            Self::Error => "error",
        }
    }
}

/// The result of one level of one contract on one backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LevelReport {
    /// The backend's name.
    pub backend: String,
    /// The level.
    pub level: Level,
    /// The contract; `None` if the level tests the backend as a whole.
    pub contract: Option<Contract>,
    /// The unit of the counts, such as `operations` or `kills`.
    pub unit: &'static str,
    /// The number of units that were executed and judged.
    pub executed: u64,
    /// The number of units that prove the level.
    pub required: u64,
    /// The counterexamples to the contract.
    pub counterexamples: Vec<Counterexample>,
    /// The waivers of the counterexamples, by clause.
    pub waived: BTreeMap<&'static str, Waived>,
    /// The reason why the level could not continue.
    pub trouble: Option<String>,
    /// Other facts, such as the number of kills that hit a write in flight.
    pub notes: Vec<String>,
    /// The duration in microseconds.
    pub elapsed_us: u64,
}

impl LevelReport {
    /// Creates the report of a level that has executed nothing yet.
    #[doc(hidden)]
    #[must_use]
    pub fn new(
        backend: &str,
        level: Level,
        contract: Option<Contract>,
        unit: &'static str,
        required: u64,
    ) -> Self {
        Self {
            backend: backend.to_owned(),
            level,
            contract,
            unit,
            executed: 0,
            required,
            counterexamples: Vec::new(),
            waived: BTreeMap::new(),
            trouble: None,
            notes: Vec::new(),
            elapsed_us: 0,
        }
    }

    /// Returns the result of the level.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let borne = |found: &Counterexample| self.waived.contains_key(found.clause);
        if !self.counterexamples.iter().all(borne) {
            Verdict::Broken
        } else if self.trouble.is_some() {
            Verdict::Error
        } else if !self.counterexamples.is_empty() {
            Verdict::Waived
        } else if self.executed == 0 || self.executed < self.required {
            Verdict::NotProven
        } else {
            Verdict::Proven
        }
    }

    /// Returns the exit code of a program that ran the level: 0 if it is proven or waived, 1 if it is broken,
    /// else 2.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.verdict() {
            Verdict::Proven | Verdict::Waived => 0,
            Verdict::Broken => 1,
            Verdict::NotProven | Verdict::Error => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_with_too_few_operations_is_not_proven() {
        let mut report = LevelReport::new("memory", Level::Model, None, "operations", 10);
        assert_eq!(report.verdict(), Verdict::NotProven);
        report.executed = 9;
        assert_eq!((report.verdict(), report.exit_code()), (Verdict::NotProven, 2));
        report.executed = 10;
        assert_eq!((report.verdict(), report.exit_code()), (Verdict::Proven, 0));
        report.trouble = Some("the server does not respond".to_owned());
        assert_eq!(report.verdict(), Verdict::Error);
        report.counterexamples.push(Counterexample {
            clause: "KV-001",
            finding: String::new(),
            script: String::new(),
            seed: 1,
        });
        assert_eq!((report.verdict(), report.exit_code()), (Verdict::Broken, 1));
        assert_eq!(
            LevelReport::new("memory", Level::Model, None, "operations", 0).verdict(),
            Verdict::NotProven
        );
    }

    #[test]
    fn a_share_is_never_zero() {
        let effort = Effort { per_mille: 1, ..Effort::default() };
        assert_eq!((effort.share_of(1_000_000), effort.share_of(1)), (1_000, 1));
        assert_eq!(Effort::default().share_of(500), 500);
    }
}
