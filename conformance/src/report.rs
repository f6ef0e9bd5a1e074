//! What a run found, and the files that show it.
//!
//! A [`Report`] is filled while a backend is checked. Then [`Report::waive`] marks the failures that a file of waivers
//! excuses, [`Report::standings`] says which levels each backend has proven, and, with the feature `report`,
//! [`Report::write`] makes a folder of files: JSON, JUnit XML, one page of HTML, and a badge for each backend. `guide/src/reports.md`
//! in the repository describes them.

#[cfg(feature = "report")]
mod badge;
#[cfg(feature = "report")]
mod files;
mod json;
#[cfg(feature = "report")]
mod junit;
mod outcome;
#[cfg(feature = "report")]
mod page;
#[cfg(test)]
mod sample;
mod standing;
pub mod waiver;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use larder_kernel::Timestamp;

pub use self::json::SCHEMA_VERSION;
pub use self::outcome::{AbsentBackend, BackendReport, CaseOutcome, CaseReport, Summary};
pub use self::standing::{LevelStanding, Standing};
use self::waiver::{WaiverStatus, WaiverUse};
use crate::latency::Latency;
use crate::level::LevelReport;

/// The version of the set of clauses and cases. It grows when a clause is added or changed.
pub const SUITE_VERSION: &str = "2.0.0";

