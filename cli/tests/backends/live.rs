//! The whole suite on the live services, one test for each case.
//!
//! `larder test` starts the services and sets their variables. A service without a variable, or whose backend
//! is missing from this build, is one ignored test; with `LARDER_SERVICES=required` it fails. A service that
//! has a variable and does not reply fails.
#![allow(clippy::expect_used)]

use std::path::Path;
use std::sync::Arc;

use larder::Registry;
use larder_cli::service::{SERVICES, Service};
use larder_cli::url;
use larder_conformance::{RunOptions, mimic};
use larder_kernel::ErrorKind;
use libtest_mimic::{Arguments, Trial};

pub(crate) fn group(arguments: &Arguments) -> bool {
    let mut arguments = arguments.clone();
    let options = RunOptions::default();
    // Cases mostly wait: for a server, or for a time to live to pass.
    arguments.test_threads.get_or_insert(options.jobs);
    let required = std::env::var("LARDER_SERVICES").is_ok_and(|value| value == "required");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    let runtime = Arc::new(runtime);
    let scratch = tempfile::tempdir().expect("a temporary folder");
    let mut trials = Vec::new();
    for service in &SERVICES {
        trials.extend(of_service(service, &runtime, scratch.path(), &options, required));
    }
    crate::groups::run("live", &arguments, trials)
}

/// Returns the cases on one service, or one test that says why they are missing.
fn of_service(
    service: &Service,
    runtime: &Arc<tokio::runtime::Runtime>,
    scratch: &Path,
    options: &RunOptions,
    required: bool,
) -> Vec<Trial> {
    let absent = |why: String, reason: String, ignored: bool| {
        let trial = Trial::test(format!("{}::{why}", service.name), move || Err(reason.into()));
        vec![trial.with_ignored_flag(ignored)]
    };
    let Ok(address) = std::env::var(service.variable) else {
        return absent(format!("{} is not set", service.variable), "start it first".to_owned(), !required);
    };
    let opened = runtime.block_on(url::named(&Registry::default(), service.name, &address, scratch));
    match opened.and_then(|harness| mimic::trials(runtime, &harness, options)) {
        Ok(trials) => trials,
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            absent("its backend is not in this build".to_owned(), error.to_string(), !required)
        }
        Err(error) => absent("it does not answer".to_owned(), error.to_string(), false),
    }
}
