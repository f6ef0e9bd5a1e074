//! The whole suite on every embedded backend, one test for each case.
#![allow(clippy::expect_used)]

use std::sync::Arc;

use larder::Registry;
use larder_cli::url;
use larder_conformance::{RunOptions, mimic};
use libtest_mimic::Arguments;

pub(crate) fn group(arguments: &Arguments) -> bool {
    let mut arguments = arguments.clone();
    let options = RunOptions::default();
    // Cases mostly wait: for a disk, or for a time to live to pass.
    arguments.test_threads.get_or_insert(options.jobs);
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let runtime = Arc::new(runtime);
    let harnesses = runtime
        .block_on(url::harnesses(&Registry::default(), &[], scratch.path()))
        .expect("the embedded backends open");
    let mut trials = Vec::new();
    for (column, harness) in harnesses.iter().enumerate() {
        let cases = mimic::trials(&runtime, harness, &options).expect("the backend opens");
        trials.extend(crate::sample::sampled(column, cases));
    }
    crate::groups::run("embedded", &arguments, trials)
}
