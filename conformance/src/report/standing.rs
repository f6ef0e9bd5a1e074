//! The proven levels of each backend.

use std::collections::BTreeSet;
use std::fmt;

use serde::Serialize;

use super::{CaseOutcome, CaseReport, Report, Summary};
use crate::case::Level;
use crate::level::Verdict;
use crate::suites;

/// The result of one level on one backend, over all contracts that it serves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LevelStanding {
    /// The level.
    pub level: Level,
    /// The result.
    pub verdict: Verdict,
    /// The unit of the counts.
    pub unit: &'static str,
    /// The number of units that were executed and judged.
    pub executed: u64,
    /// The number of units that prove the level. For cases: all cases that the suite has for this backend,
    /// except those whose capability it does not declare.
    pub required: u64,
}

/// The results of one backend in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Standing {
    /// The backend's name.
    pub backend: String,
    /// The version of the suite.
    pub suite_version: &'static str,
    /// The number of cases that were executed and judged: passed, failed or waived.
    pub cases_executed: usize,
    /// The levels that ran, the gentlest first.
    pub levels: Vec<LevelStanding>,
}

impl Standing {
    /// Returns `true` if at least one level ran and every level that ran is proven or waived.
    #[must_use]
    pub fn holds(&self) -> bool {
        let holds = |level: &LevelStanding| matches!(level.verdict, Verdict::Proven | Verdict::Waived);
        !self.levels.is_empty() && self.levels.iter().all(holds)
    }

    /// Returns the result of a level, if it ran.
    #[must_use]
    pub fn level(&self, level: Level) -> Option<&LevelStanding> {
        self.levels.iter().find(|standing| standing.level == level)
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: suite {}", self.backend, self.suite_version)?;
        for verdict in [Verdict::Broken, Verdict::Error, Verdict::Proven, Verdict::Waived, Verdict::NotProven]
        {
            let of = self.levels.iter().filter(|level| level.verdict == verdict);
            let words: Vec<String> = of.map(LevelStanding::to_string).collect();
            if !words.is_empty() {
                let word = if verdict == Verdict::Broken { "BROKEN" } else { verdict.as_str() };
                write!(f, "; {word} {}", words.join(", "))?;
            }
        }
        if self.levels.is_empty() {
            f.write_str("; nothing proven")?;
        }
        write!(f, "; {} cases executed", self.cases_executed)
    }
}

impl fmt::Display for LevelStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { level, executed, required, unit, .. } = self;
        match executed {
            enough if enough >= required => write!(f, "{} ({executed} {unit})", level.as_str()),
            _ => write!(f, "{} ({executed} of {required} {unit})", level.as_str()),
        }
    }
}

impl Report {
    /// Returns the results of each backend.
    #[must_use]
    pub fn standings(&self) -> Vec<Standing> {
        let suite: Vec<_> =
            suites::all().into_iter().map(|case| (case.contract, case.level, case.name)).collect();
        let of = |backend: &super::BackendReport| {
            let mine: Vec<&CaseReport> =
                self.cases.iter().filter(|case| case.backend == backend.name).collect();
            let level = |level| {
                let names = suite
                    .iter()
                    .filter(|(contract, own, _)| *own == level && backend.capabilities.contains_key(contract))
                    .map(|(_, _, name)| name.as_str());
                of_cases(level, &mine, &names.collect()).or_else(|| self.of_reports(level, &backend.name))
            };
            Standing {
                backend: backend.name.clone(),
                suite_version: self.suite_version,
                cases_executed: executed(&Summary::of(mine.iter().copied())),
                levels: Level::ALL.iter().copied().filter_map(level).collect(),
            }
        };
        self.backends.iter().map(of).collect()
    }

    /// Combines the reports of a level beyond the cases: over all contracts, and never better than the worst
    /// report.
    fn of_reports(&self, level: Level, backend: &str) -> Option<LevelStanding> {
        let mine = || self.levels.iter().filter(|report| report.level == level && report.backend == backend);
        let verdicts: BTreeSet<Verdict> = mine().map(super::LevelReport::verdict).collect();
        let worst = [Verdict::Broken, Verdict::Error, Verdict::NotProven, Verdict::Waived, Verdict::Proven];
        Some(LevelStanding {
            level,
            verdict: worst.into_iter().find(|verdict| verdicts.contains(verdict))?,
            unit: mine().next()?.unit,
            executed: mine().map(|report| report.executed).sum(),
            required: mine().map(|report| report.required).sum(),
        })
    }
}

