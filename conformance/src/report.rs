//! The result of a run, and the files that show it.
//!
//! A [`Report`] is filled while a backend is checked. Then [`Report::waive`] marks the failures that a file
//! of waivers excuses. [`Report::standings`] returns the levels that each backend has proven. With the
//! feature `report`, [`Report::write`] writes a folder of files: JSON, JUnit XML, one HTML page, and a badge
//! for each backend. `guide/src/reports.md` in the repository describes them.

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

/// The version of the set of clauses and cases. It increases when a clause is added or changed.
pub const SUITE_VERSION: &str = "2.7.0";

/// The result of a whole run.
///
/// The JSON form is the document `report.json`, which has more than these fields: the schema version, the
/// verdict of each level, and the proven levels of each backend.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// The version of the suite.
    pub suite_version: &'static str,
    /// The random seed. The same seed repeats the run.
    pub seed: u64,
    /// The start time.
    pub started_at: Timestamp,
    /// The duration in microseconds; 0 if unknown.
    pub elapsed_us: u64,
    /// The number of cases that ran concurrently; 0 if unknown.
    pub jobs: usize,
    /// The tested backends.
    pub backends: Vec<BackendReport>,
    /// The backends that the run could not test.
    pub absent: Vec<AbsentBackend>,
    /// The cases.
    pub cases: Vec<CaseReport>,
    /// The requested levels beyond the cases.
    pub levels: Vec<LevelReport>,
    /// The latencies of the backends' methods.
    pub latencies: Vec<Latency>,
    /// The waivers and their results.
    pub waivers: Vec<WaiverUse>,
    /// The command that checks each backend again, by backend name. Options for a single case can be added to
    /// it.
    pub again: BTreeMap<String, String>,
    /// The counts.
    pub summary: Summary,
}

impl Report {
    /// Returns an empty report.
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

    /// Adds the results of one backend.
    pub fn add(&mut self, backend: BackendReport, cases: Vec<CaseReport>) {
        self.backends.push(backend);
        cases.into_iter().for_each(|case| self.add_case(case));
    }

    pub(crate) fn add_case(&mut self, case: CaseReport) {
        self.summary.add(case.outcome);
        self.cases.push(case);
    }

    /// Ends the run and stores its duration.
    pub fn finish(&mut self, elapsed: Duration) {
        self.elapsed_us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
    }

    /// Returns the exit code of a program that ran the suite.
    ///
    /// It combines [`Summary::exit_code`] and [`LevelReport::exit_code`]: 1 takes precedence over 2. An
    /// expired waiver also gives 1, and a missing required backend also gives 2. If only levels beyond the
    /// cases were requested, no case needs to have run.
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

    /// Returns the command that runs a case again, if the report has the command that checks its backend.
    #[must_use]
    pub fn again_case(&self, case: &CaseReport) -> Option<String> {
        let command = self.again.get(&case.backend)?;
        Some(format!("{command} --filter {} --seed {}", case.case, self.seed))
    }

    /// Returns the command that runs a level again from a seed, if the report has the command that checks its
    /// backend.
    #[must_use]
    pub fn again_level(&self, level: &LevelReport, seed: u64) -> Option<String> {
        let command = self.again.get(&level.backend)?;
        Some(format!("{command} --level {} --seed {seed}", level.level.as_str()))
    }

    /// Returns the failed cases, each with the clause that it disproves.
    pub fn failures(&self) -> impl Iterator<Item = &CaseReport> {
        self.cases.iter().filter(|case| case.outcome == CaseOutcome::Failed)
    }

    /// Returns the ids of the clauses that a failed case disproves: each id once, in order.
    #[must_use]
    pub fn broken_clauses(&self) -> Vec<&'static str> {
        in_order(self.failures())
    }

    /// Returns the ids of the clauses that a passed case proves and that nothing in the run contradicts,
    /// waived or not: each id once, in order.
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

    /// Returns the ids of the clauses with a case that needs a missing method and with no failed case: each
    /// id once, in order.
    #[must_use]
    pub fn waiting_clauses(&self) -> Vec<&'static str> {
        let broken = self.broken_clauses();
        let waiting = self.cases.iter().filter(|case| case.outcome == CaseOutcome::Waiting);
        in_order(waiting.filter(|case| !broken.contains(&case.clause)))
    }

    /// Returns the methods that the stores do not implement, with the number of cases that wait for each, the
    /// largest number first.
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

    /// Describes the next steps for an unfinished store: the counts, the missing methods, the broken clauses,
    /// and the clauses that wait for a method. Empty if no method is missing.
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