/// A whole run.
///
/// As JSON it is the document `report.json`, which has more than these fields: the version of its own shape, the verdict of
/// each level, and what each backend has proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The version of the suite.
    pub suite_version: &'static str,
    /// The seed, with which the run can be repeated.
    pub seed: u64,
    /// When it began.
    pub started_at: Timestamp,
    /// How long it took, in microseconds; 0 where nobody said.
    pub elapsed_us: u64,
    /// How many cases ran at once; 0 where nobody said.
    pub jobs: usize,
    /// The backends.
    pub backends: Vec<BackendReport>,
    /// The backends that were to be tested and could not be.
    pub absent: Vec<AbsentBackend>,
    /// The cases.
    pub cases: Vec<CaseReport>,
    /// The levels beyond the cases, those that were asked for.
    pub levels: Vec<LevelReport>,
    /// How long the backends' methods took.
    pub latencies: Vec<Latency>,
    /// The waivers, and what became of each.
    pub waivers: Vec<WaiverUse>,
    /// By backend, the command that checks it again, to which options for one case can be added.
    pub again: BTreeMap<String, String>,
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
            started_at: Timestamp::now(),
            elapsed_us: 0,
            jobs: 0,
            backends: Vec::new(),
            absent: Vec::new(),
            cases: Vec::new(),
            levels: Vec::new(),
            latencies: Vec::new(),
            waivers: Vec::new(),
            again: BTreeMap::new(),
            summary: Summary::default(),
        }
    }

    /// Adds what was found on one backend.
    pub fn add(&mut self, backend: BackendReport, cases: Vec<CaseReport>) {
        self.backends.push(backend);
        cases.into_iter().for_each(|case| self.add_case(case));
    }

    pub(crate) fn add_case(&mut self, case: CaseReport) {
        self.summary.add(case.outcome);
        self.cases.push(case);
    }

    /// Ends the run: notes how long it took since it began.
    pub fn finish(&mut self, elapsed: Duration) {
        self.elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    }

    /// How a program that ran the suite exits: as [`Summary::exit_code`] and [`LevelReport::exit_code`] say, 1 before 2,
    /// 1 where a waiver has expired, and 2 as well where a required backend is not there. Where levels were asked for alone,
    /// no case needs to have run.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        let levels = self.levels.iter().map(LevelReport::exit_code);
        let cases = match self.summary {
            summary if summary == Summary::default() && !self.levels.is_empty() => 0,
            summary => summary.exit_code(),
        };
        let expired = self.waivers.iter().any(|used| used.status == WaiverStatus::Expired);
        let codes: Vec<u8> = levels.chain([cases, u8::from(expired)]).collect();
        let worst = if codes.contains(&1) { 1 } else { codes.into_iter().max().unwrap_or(2) };
        match worst {
            0 if self.absent.iter().any(|absent| absent.required) => 2,
            code => code,
        }
    }

    /// The command that runs a case again, where it is known how this backend is checked.
    #[must_use]
    pub fn again_case(&self, case: &CaseReport) -> Option<String> {
        let command = self.again.get(&case.backend)?;
        Some(format!("{command} --filter {} --seed {}", case.case, self.seed))
    }

    /// The command that runs a level again from a seed, where it is known how this backend is checked.
    #[must_use]
    pub fn again_level(&self, level: &LevelReport, seed: u64) -> Option<String> {
        let command = self.again.get(&level.backend)?;
        Some(format!("{command} --level {} --seed {seed}", level.level.as_str()))
    }

    /// The cases that failed, with every clause that they show not to hold.
    pub fn failures(&self) -> impl Iterator<Item = &CaseReport> {
        self.cases.iter().filter(|case| case.outcome == CaseOutcome::Failed)
    }

    /// The ids of the clauses that a case showed not to hold: each once, in order.
    #[must_use]
    pub fn broken_clauses(&self) -> Vec<&'static str> {
        in_order(self.failures())
    }

    /// The ids of the clauses that a case showed to hold, and that nothing in the run contradicts, waived or not: each once,
    /// in order.
    #[must_use]
    pub fn held_clauses(&self) -> Vec<&'static str> {
        let mut contradicted: BTreeSet<&str> = self.broken_clauses().into_iter().collect();
        contradicted.extend(self.cases.iter().filter(|case| case.waived.is_some()).map(|case| case.clause));
        let found = self.levels.iter().flat_map(|level| &level.counterexamples);
        contradicted.extend(found.map(|found| found.clause));
        let holds =
            |case: &&CaseReport| case.outcome == CaseOutcome::Passed && !contradicted.contains(case.clause);
        in_order(self.cases.iter().filter(holds))
    }

    /// The ids of the clauses with a case that needs a missing method, and with none that failed: each once, in order.
    #[must_use]
    pub fn waiting_clauses(&self) -> Vec<&'static str> {
        let broken = self.broken_clauses();
        let waiting = self.cases.iter().filter(|case| case.outcome == CaseOutcome::Waiting);
        in_order(waiting.filter(|case| !broken.contains(&case.clause)))
    }

    /// The methods that the stores do not implement, with the number of cases that wait for each, the largest first.
    #[must_use]
    pub fn missing_methods(&self) -> Vec<(&'static str, usize)> {
        let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
        for method in self.cases.iter().filter_map(|case| case.missing) {
            *counts.entry(method).or_default() += 1;
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        counts
    }

    /// What an unfinished store needs next: the counts, the missing methods, the clauses that do not hold, and those that
    /// wait for a method. Empty if no method is missing.
    #[must_use]
    pub fn conclusion(&self) -> String {
        let missing = self.missing_methods();
        if missing.is_empty() {
            return String::new();
        }
        let contracts: BTreeSet<_> =
            missing.iter().filter_map(|(method, _)| method.split('.').next()).collect();
        let name = |method: &'static str| match method.split_once('.') {
            Some((_, short)) if contracts.len() == 1 => short,
            _ => method,
        };
        let methods: Vec<String> =
            missing.iter().map(|(method, count)| format!("{} {count}", name(method))).collect();
        let Summary { passed, failed, waiting, .. } = self.summary;
        let mut text =
            format!("{passed} passed, {failed} wrong, {waiting} waiting for: {}\n", methods.join(", "));
        for (word, ids) in [("wrong", self.broken_clauses()), ("waiting", self.waiting_clauses())] {
            let ids = if ids.is_empty() { "none".to_owned() } else { ids.join(" ") };
            text.push_str(&format!("clauses {word}: {ids}\n"));
        }
        text
    }
}

fn in_order<'a>(cases: impl Iterator<Item = &'a CaseReport>) -> Vec<&'static str> {
    let mut ids: Vec<_> = cases.map(|case| case.clause).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
