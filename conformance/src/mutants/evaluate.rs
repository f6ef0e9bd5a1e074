//! Runs mutants against the suite and returns the clauses that detected each.

use std::time::{Duration, Instant};

use futures_util::StreamExt;
use larder_kernel::{Contract, Result};
use serde::Serialize;

use super::Mutant;
use crate::case::Case;
use crate::report::{CaseOutcome, CaseReport, Report, SUITE_VERSION, Summary};
use crate::runner::{self, RunOptions};
use crate::suites;

/// The number of mutants that are judged concurrently: their cases mostly wait.
const AT_ONCE: usize = 4;

/// The cases that judge a mutant. All cases of its contract always judge a control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The cases of the clauses that forbid its defect: enough for the verdict, and fast.
    Own,
    /// All cases of its contract, which also shows other clauses that detected the defect.
    All,
}

/// The result of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// A case of each clause that forbids the defect failed.
    Killed,
    /// At least one clause that forbids the defect has no failed case.
    Survived,
    /// A control without a failure, as required.
    Passed,
    /// A control with a failure: no kill is valid.
    Condemned,
}

/// One row of the matrix.
#[derive(Debug, Clone, Serialize)]
pub struct Evaluation {
    /// The contract.
    pub contract: Contract,
    /// The mutant's name.
    pub mutant: String,
    /// Its defect, in one sentence.
    #[serde(rename = "sin")]
    pub defect: String,
    /// The result.
    pub verdict: Verdict,
    /// The clauses that forbid the defect and detected it.
    pub caught_by: Vec<&'static str>,
    /// The clauses that forbid the defect and did not detect it.
    pub unnoticed_by: Vec<&'static str>,
    /// Other clauses that detected the defect; for a control, all failed clauses.
    pub also: Vec<&'static str>,
    /// The results of its cases.
    pub cases: Summary,
    /// The reason of the first relevant failure; empty if no relevant case failed.
    pub reason: String,
    /// The duration in milliseconds.
    pub elapsed_ms: u64,
}

impl Evaluation {
    /// Returns `true` if the result is the required one.
    #[must_use]
    pub fn is_right(&self) -> bool {
        matches!(self.verdict, Verdict::Killed | Verdict::Passed)
    }
}

/// The counts of the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Tally {
    /// The mutants that were detected by the clauses that forbid their defect.
    pub killed: usize,
    /// The mutants that were not detected.
    pub survived: usize,
    /// Controls that passed.
    pub controls_passed: usize,
    /// The controls that did not pass.
    pub controls_condemned: usize,
}

/// The kill matrix: mutant × clause.
#[derive(Debug, Clone, Serialize)]
pub struct Matrix {
    /// The version of the suite.
    pub suite_version: &'static str,
    /// The random seed of the cases.
    pub seed: u64,
    /// The cases that judged.
    pub scope: Scope,
    /// The rows, in the order of the mutants.
    pub mutants: Vec<Evaluation>,
    /// The counts.
    pub tally: Tally,
}

impl Matrix {
    /// Returns the exit code of a program that judged mutants: 0 if every mutant was killed and every control
    /// passed, 1 if one was not, 2 if no mutant was judged.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self.tally {
            Tally { survived: 1.., .. } | Tally { controls_condemned: 1.., .. } => 1,
            Tally { killed: 0, controls_passed: 0, .. } => 2,
            _ => 0,
        }
    }
}

/// Returns the options for mutants: more concurrent cases than on a real backend, because none of them waits
/// for a disk.
#[must_use]
pub fn options() -> RunOptions {
    RunOptions { jobs: 32, timeout: Duration::from_secs(60), ..RunOptions::default() }
}

/// Judges one mutant.
///
/// # Errors
/// Errors of the store if it cannot be opened.
pub async fn evaluate(mutant: &Mutant, scope: Scope, options: &RunOptions) -> Result<Evaluation> {
    let begun = Instant::now();
    let harness = mutant.harness();
    let all = scope == Scope::All || mutant.is_control();
    let wanted =
        |case: &Case| case.contract == mutant.contract && (all || mutant.clauses.contains(&case.clause));
    let cases: Vec<_> = suites::all().into_iter().filter(wanted).collect();
    let probed = runner::probe(&*harness, options.timeout).await?;
    let reports = runner::run(&harness, &probed, &cases, options, &|_| {}).await;
    let mut report = Report::new(options.seed);
    report.add(probed.backend, reports);
    let mut judged = verdict(mutant, &report);
    judged.elapsed_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(judged)
}

fn verdict(mutant: &Mutant, report: &Report) -> Evaluation {
    let broken = report.broken_clauses();
    let (caught_by, unnoticed_by): (Vec<_>, Vec<_>) =
        mutant.clauses.iter().partition(|clause| broken.contains(clause));
    let also = broken.into_iter().filter(|clause| !mutant.clauses.contains(clause)).collect();
    let untroubled = report.summary.passed > 0 && report.summary.failed == 0 && report.summary.errors == 0;
    let verdict = match (mutant.is_control(), unnoticed_by.is_empty(), untroubled) {
        (true, _, true) => Verdict::Passed,
        (true, _, false) => Verdict::Condemned,
        (false, true, _) => Verdict::Killed,
        (false, false, _) => Verdict::Survived,
    };
    Evaluation {
        contract: mutant.contract,
        mutant: mutant.name.clone(),
        defect: mutant.defect.clone(),
        verdict,
        reason: reason(mutant, report),
        caught_by,
        unnoticed_by,
        also,
        cases: report.summary,
        elapsed_ms: 0,
    }
}

