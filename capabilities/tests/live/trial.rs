//! One test of the live service that a variable names. Without the variable the test is ignored; with
//! `LARDER_SERVICES=required` it fails.
#![allow(clippy::expect_used)]

use std::future::Future;
use std::time::Duration;

use libtest_mimic::{Failed, Trial};

pub(crate) fn trial<F: Future<Output = ()>>(
    name: &str,
    variable: &str,
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    let required = std::env::var("LARDER_SERVICES").is_ok_and(|value| value == "required");
    let ignored = std::env::var(variable).is_err() && !required;
    let run = move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.map_err(Failed::from)?.block_on(test());
        Ok(())
    };
    Trial::test(name, run).with_ignored_flag(ignored)
}

pub(crate) fn url(variable: &str) -> String {
    std::env::var(variable).expect("the variable names a server")
}

/// Returns a plain connection to a Redis server. It waits a minute for each answer: the server may be busy.
pub(crate) async fn plain_redis(url: &str) -> redis::aio::MultiplexedConnection {
    let minute = Some(Duration::from_mins(1));
    let settings =
        redis::AsyncConnectionConfig::new().set_connection_timeout(minute).set_response_timeout(minute);
    let client = redis::Client::open(url).unwrap();
    client.get_multiplexed_async_connection_with_config(&settings).await.unwrap()
}
