//! The suite as one test of somebody else's crate.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use crate::harness::Harness;
use crate::level::LevelReport;
use crate::report::{CaseReport, Report};
use crate::runner::RunOptions;
use crate::suite::Suite;

/// Runs every case that the harness can serve, on a runtime of its own. [`Suite`] says more in as few words.
///
/// # Errors
/// A sentence where the backend cannot be opened or cleaned up, or the runtime cannot be made.
#[doc(hidden)]
pub fn check(harness: &Arc<dyn Harness>, options: &RunOptions) -> Result<Report, String> {
    let mut report = Suite::shared(Arc::clone(harness)).with_options(options.clone()).run_blocking();
    report.absent.pop().map_or(Ok(report), |absent| Err(absent.reason))
}

/// The failures of a run, as text: clause, sentence, what was expected and what came; below them the levels, and for an
/// unfinished store the missing methods.
#[must_use]
pub fn describe(report: &Report) -> String {
    let clauses = crate::clauses();
    let summary = report.summary;
    let mut text = format!(
        "{} passed, {} failed, {} unsupported, {} errors{} (suite {}, seed {})\n",
        summary.passed,
        summary.failed,
        summary.unsupported,
        summary.errors,
        if summary.waiting > 0 { format!(", {} waiting", summary.waiting) } else { String::new() },
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
    report.levels.iter().for_each(|level| text.push_str(&describe_level(level)));
    for absent in &report.absent {
        let _ = writeln!(text, "{} is not there: {}", absent.name, absent.reason);
    }
    text.push_str(&report.conclusion());
    text
}

/// How a level ended, as text, with what it found and how to see it again.
#[doc(hidden)]
#[must_use]
pub fn describe_level(report: &LevelReport) -> String {
    let contract = report.contract.map_or_else(String::new, |contract| format!(" {contract}"));
    let seconds = Duration::from_micros(report.elapsed_us).as_secs_f64();
    let mut text = format!(
        "{} {}{contract}: {}, {} of {} {}, in {seconds:.1} s\n",
        report.backend,
        report.level.as_str(),
        report.verdict().as_str(),
        report.executed,
        report.required,
        report.unit,
    );
    for note in report.notes.iter().chain(&report.trouble) {
        let _ = writeln!(text, "  {note}");
    }
    for found in &report.counterexamples {
        let waived = if report.waived.contains_key(found.clause) { "waived " } else { "" };
        let _ = writeln!(text, "  {waived}{} {} (seed {})", found.clause, found.finding, found.seed);
        for line in found.script.lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}

/// Makes one `#[test]` that holds a backend to the contract: to every case, or to the levels that are named.
///
/// The test has a runtime of its own. In a `#[tokio::test(flavor = "multi_thread")]` that does more than this, await
/// [`Suite::run`].
///
/// ```
/// use larder_conformance::kernel::{Namespace, Result};
/// use larder_conformance::{Harness, Level, OpenOptions, StoreSet, Suite, async_trait, conformance_test};
///
/// #[derive(Debug, Default)]
/// struct MyHarness;
///
/// #[async_trait]
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
/// conformance_test!(my_store_conforms, MyHarness);
/// conformance_test!(my_store_bears_clients, MyHarness, levels: [Level::Model, Level::Concurrent]);
/// ```
#[macro_export]
macro_rules! conformance_test {
    ($name:ident, $harness:expr) => {
        #[test]
        fn $name() {
            $crate::Suite::new($harness).assert();
        }
    };
    ($name:ident, $harness:expr, levels: [$($level:expr),+ $(,)?]) => {
        #[test]
        fn $name() {
            $crate::Suite::new($harness).levels([$($level),+]).assert();
        }
    };
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

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