/// Returns the reason of the first relevant case: for a mutant a failed case of one of its clauses, for a
/// control any case that did not pass.
fn reason(mutant: &Mutant, report: &Report) -> String {
    let counts = |case: &&CaseReport| match case.outcome {
        CaseOutcome::Failed => mutant.is_control() || mutant.clauses.contains(&case.clause),
        CaseOutcome::Error | CaseOutcome::Waiting => mutant.is_control(),
        CaseOutcome::Passed | CaseOutcome::Unsupported | CaseOutcome::Waived => false,
    };
    let first = report.cases.iter().find(counts);
    first.map_or_else(String::new, |case| format!("{}: {}", case.case, case.reason))
}

/// Judges mutants concurrently; calls `done` after each.
///
/// # Errors
/// Errors of the first store that cannot be opened.
pub async fn matrix(
    mutants: &[Mutant],
    scope: Scope,
    options: &RunOptions,
    done: &(dyn Fn(&Evaluation) + Sync),
) -> Result<Matrix> {
    let judging = futures_util::stream::iter(mutants.iter().enumerate()).map(|(index, mutant)| async move {
        let judged = evaluate(mutant, scope, options).await?;
        done(&judged);
        Ok((index, judged))
    });
    let judged: Vec<Result<_>> = judging.buffer_unordered(AT_ONCE).collect().await;
    let mut rows = judged.into_iter().collect::<Result<Vec<(usize, Evaluation)>>>()?;
    rows.sort_unstable_by_key(|(index, _)| *index);
    let mutants: Vec<_> = rows.into_iter().map(|(_, judged)| judged).collect();
    let tally = tally(&mutants);
    Ok(Matrix { suite_version: SUITE_VERSION, seed: options.seed, scope, mutants, tally })
}

fn tally(judged: &[Evaluation]) -> Tally {
    let mut tally = Tally::default();
    for one in judged {
        match one.verdict {
            Verdict::Killed => tally.killed += 1,
            Verdict::Survived => tally.survived += 1,
            Verdict::Passed => tally.controls_passed += 1,
            Verdict::Condemned => tally.controls_condemned += 1,
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use async_trait::async_trait;
    use larder_kernel::{Error, ErrorKind, Namespace};

    use super::super::all;
    use super::*;
    use crate::harness::{Harness, OpenOptions, StoreSet};

    fn named(name: &str) -> Mutant {
        all().into_iter().find(|mutant| mutant.name == name).unwrap()
    }

    async fn only(mutant: &Mutant) -> Matrix {
        matrix(std::slice::from_ref(mutant), Scope::Own, &options(), &|_| {}).await.unwrap()
    }

    #[tokio::test]
    async fn a_correct_store_listed_as_a_mutant_survives_and_the_exit_code_is_1() {
        let control = named("key_value.the_control_passes");
        let accused = Mutant { clauses: &["KV-001", "KV-027"], ..control };
        let matrix = only(&accused).await;
        assert_eq!(matrix.mutants[0].verdict, Verdict::Survived);
        assert_eq!(matrix.mutants[0].unnoticed_by, ["KV-001", "KV-027"]);
        assert_eq!(matrix.exit_code(), 1);
    }

    #[tokio::test]
    async fn a_failure_of_another_clause_is_not_a_kill() {
        let wrong = named("key_value.deleting_takes_longer_keys_too");
        let matrix = only(&Mutant { clauses: &["KV-027", "KV-001"], ..wrong }).await;
        assert_eq!(matrix.mutants[0].verdict, Verdict::Survived);
        assert_eq!(
            (&*matrix.mutants[0].caught_by, &*matrix.mutants[0].unnoticed_by),
            (&["KV-027"][..], &["KV-001"][..])
        );
    }

    #[tokio::test]
    async fn a_wrong_control_is_condemned_and_the_exit_code_is_1() {
        let wrong = named("key_value.deleting_takes_longer_keys_too");
        let matrix = only(&Mutant { clauses: &[], ..wrong }).await;
        assert_eq!(matrix.mutants[0].verdict, Verdict::Condemned);
        assert!(matrix.mutants[0].reason.starts_with("key_value."), "{}", matrix.mutants[0].reason);
        assert_eq!(matrix.exit_code(), 1);
    }

    /// Opens once for the probe, and never again.
    #[derive(Debug)]
    struct Down {
        inner: Arc<dyn Harness>,
        opened: AtomicBool,
    }

    #[async_trait]
    impl Harness for Down {
        fn name(&self) -> &str {
            "down"
        }

        fn url(&self) -> String {
            String::new()
        }

        async fn open(&self, namespace: &Namespace, options: &OpenOptions) -> Result<StoreSet> {
            if self.opened.swap(true, Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Unavailable, "down.open", "it is down"));
            }
            self.inner.open(namespace, options).await
        }
    }

    #[tokio::test]
    async fn a_case_that_could_not_run_kills_nothing() {
        let wrong = named("key_value.deleting_takes_longer_keys_too");
        let inner = wrong.harness();
        let down = Mutant::new(Contract::KeyValue, "it_is_down", &["KV-027"], move || {
            Arc::new(Down { inner: Arc::clone(&inner), opened: AtomicBool::new(false) })
        });
        let matrix = only(&down).await;
        assert_eq!(matrix.mutants[0].verdict, Verdict::Survived);
        assert!(matrix.mutants[0].cases.errors > 0 && matrix.mutants[0].cases.failed == 0);
    }

    #[tokio::test]
    async fn an_empty_run_is_not_a_success() {
        let matrix = matrix(&[], Scope::Own, &options(), &|_| {}).await.unwrap();
        assert_eq!(matrix.exit_code(), 2);
    }
}
