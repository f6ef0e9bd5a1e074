//! The suite as a test target without the standard harness: one test for each case.

use std::sync::Arc;

use libtest_mimic::{Completion, Failed, Trial};

use crate::case::Case;
use crate::harness::Harness;
use crate::report::CaseOutcome;
use crate::runner::{self, Probed, RunOptions};
use crate::suites;

/// One trial for each case that the backend serves. Cases that need what the backend does not declare are shown as
/// ignored, also where they find out only as they run.
///
/// # Errors
/// The backend's own, where it cannot be opened.
pub fn trials(
    runtime: &Arc<tokio::runtime::Runtime>,
    harness: &Arc<dyn Harness>,
    options: &RunOptions,
) -> larder_kernel::Result<Vec<Trial>> {
    let probed = Arc::new(runtime.block_on(runner::probe(&**harness, options.timeout))?);
    let cases = suites::all().into_iter().filter(|case| probed.serves(case));
    Ok(cases.map(|case| trial(runtime, harness, &probed, options, case)).collect())
}

fn trial(
    runtime: &Arc<tokio::runtime::Runtime>,
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
            CaseOutcome::Unsupported => Ok(Completion::ignored_with(report.reason)),
            CaseOutcome::Failed | CaseOutcome::Error => {
                Err(Failed::from(format!("{}: {}", report.clause, report.reason)))
            }
        }
    };
    Trial::ignorable_test(name, run).with_kind(clause).with_ignored_flag(ignored)
}
