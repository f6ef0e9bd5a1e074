//! The whole suite on the live services, one test for each case.
//!
//! `larder test` starts the services and names them in the environment. Run without them, the target says so and fails
//! where `LARDER_SERVICES=required`, else it shows one ignored test for each service that is missing.
#![allow(clippy::expect_used)]

use std::process::ExitCode;
use std::sync::Arc;

use larder_conformance::{RunOptions, mimic, url};
use libtest_mimic::{Arguments, Trial};

/// The variables that name a service each.
const SERVICES: [&str; 1] = ["LARDER_POSTGRES_URL"];

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    let options = RunOptions::default();
    // Cases wait more than they compute: for a server, or for a time to live to pass.
    arguments.test_threads.get_or_insert(options.jobs);
    let required = std::env::var("LARDER_SERVICES").is_ok_and(|value| value == "required");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let runtime = Arc::new(runtime);
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let mut trials = Vec::new();
    for name in SERVICES {
        let Ok(service) = std::env::var(name) else {
            let missing = Trial::test(format!("{name} names no service"), || Err("start it first".into()));
            trials.push(missing.with_ignored_flag(!required));
            continue;
        };
        let opened =
            runtime.block_on(url::harnesses(&[service], scratch.path())).expect("the service answers");
        for harness in &opened {
            trials.extend(mimic::trials(&runtime, harness, &options).expect("the service answers"));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}
