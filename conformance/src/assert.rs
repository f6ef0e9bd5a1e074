//! The suite as one test of somebody else's crate.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::harness::Harness;
use crate::report::{CaseReport, Report};
use crate::runner::{self, RunOptions};
use crate::suites;

/// Runs every case that the harness can serve, on a runtime of its own.
///
/// # Errors
/// A sentence where the backend cannot be opened or cleaned up, or the runtime cannot be made.
pub fn check(harness: &Arc<dyn Harness>, options: &RunOptions) -> Result<Report, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot make a runtime: {error}"))?;
    let checked = runtime.block_on(async {
        let probed = runner::probe(&**harness, options.timeout).await;
        let probed = probed.map_err(|error| format!("cannot open: {error:?}"))?;
        let cases = runner::run(harness, &probed, &suites::all(), options, &|_| {}).await;
        let mut report = Report::new(options.seed);
        report.add(probed.backend, cases);
        let destroyed = runner::within(options.timeout, "runner.destroy", harness.destroy()).await;
        destroyed.map_err(|error| format!("cannot clean up: {error:?}"))?;
        Ok(report)
    });
    // Without this a call of the backend that never comes back would keep the answer from coming out.
    runtime.shutdown_background();
    checked
}

/// Runs the suite and panics with what does not hold, clause by clause. [`conformance_test!`](crate::conformance_test)
/// wraps it in a test.
///
/// # Panics
/// Where a clause does not hold, an error hides the answer, or nothing could run.
#[allow(clippy::panic, clippy::needless_pass_by_value)]
pub fn assert_conforms(harness: Arc<dyn Harness>) {
    match check(&harness, &RunOptions::default()) {
        Ok(report) if report.summary.exit_code() == 0 => {}
        Ok(report) => panic!("{}", describe(&report)),
        Err(reason) => panic!("{reason}"),
    }
}

/// The failures of a run, as text: clause, sentence, what was expected and what came.
#[must_use]
pub fn describe(report: &Report) -> String {
    let clauses = crate::clauses();
    let summary = report.summary;
    let mut text = format!(
        "{} passed, {} failed, {} unsupported, {} errors (suite {}, seed {})\n",
        summary.passed,
        summary.failed,
        summary.unsupported,
        summary.errors,
        report.suite_version,
        report.seed
    );
    let mut line = |case: &CaseReport| {
        let sentence = clauses.iter().find(|clause| clause.id == case.clause);
        let sentence = sentence.map_or("", |clause| clause.sentence.as_str());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} {}\n  {sentence}\n  {}", case.clause, case.case, case.reason);
    };
    report.failures().for_each(&mut line);
    report.cases.iter().filter(|case| case.outcome == crate::report::CaseOutcome::Error).for_each(&mut line);
    text
}

/// Makes one `#[test]` that runs the whole suite against a harness.
///
/// ```
/// # use larder_conformance::{Harness, OpenOptions, StoreSet};
/// # use larder_kernel::{Namespace, Result};
/// #[derive(Debug, Default)]
/// struct MyHarness;
///
/// #[async_trait::async_trait]
/// impl Harness for MyHarness {
///     fn name(&self) -> &str {
///         "mine"
///     }
///     fn url(&self) -> String {
///         "mine:".to_owned()
///     }
///     async fn open(&self, namespace: &Namespace, options: &OpenOptions) -> Result<StoreSet> {
///         Ok(StoreSet::default()) // the stores of your backend, opened in the namespace
///     }
/// }
///
/// larder_conformance::conformance_test!(my_store_conforms, MyHarness);
/// ```
#[macro_export]
macro_rules! conformance_test {
    ($name:ident, $harness:expr) => {
        #[test]
        fn $name() {
            $crate::assert_conforms(::std::sync::Arc::new($harness));
        }
    };
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use async_trait::async_trait;
    use larder_kernel::{Error, ErrorKind, Namespace, Result};

    use super::*;
    use crate::harness::{OpenOptions, StoreSet};

    #[derive(Debug)]
    struct Stuck;

    #[async_trait]
    impl Harness for Stuck {
        fn name(&self) -> &str {
            "stuck"
        }

        fn url(&self) -> String {
            String::new()
        }

        async fn open(&self, _: &Namespace, _: &OpenOptions) -> Result<StoreSet> {
            let (begun, begins) = tokio::sync::oneshot::channel();
            tokio::task::spawn_blocking(move || {
                begun.send(()).ok();
                std::thread::sleep(Duration::from_secs(20));
            });
            begins.await.ok();
            Err(Error::new(ErrorKind::Unavailable, "open", "no answer"))
        }
    }

    #[test]
    fn a_backend_that_holds_on_to_a_thread_does_not_hold_the_answer() {
        let begun = Instant::now();
        let harness: Arc<dyn Harness> = Arc::new(Stuck);
        assert!(check(&harness, &RunOptions::default()).is_err());
        assert!(begun.elapsed() < Duration::from_secs(15));
    }
}
