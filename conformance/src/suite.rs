//! Runs the suite in one call.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::case::{Case, Level};
use crate::describe::describe;
use crate::harness::Harness;
use crate::latency::Stopwatch;
use crate::level::{Effort, LevelReport};
use crate::report::waiver::{Date, Waivers};
use crate::report::{AbsentBackend, Report};
use crate::runner::{self, Probed, RunOptions};
use crate::{concurrent, faults, model, suites};

/// A run of the suite on one backend: the levels to prove, the amount of work and the random seed.
///
/// The default levels are [`Contract`](Level::Contract) and [`Hostile`](Level::Hostile), which consist of the
/// cases.
///
/// ```
/// use larder_conformance::{Harness, Level, OpenOptions, StoreSet, Suite, kernel::{Namespace, Result}};
///
/// #[derive(Debug)]
/// struct MyHarness;
///
/// #[larder_conformance::async_trait]
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
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let levels = [Level::Contract, Level::Hostile, Level::Concurrent];
/// let report = Suite::new(MyHarness).levels(levels).run().await;
///
/// println!("{report}");
/// // A harness without stores proves nothing, and that is never a pass.
/// assert_eq!(report.exit_code(), 2);
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Suite {
    harness: Arc<dyn Harness>,
    levels: BTreeSet<Level>,
    filter: String,
    options: RunOptions,
    effort: Effort,
    waivers: Waivers,
}

impl Suite {
    /// Creates a run of all cases on this backend.
    #[must_use]
    pub fn new(harness: impl Harness) -> Self {
        Self::shared(Arc::new(harness))
    }

    /// Creates a run like [`Suite::new`], on a shared harness.
    #[must_use]
    pub fn shared(harness: Arc<dyn Harness>) -> Self {
        Self {
            harness,
            levels: BTreeSet::from([Level::Contract, Level::Hostile]),
            filter: String::new(),
            options: RunOptions::default(),
            effort: Effort::default(),
            waivers: Waivers::default(),
        }
    }

    /// Sets the levels to prove.
    ///
    /// [`Durable`](Level::Durable) starts and kills processes and servers, and only the `larder` command
    /// supports it. If you request it here, the report contains an error that says so.
    #[must_use]
    pub fn levels(mut self, levels: impl IntoIterator<Item = Level>) -> Self {
        self.levels = levels.into_iter().collect();
        self
    }

    /// Requests every level that needs no killed process: all levels but [`Durable`](Level::Durable). A level
    /// that does not apply to the backend has no report. For example, fault injection does not apply if calls
    /// neither wait nor use a network.
    #[must_use]
    pub fn every_level(self) -> Self {
        self.levels([Level::Contract, Level::Hostile, Level::Model, Level::Concurrent, Level::Faults])
    }

    /// Runs only the cases whose name or clause contains this text. The filter does not apply to the levels
    /// beyond the cases, which have no cases.
    #[must_use]
    pub fn filter(mut self, text: impl Into<String>) -> Self {
        self.filter = text.into();
        self
    }

