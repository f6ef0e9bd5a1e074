//! The suite as a test target without the standard harness: one test for each case.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use larder_kernel::Result;
use libtest_mimic::{Arguments, Completion, Conclusion, Failed, Trial};
use tokio::runtime::Runtime;

use crate::case::{Case, Level};
use crate::describe::describe_level;
use crate::harness::Harness;
use crate::level::Verdict;
use crate::report::{CaseOutcome, Report};
use crate::runner::{self, Probed, RunOptions};
use crate::suite::Suite;

impl Suite {
    /// Runs as a test target without the standard harness: one test for each case and one for each level
    /// beyond the cases, with the arguments of `cargo test` (`--list`, `--exact`, a filter). Cases are
    /// ignored if they need a capability that the backend does not declare or a method that it does not
    /// implement. The exit code is not 0 if a method is missing. The last lines then name the missing methods
    /// and the clauses that wait for them.
    ///
    /// ```toml
    /// # Cargo.toml
    /// [dev-dependencies]
    /// larder-conformance = { version = "0.1", features = ["mimic"] }
    ///
    /// [[test]]
    /// name = "conformance"
    /// harness = false
    /// ```
    ///
    /// ```ignore
    /// // tests/conformance.rs
    /// fn main() -> std::process::ExitCode {
    ///     larder_conformance::Suite::new(MyHarness::default()).main()
    /// }
    /// ```
    #[must_use]
    pub fn main(self) -> ExitCode {
        let mut arguments = Arguments::from_args();
        // Cases mostly wait: for a disk, or for a time to live to pass.
        arguments.test_threads.get_or_insert(self.parts().1.jobs);
        let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
            Ok(runtime) => Arc::new(runtime),
            Err(error) => return told(&format!("cannot create a runtime: {error}")),
        };
        let suite = Arc::new(self);
        let ended = Arc::new(Mutex::new(Report::new(suite.parts().1.seed)));
        let (tests, probed) = match of_suite(&runtime, &suite, &ended) {
            Ok(tests) => tests,
            Err(error) => return told(&format!("cannot open: {error:?}")),
        };
        let ran = libtest_mimic::run(&arguments, tests);
        let (harness, options) = suite.parts();
        let remaining = runtime.block_on(runner::erase_large(harness, &probed, options));
        let destroyed = runner::within(options.timeout, "suite.destroy", harness.destroy());
        let code = match runtime.block_on(destroyed) {
            Ok(()) => match remaining.first() {
                Some((_, reason)) => told(&format!("cannot clean up: {reason}")),
                None => concluded(&ran, &ended),
            },
            Err(error) => told(&format!("cannot clean up: {error:?}")),
        };
        // A backend call that never returns must not block the result.
        if let Some(runtime) = Arc::into_inner(runtime) {
            runtime.shutdown_background();
        }
        code
    }
}

/// Returns the exit code. A run with missing methods never succeeds, and lists them last.
#[allow(clippy::print_stdout)]
fn concluded(ran: &Conclusion, ended: &Mutex<Report>) -> ExitCode {
    let report = ended.lock().unwrap_or_else(PoisonError::into_inner);
    print!("{}", report.conclusion());
    if report.summary.waiting > 0 && !ran.has_failed() { ExitCode::from(2) } else { ran.exit_code() }
}

#[allow(clippy::print_stderr)]
fn told(reason: &str) -> ExitCode {
    eprintln!("{reason}");
    ExitCode::from(2)
}

/// Returns one trial for each case that the backend serves.
///
/// # Errors
/// Errors of the backend if it cannot be opened.
pub fn trials(
    runtime: &Arc<Runtime>,
    harness: &Arc<dyn Harness>,
    options: &RunOptions,
) -> Result<Vec<Trial>> {
    let suite = Arc::new(Suite::shared(Arc::clone(harness)).with_options(options.clone()));
    of_suite(runtime, &suite, &Arc::new(Mutex::new(Report::new(options.seed)))).map(|(trials, _)| trials)
}

/// Returns one trial for each case and each level of the suite. Cases that need an undeclared capability are
/// shown as ignored, even if they find that out only while they run.
fn of_suite(
    runtime: &Arc<Runtime>,
    suite: &Arc<Suite>,
    ended: &Arc<Mutex<Report>>,
) -> Result<(Vec<Trial>, Arc<Probed>)> {
    let (harness, options) = suite.parts();
    let probed = Arc::new(runtime.block_on(runner::probe(&**harness, options.timeout))?);
    let cases = suite.cases().into_iter().filter(|case| probed.serves(case));
    let cases = cases.map(|case| trial(runtime, (harness, options), &probed, ended, case));
    let levels = suite.beyond().map(|level| level_trial(runtime, suite, &probed, level));
    Ok((cases.chain(levels).collect(), Arc::clone(&probed)))
}

fn level_trial(runtime: &Arc<Runtime>, suite: &Arc<Suite>, probed: &Arc<Probed>, level: Level) -> Trial {
    let (runtime, suite, probed) = (Arc::clone(runtime), Arc::clone(suite), Arc::clone(probed));
    let name = format!("{}::{}", suite.parts().0.name(), level.as_str());
    let run = move || {
        let reports = runtime.block_on(suite.press(level, &probed));
        if reports.is_empty() {
            return Ok(Completion::ignored_with("there is nothing to press on this backend"));
        }
        let unproven = reports.iter().filter(|report| report.verdict() != Verdict::Proven);
        let unproven: String = unproven.map(describe_level).collect();
        if unproven.is_empty() { Ok(Completion::Completed) } else { Err(Failed::from(unproven)) }
    };
    Trial::ignorable_test(name, run).with_kind("level")
}

fn trial(
    runtime: &Arc<Runtime>,
    (harness, options): (&Arc<dyn Harness>, &RunOptions),
    probed: &Arc<Probed>,
    ended: &Arc<Mutex<Report>>,
    case: Case,
) -> Trial {
    let (runtime, harness, probed, options) =
        (Arc::clone(runtime), Arc::clone(harness), Arc::clone(probed), options.clone());
    let ended = Arc::clone(ended);
    let name = format!("{}::{}", harness.name(), case.name);
    let ignored = probed.lacks(&case).is_some();
    let clause = case.clause;
    let run = move || {
        let report = runtime.block_on(runner::run_case(&harness, &probed, &case, &options));
        ended.lock().unwrap_or_else(PoisonError::into_inner).add_case(report.clone());
        match report.outcome {
            CaseOutcome::Passed => Ok(Completion::Completed),
            CaseOutcome::Unsupported | CaseOutcome::Waived | CaseOutcome::Waiting => {
                Ok(Completion::ignored_with(report.reason))
            }
            CaseOutcome::Failed | CaseOutcome::Error => {
                Err(Failed::from(format!("{}: {}", report.clause, report.reason)))
            }
        }
    };
    Trial::ignorable_test(name, run).with_kind(clause).with_ignored_flag(ignored)
}
