//! Moving data: the content of one backend arrives in every other one, complete and without duplicates, and
//! returns unchanged.
//!
//! The tests compare backends by the replies of the contracts, not by the digests that a copy prints. The
//! test of a live service that the environment does not name is ignored; with `LARDER_SERVICES=required` it
//! fails.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod archive;
mod command;
mod fill;
mod kill;
mod pairs;
mod place;
mod read;
mod refused;

use std::future::Future;

use libtest_mimic::{Arguments, Trial};

pub(crate) fn group(arguments: &Arguments) -> bool {
    let mut trials = pairs::trials();
    trials.extend(refused::trials());
    trials.extend(archive::trials());
    trials.extend(command::trials());
    trials.extend(kill::trials());
    crate::groups::run("moving", arguments, trials)
}

/// A test with a separate runtime.
fn trial<F: Future<Output = ()>>(
    name: impl Into<String>,
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    Trial::test(name, move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(test());
        runtime.shutdown_background();
        Ok(())
    })
}

/// The same, but ignored if a variable that it needs is not set, unless services are required.
fn live<F: Future<Output = ()>>(
    name: impl Into<String>,
    variables: &[&str],
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    let required = std::env::var("LARDER_SERVICES").as_deref() == Ok("required");
    let set = variables.iter().all(|variable| std::env::var_os(variable).is_some());
    trial(name, test).with_ignored_flag(!cfg!(feature = "full") || (!set && !required))
}
