//! The whole suite on the live services, one test for each case.
//!
//! `larder test` starts the services and sets their variables. A service without a variable, or whose backend
//! is missing from this build, is one ignored test; with `LARDER_SERVICES=required` it fails. A service that
//! has a variable and does not reply fails.
#![allow(clippy::expect_used)]

mod prefix;

use std::path::Path;
use std::sync::Arc;

use larder::Registry;
use larder_cli::service::{SERVICES, Service};
use larder_cli::url;
use larder_conformance::{RunOptions, mimic};
use larder_kernel::ErrorKind;
use libtest_mimic::{Arguments, Trial};
use tokio::runtime::Runtime;

use crate::sample::sampled;

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
    for (column, service) in SERVICES.iter().enumerate() {
        trials.extend(sampled(column, of_service(service, &runtime, scratch.path(), &options, required)));
    }
    // The user exists until the tests have ended.
    let user = prefix::User::create();
    match &user {
        Some(Ok(user)) => trials.extend(user.trials(&runtime, scratch.path(), &options)),
        Some(Err(error)) => {
            trials.extend(absent(prefix::NAME, "it does not answer", error.to_string(), false));
        }
        None => {}
    }
    crate::groups::run("live", &arguments, trials)
}

/// Returns the cases on one service, or one test that says why they are missing.
fn of_service(
    service: &Service,
    runtime: &Arc<Runtime>,
    scratch: &Path,
    options: &RunOptions,
    required: bool,
) -> Vec<Trial> {
    let Ok(address) = std::env::var(service.variable) else {
        let why = format!("{} is not set", service.variable);
        return absent(service.name, &why, "start it first".to_owned(), !required);
    };
    of_url(service.name, &address, runtime, scratch, options, required)
}

/// Returns the cases on the backend of a URL, or one test that says why they are missing.
fn of_url(
    name: &str,
    url: &str,
    runtime: &Arc<Runtime>,
    scratch: &Path,
    options: &RunOptions,
    required: bool,
) -> Vec<Trial> {
    let opened = runtime.block_on(url::named(&Registry::default(), name, url, scratch));
    match opened.and_then(|harness| mimic::trials(runtime, &harness, options)) {
        Ok(trials) => trials,
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            absent(name, "its backend is not in this build", error.to_string(), !required)
        }
        Err(error) => absent(name, "it does not answer", error.to_string(), false),
    }
}

fn absent(name: &str, why: &str, reason: String, ignored: bool) -> Vec<Trial> {
    let trial = Trial::test(format!("{name}::{why}"), move || Err(reason.into()));
    vec![trial.with_ignored_flag(ignored)]
}