    /// Sets the random seed; the default is 1. The seed in a report replays its findings.
    #[must_use]
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.seed = seed;
        self.effort.seed = seed;
        self
    }

    /// Makes the levels beyond the cases do at least ten times as much work, as for a nightly run.
    #[must_use]
    pub fn long(mut self) -> Self {
        self.effort.long = true;
        self
    }

    /// Sets the share of their work that the levels beyond the cases do, in thousandths. A small share shows
    /// that the levels run, but proves nothing.
    #[must_use]
    pub fn per_mille(mut self, share: u32) -> Self {
        self.effort.per_mille = share.clamp(1, 1_000);
        self
    }

    /// Sets the waivers of known failures. The report shows these failures as waived.
    #[must_use]
    pub fn waivers(mut self, waivers: Waivers) -> Self {
        self.waivers = waivers;
        self
    }

    /// Sets the number of cases that run concurrently; the default is eight for each processor.
    #[must_use]
    pub fn jobs(mut self, jobs: usize) -> Self {
        self.options.jobs = jobs;
        self
    }

    /// Sets the time limit of a case and of a call in the levels beyond the cases; the defaults are 60 s and
    /// 30 s.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self.effort.timeout = timeout;
        self
    }

    pub(crate) fn with_options(mut self, options: RunOptions) -> Self {
        self.effort.seed = options.seed;
        self.options = options;
        self
    }

    /// Runs the suite. It needs a multi-threaded Tokio runtime.
    ///
    /// The report lists a backend that cannot be opened or cleaned up as absent, and its exit code is then
    /// never 0.
    pub async fn run(&self) -> Report {
        let mut report = Report::new(self.options.seed);
        let timeout = self.options.timeout;
        let probed = match runner::probe(&*self.harness, timeout).await {
            Ok(probed) => probed,
            Err(error) => {
                report.absent.push(self.absent(format!("cannot open: {error:?}")));
                return report;
            }
        };
        let (begun, watch) = (Instant::now(), Stopwatch::default());
        let watched = watch.watch(Arc::clone(&self.harness));
        let cases = runner::run(&watched, &probed, &self.cases(), &self.options, &|_| {}).await;
        report.latencies = watch.latencies(self.harness.name());
        report.jobs = self.options.jobs;
        for level in self.beyond() {
            report.levels.extend(self.press(level, &probed).await);
        }
        report.add(probed.backend, cases);
        report.finish(begun.elapsed());
        report.waive(&self.waivers, Date::today());
        if let Err(error) = runner::within(timeout, "suite.destroy", self.harness.destroy()).await {
            report.absent.push(self.absent(format!("cannot clean up: {error:?}")));
        }
        report
    }

    /// Runs the suite like [`Suite::run`], on a new runtime that ends with the run. Do not call it within
    /// another runtime.
    #[must_use]
    pub fn run_blocking(&self) -> Report {
        self.blocking(self.run()).unwrap_or_else(|reason| {
            let mut report = Report::new(self.options.seed);
            report.absent.push(self.absent(format!("cannot make a runtime: {reason}")));
            report
        })
    }

    /// Runs the suite like [`Suite::run_blocking`], and panics with the broken clauses.
    /// [`conformance_test!`](crate::conformance_test) wraps this call in a test.
    ///
    /// # Panics
    /// Panics if a clause does not hold, an error hides the result, a level is not proven, or nothing could
    /// run.
    #[allow(clippy::panic)]
    pub fn assert(&self) {
        let report = self.run_blocking();
        if report.exit_code() != 0 {
            panic!("{}", describe(&report));
        }
    }

    pub(crate) fn blocking<T>(&self, work: impl Future<Output = T>) -> io::Result<T> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let done = runtime.block_on(work);
        // A backend call that never returns would otherwise block the report.
        runtime.shutdown_background();
        Ok(done)
    }

    #[cfg(feature = "mimic")]
    pub(crate) fn parts(&self) -> (&Arc<dyn Harness>, &RunOptions) {
        (&self.harness, &self.options)
    }

    pub(crate) fn cases(&self) -> Vec<Case> {
        let named =
            |case: &Case| case.name.contains(&self.filter) || case.clause.contains(self.filter.as_str());
        suites::all().into_iter().filter(|case| self.levels.contains(&case.level) && named(case)).collect()
    }

    /// Returns the requested levels beyond the cases.
    pub(crate) fn beyond(&self) -> impl Iterator<Item = Level> {
        self.levels.iter().copied().filter(|level| *level > Level::Hostile)
    }

    /// Runs one level beyond the cases. Returns no report if the level does not apply to this backend.
    pub(crate) async fn press(&self, level: Level, probed: &Probed) -> Vec<LevelReport> {
        let (harness, effort) = (&self.harness, &self.effort);
        match level {
            Level::Contract | Level::Hostile => Vec::new(),
            Level::Model => model::run(harness, probed, effort).await,
            Level::Concurrent => concurrent::run(harness, probed, effort).await,
            Level::Faults => {
                let mut reports = faults::run(harness, probed, effort).await;
                reports.extend(faults::cancellations(harness, probed, effort).await);
                reports
            }
            Level::Durable => {
                let mut report = LevelReport::new(harness.name(), level, None, "kills", 1);
                report.trouble =
                    Some("the library kills no process: run `larder check --level durable`".to_owned());
                vec![report]
            }
        }
    }

    fn absent(&self, reason: String) -> AbsentBackend {
        AbsentBackend { name: self.harness.name().to_owned(), reason, required: true }
    }
}

impl Report {
    /// Writes the report as JSON and creates the folder if it is missing.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write_json(&self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        std::fs::write(path, serde_json::to_vec_pretty(self)?)
    }
}

impl std::fmt::Display for Report {
    /// Writes the counts, then the broken clauses and each level.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&describe(self))
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use larder_kernel::{Error, ErrorKind, Namespace, Result};

    use super::*;
    use crate::harness::{OpenOptions, StoreSet};

    #[derive(Debug)]
    struct Empty {
        opens: bool,
        closes: bool,
    }

    fn refused(answers: bool) -> Result<()> {
        let error = || Error::new(ErrorKind::Unavailable, "test", "no answer");
        if answers { Ok(()) } else { Err(error()) }
    }

    #[async_trait]
    impl Harness for Empty {
        fn name(&self) -> &str {
            "empty"
        }

        fn url(&self) -> String {
            String::new()
        }

        async fn open(&self, _: &Namespace, _: &OpenOptions) -> Result<StoreSet> {
            refused(self.opens).map(|()| StoreSet::default())
        }

        async fn destroy(&self) -> Result<()> {
            refused(self.closes)
        }
    }

    #[test]
    fn a_backend_that_cannot_be_opened_or_cleaned_up_is_never_a_pass() {
        let report = Suite::new(Empty { opens: false, closes: true }).run_blocking();
        assert!(report.absent[0].reason.starts_with("cannot open: "), "{report}");
        assert_eq!(report.exit_code(), 2);
        assert!(report.to_string().contains("empty is missing: cannot open: "), "{report}");

        let report = Suite::new(Empty { opens: true, closes: false }).run_blocking();
        assert!(report.absent[0].reason.starts_with("cannot clean up: "), "{report}");
        assert_eq!(report.exit_code(), 2);
    }

    #[test]
    fn a_level_that_the_library_cannot_run_is_an_error() {
        let suite = Suite::new(Empty { opens: true, closes: true }).levels([Level::Durable]);
        let report = suite.run_blocking();
        assert_eq!(report.exit_code(), 2);
        assert!(report.to_string().contains("durable: error, 0 of 1 kills"), "{report}");
    }

    #[test]
    fn levels_and_filter_choose_the_cases() {
        let suite = Suite::new(Empty { opens: true, closes: true });
        let all = suite.cases().len();
        let hostile = suite.clone().levels([Level::Hostile]).cases();
        assert!(!hostile.is_empty() && hostile.len() < all);
        let named = suite.clone().filter("KV-004").cases();
        assert!(!named.is_empty() && named.iter().all(|case| case.clause == "KV-004"));
        assert_eq!(suite.every_level().beyond().count(), 3);
    }
}
