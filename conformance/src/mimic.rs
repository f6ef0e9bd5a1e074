//! The suite as a test target without the standard harness: one test for each case.

use std::process::ExitCode;
use std::sync::Arc;

use larder_kernel::Result;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use tokio::runtime::Runtime;

use crate::assert::describe_level;
use crate::case::{Case, Level};
use crate::harness::Harness;
use crate::level::Verdict;
use crate::report::CaseOutcome;
use crate::runner::{self, Probed, RunOptions};
use crate::suite::Suite;

impl Suite {
    /// Runs as a test target without the standard harness: one test for each case and one for each level beyond them,
    /// with the arguments of `cargo test` (`--list`, `--exact`, a filter). What the backend does not declare is ignored,
    /// and what cannot be proven fails.
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
        // Cases wait more than they compute: for a disk, or for a time to live to pass.
        arguments.test_threads.get_or_insert(self.parts().1.jobs);
        let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
            Ok(runtime) => Arc::new(runtime),
            Err(error) => return told(&format!("cannot make a runtime: {error}")),
        };
        let suite = Arc::new(self);
        let tests = match of_suite(&runtime, &suite) {
            Ok(tests) => tests,
            Err(error) => return told(&format!("cannot open: {error:?}")),
        };
        let ran = libtest_mimic::run(&arguments, tests);
        let (harness, options) = suite.parts();
        let destroyed = runner::within(options.timeout, "suite.destroy", harness.destroy());
        let code = match runtime.block_on(destroyed) {
            Ok(()) => ran.exit_code(),
            Err(error) => told(&format!("cannot clean up: {error:?}")),
        };
        // A call of the backend that never comes back must not keep the answer from coming out.
        if let Some(runtime) = Arc::into_inner(runtime) {
            runtime.shutdown_background();
        }
        code
    }
}

#[allow(clippy::print_stderr)]
fn told(reason: &str) -> ExitCode {
    eprintln!("{reason}");
    ExitCode::from(2)
}

/// One trial for each case that the backend serves, however it is to be run.
///
/// # Errors
/// The backend's own, where it cannot be opened.
pub fn trials(
    runtime: &Arc<Runtime>,
    harness: &Arc<dyn Harness>,
    options: &RunOptions,
) -> Result<Vec<Trial>> {
    of_suite(runtime, &Arc::new(Suite::shared(Arc::clone(harness)).with_options(options.clone())))
}

/// One trial for each case of the suite and each level. Cases that need what the backend does not declare are shown as
/// ignored, also where they find out only as they run.
fn of_suite(runtime: &Arc<Runtime>, suite: &Arc<Suite>) -> Result<Vec<Trial>> {
    let (harness, options) = suite.parts();
    let probed = Arc::new(runtime.block_on(runner::probe(&**harness, options.timeout))?);
    let cases = suite.cases().into_iter().filter(|case| probed.serves(case));
    let cases = cases.map(|case| trial(runtime, harness, &probed, options, case));
    let levels = suite.beyond().map(|level| level_trial(runtime, suite, &probed, level));
    Ok(cases.chain(levels).collect())
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
    harness: &Arc<dyn Harness>,
    probed: &Arc<Probed>,
    options: &RunOptions,
    case: Case,
) -> Trial {
    let (runtime, harness, probed, options) =
        (Arc::clone(runtime), Arc::clone(harness), Arc::clone(probed), options.clone());
    let name = format!("{}::{}", harness.name(), case.name);
    let ignored = probed.lacks(&case).is_some();
    let clause = case.clause;
    let run = move || {
        let report = runtime.block_on(runner::run_case(&harness, &probed, &case, &options));
        match report.outcome {
            CaseOutcome::Passed => Ok(Completion::Completed),
            CaseOutcome::Unsupported | CaseOutcome::Waived => Ok(Completion::ignored_with(report.reason)),
            CaseOutcome::Failed | CaseOutcome::Error => {
                Err(Failed::from(format!("{}: {}", report.clause, report.reason)))
            }
        }
    };
    Trial::ignorable_test(name, run).with_kind(clause).with_ignored_flag(ignored)
}
