//! The whole suite on each layer and on the stack of all layers, over embedded backends: one test for each
//! case. The levels run on the stack with reduced effort.
#![allow(clippy::expect_used)]

use std::sync::Arc;
use std::time::Duration;

use larder::Registry;
use larder_cli::layered::Around;
use larder_cli::url;
use larder_conformance::{Effort, Harness, LevelReport, RunOptions, Verdict};
use larder_conformance::{concurrent, faults, mimic, model, runner};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::{Builder, Runtime};

use crate::sample::sampled;

const LONG: Duration = Duration::from_secs(60);

/// The share of the levels' full effort, enough to include each kind of operation.
const SMALL: Effort = Effort { seed: 1, long: false, timeout: Duration::from_secs(30), per_mille: 20 };

/// Fails if a level found a defect, stopped early or did nothing.
fn judged(reports: &[LevelReport]) -> Result<(), Failed> {
    let wrong = |report: &&LevelReport| {
        matches!(report.verdict(), Verdict::Broken | Verdict::Error) || report.executed == 0
    };
    match reports.iter().find(wrong) {
        Some(report) => Err(Failed::from(format!("{report:?}"))),
        None => Ok(()),
    }
}

/// Runs the levels `model`, `concurrent` and the cancellations of `faults` on one backend.
fn levels(runtime: &Arc<Runtime>, harness: &Arc<dyn Harness>) -> Vec<Trial> {
    ["model", "concurrent", "cancellations"]
        .into_iter()
        .map(|level| {
            let (runtime, harness) = (Arc::clone(runtime), Arc::clone(harness));
            Trial::test(format!("{}::level::{level}", harness.name()), move || {
                runtime.block_on(async {
                    let probed = runner::probe(&*harness, SMALL.timeout).await?;
                    judged(&match level {
                        "model" => model::run(&harness, &probed, &SMALL).await,
                        "concurrent" => concurrent::run(&harness, &probed, &SMALL).await,
                        _ => faults::cancellations(&harness, &probed, &SMALL).await,
                    })
                })
            })
        })
        .collect()
}

/// Returns the name of the layer in a URL.
fn layer(url: &str) -> &str {
    url.split_once('+').expect("the URL has the prefix of a layer").0
}

pub(crate) fn group(arguments: &Arguments) -> bool {
    let mut arguments = arguments.clone();
    // A filter over sealed messages decrypts each of them, which is slow in a test build.
    let options = RunOptions { timeout: 3 * LONG, ..RunOptions::default() };
    // Some cases wait for a time to live to pass; those of encryption compute.
    arguments.test_threads.get_or_insert((options.jobs / 2).max(2));
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let runtime = Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let runtime = Arc::new(runtime);
    let mut trials = Vec::new();
    let mut urls = url::behind_layers(&Registry::default(), &[], scratch.path());
    // Each layer over memory; the stack of all layers over each backend.
    urls.retain(|url| layer(url) == Around::Stack.name() || url.contains("+memory"));
    for (column, url) in urls.into_iter().enumerate() {
        let harness = runtime
            .block_on(url::harnesses(&Registry::default(), std::slice::from_ref(&url), scratch.path()))
            .expect("it opens")
            .remove(0);
        let cases = mimic::trials(&runtime, &harness, &options).expect("the backend opens");
        trials.extend(sampled(column, cases));
        if layer(&url) == Around::Stack.name() {
            trials.extend(levels(&runtime, &harness));
        }
    }
    crate::groups::run("layers", &arguments, trials)
}
