//! The levels that press a backend by chance and force, beyond the cases: what they found, counted and judged.
//!
//! A case proves a clause by an example. These levels run until a number of operations, histories, kills or faults is
//! reached, and a level that reached too few of them proves nothing, whatever it saw.

use std::collections::BTreeMap;
use std::time::Duration;

use larder_kernel::Contract;
use serde::Serialize;

use crate::case::Level;
use crate::report::waiver::Waived;

/// How much the levels do, and where their chance comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// Where chance comes from; the report names it.
    pub seed: u64,
    /// Ten times as much and more, for a night rather than for each change.
    pub long: bool,
    /// How long one call may take.
    pub timeout: Duration,
    /// Do this share of the work, in thousandths, to see that a level works rather than to prove anything; a level that
    /// does less than it should is not proven. 1,000 is all of it.
    pub per_mille: u32,
}

impl Default for Effort {
    /// Seed 1, what every change runs, 30 seconds a call.
    fn default() -> Self {
        Self { seed: 1, long: false, timeout: Duration::from_secs(30), per_mille: 1_000 }
    }
}

impl Effort {
    /// How many to do where so many are required.
    #[must_use]
    pub fn share_of(&self, required: u64) -> u64 {
        required.saturating_mul(u64::from(self.per_mille)).div_ceil(1_000)
    }
}

/// What shows that a clause does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Counterexample {
    /// The clause.
    pub clause: &'static str,
    /// What was expected and what came, in a sentence. Holds no text that a user stored.
    pub finding: String,
    /// How to see it again: runnable Rust, or the recorded history.
    pub script: String,
    /// The seed of the one trial that found it.
    pub seed: u64,
}

/// How a level ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Enough was executed, and nothing contradicted the contract.
    Proven,
    /// Too little was executed to say anything.
    NotProven,
    /// Something contradicted the contract.
    Broken,
    /// Something contradicted the contract, and waivers say so.
    Waived,
    /// The engine or the service failed.
    Error,
}

impl Verdict {
    /// The words in reports.
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

/// One level of one contract on one backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LevelReport {
    /// The backend's name.
    pub backend: String,
    /// The level.
    pub level: Level,
    /// The contract; `None` where the level presses the backend as a whole.
    pub contract: Option<Contract>,
    /// What is counted, such as `operations` or `kills`.
    pub unit: &'static str,
    /// How many were executed and judged.
    pub executed: u64,
    /// How many prove the level.
    pub required: u64,
    /// What contradicts the contract.
    pub counterexamples: Vec<Counterexample>,
    /// By clause, the waivers of what contradicts it.
    pub waived: BTreeMap<&'static str, Waived>,
    /// Why the level could not go on.
    pub trouble: Option<String>,
    /// What else is worth knowing, such as how many kills met a write in flight.
    pub notes: Vec<String>,
    /// How long it took, in microseconds.
    pub elapsed_us: u64,
}

impl LevelReport {
    /// A level of which nothing has been executed yet.
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

    /// How the level ended.
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

    /// How a program that ran the level exits: 0 where it is proven or waived, 1 where it is broken, else 2.
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
    fn a_level_that_did_too_little_is_never_proven() {
        let mut report = LevelReport::new("memory", Level::Model, None, "operations", 10);
        assert_eq!(report.verdict(), Verdict::NotProven);
        report.executed = 9;
        assert_eq!((report.verdict(), report.exit_code()), (Verdict::NotProven, 2));
        report.executed = 10;
        assert_eq!((report.verdict(), report.exit_code()), (Verdict::Proven, 0));
        report.trouble = Some("the server is gone".to_owned());
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
    fn a_share_is_never_nothing() {
        let effort = Effort { per_mille: 1, ..Effort::default() };
        assert_eq!((effort.share_of(1_000_000), effort.share_of(1)), (1_000, 1));
        assert_eq!(Effort::default().share_of(500), 500);
    }
}
