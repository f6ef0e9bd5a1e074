//! Moving data: what one backend holds arrives in every other one, whole and once, and comes back as it was.
//!
//! Places are compared by what the contracts return, not by the digests that a copy prints. A live service that the
//! environment does not name is shown as an ignored test, which fails where `LARDER_SERVICES=required`.
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
    crate::run("moving", arguments, trials)
}

/// A test on a runtime of its own.
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

/// The same, ignored where a variable that it needs is not set, unless services are required.
fn live<F: Future<Output = ()>>(
    name: impl Into<String>,
    variables: &[&str],
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    let required = std::env::var("LARDER_SERVICES").as_deref() == Ok("required");
    let set = variables.iter().all(|variable| std::env::var_os(variable).is_some());
    trial(name, test).with_ignored_flag(!cfg!(feature = "full") || (!set && !required))
}