/// Combines the cases of a level, if any of them ran. `names` are the names of the suite's cases for the
/// backend.
fn of_cases(level: Level, cases: &[&CaseReport], names: &BTreeSet<&str>) -> Option<LevelStanding> {
    let ran: Vec<&CaseReport> = cases.iter().copied().filter(|case| case.level == level).collect();
    if ran.is_empty() {
        return None;
    }
    let summary = Summary::of(ran.iter().copied());
    let undeclared = |case: &&&CaseReport| case.outcome == CaseOutcome::Unsupported;
    let left_out = ran.iter().filter(undeclared).filter(|case| names.contains(case.case.as_str())).count();
    let executed = executed(&summary);
    // A custom case is not part of the suite and proves nothing about it.
    let judged = |case: &&&CaseReport| {
        !matches!(case.outcome, CaseOutcome::Error | CaseOutcome::Waiting) && !undeclared(case)
    };
    let of_suite = ran.iter().filter(judged).filter(|case| names.contains(case.case.as_str())).count();
    let required = names.len() - left_out;
    let verdict = match summary {
        Summary { failed: 1.., .. } => Verdict::Broken,
        Summary { errors: 1.., .. } => Verdict::Error,
        Summary { waiting: 1.., .. } => Verdict::NotProven,
        _ if of_suite == 0 || of_suite < required => Verdict::NotProven,
        Summary { waived: 1.., .. } => Verdict::Waived,
        _ => Verdict::Proven,
    };
    let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    Some(LevelStanding {
        level,
        verdict,
        unit: "cases",
        executed: count(executed),
        required: count(required),
    })
}

fn executed(summary: &Summary) -> usize {
    summary.passed + summary.failed + summary.waived
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_level_with_omitted_cases_is_not_proven() {
        let standing = &sample::passing().standings()[0];
        let contract = standing.level(Level::Contract).unwrap();
        assert_eq!((contract.verdict, contract.executed), (Verdict::NotProven, 2));
        assert!(contract.required > 50, "{contract:?}");
        assert_eq!(standing.level(Level::Model).unwrap().verdict, Verdict::Proven);
        assert!(standing.level(Level::Hostile).is_none() && !standing.holds());
        let line = standing.to_string();
        let end = format!("not proven contract (2 of {} cases); 2 cases executed", contract.required);
        assert!(line.starts_with("mine: suite ") && line.ends_with(&end), "{line}");
        assert!(line.contains("; proven model (100000 operations); "), "{line}");
    }

    #[test]
    fn a_level_is_proven_by_all_its_cases_and_by_no_fewer() {
        let mut report = sample::complete();
        let level = |report: &Report| report.standings()[0].level(Level::Contract).unwrap().verdict;
        assert_eq!(level(&report), Verdict::Proven);
        report.cases[0].outcome = CaseOutcome::Waived;
        assert_eq!(level(&report), Verdict::Waived);
        report.cases[1].outcome = CaseOutcome::Waiting;
        assert_eq!(level(&report), Verdict::NotProven);
        report.cases[1].outcome = CaseOutcome::Unsupported;
        assert_eq!(level(&report), Verdict::Waived);
        let last = report.cases.pop().unwrap();
        assert_eq!(level(&report), Verdict::NotProven);
        report.cases.push(CaseReport { outcome: CaseOutcome::Error, ..last });
        assert_eq!(level(&report), Verdict::Error);
        report.cases[2].outcome = CaseOutcome::Failed;
        assert_eq!(level(&report), Verdict::Broken);
        report.cases.iter_mut().for_each(|case| case.outcome = CaseOutcome::Unsupported);
        assert_eq!(level(&report), Verdict::NotProven);
    }

    #[test]
    fn the_worst_contract_decides_a_level() {
        let mut report = sample::passing();
        let mut second = report.levels[0].clone();
        second.executed = 1;
        report.levels.push(second);
        let standing = &report.standings()[0];
        let model = standing.level(Level::Model).unwrap();
        assert_eq!((model.verdict, model.executed, model.required), (Verdict::NotProven, 100_001, 200_000));
    }
}
