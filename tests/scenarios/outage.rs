//! Faults and outages of Redis, S3 and AGE. Each is an error of the right kind, in time, and its message says
//! what to do. Neither the error nor the drivers' logs show a secret.
//!
//! Tests without their server's variable are ignored; with `LARDER_SERVICES=required` they fail.

#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "../../capabilities/tests/live/log_capture.rs"]
mod logged;
mod mistakes;
mod relay;
mod server;
mod silence;

use std::error::Error as _;
use std::future::Future;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use larder::Backend;
use larder_kernel::{Error, ErrorKind, Namespace};
use libtest_mimic::{Arguments, Failed, Trial};

const CANARY: &str = "c4nary";
const REDIS: &str = "LARDER_REDIS_URL";
const REDIS_CLUSTER: &str = "LARDER_REDIS_CLUSTER_URL";
const POSTGRES: &str = "LARDER_POSTGRES_URL";
const AGE: &str = "LARDER_AGE_URL";
const GARAGE: &str = "LARDER_S3_GARAGE_URL";
const S3S: &str = "LARDER_S3_S3S_URL";
/// Concurrent tests, independent of the number of processors.
const AT_ONCE: usize = 8;
/// The variable with the URL that a process started by a test opens.
const OPEN: &str = "LARDER_TEST_OPEN";

/// Does the work for which a test started this program.
pub(crate) fn as_child() -> Option<ExitCode> {
    std::env::var(OPEN).ok().map(|url| open_and_tell(&url))
}

/// Runs the tests of this group.
pub(crate) fn group(arguments: &Arguments) -> bool {
    let arguments = &mut arguments.clone();
    // Most tests only wait for servers that do not reply.
    arguments.test_threads.get_or_insert(AT_ONCE);
    logged::keep();
    let trials = vec![
        trial("a_listener_that_never_responds", None, a_listener_that_never_responds),
        trial(
            "openings_with_usual_settings_end_in_seconds",
            None,
            silence::openings_with_usual_settings_end_in_seconds,
        ),
        trial("garage_that_falls_silent", Some(GARAGE), || silence::s3_that_falls_silent(GARAGE)),
        trial("s3s_that_falls_silent", Some(S3S), || silence::s3_that_falls_silent(S3S)),
        trial("postgres_that_falls_silent", Some(POSTGRES), silence::postgres_that_falls_silent),
        trial("redis_that_falls_silent", Some(REDIS), silence::redis_that_falls_silent),
        trial("a_cluster_that_falls_silent", Some(REDIS_CLUSTER), silence::a_cluster_that_falls_silent),
        trial("age_that_falls_silent", Some(AGE), silence::age_that_falls_silent),
        trial("nobody_at_the_port", None, mistakes::nobody_at_the_port),
        trial("files_that_are_something_else", None, mistakes::files_that_are_something_else),
        trial("no_such_host", None, mistakes::no_such_host),
        trial("a_server_of_another_kind", Some(REDIS), mistakes::a_server_of_another_kind),
        trial("a_bucket_that_garage_does_not_have", Some(GARAGE), || mistakes::a_missing_bucket(GARAGE)),
        trial("a_bucket_that_s3s_does_not_have", Some(S3S), || mistakes::a_missing_bucket(S3S)),
        trial("keys_that_garage_refuses", Some(GARAGE), || mistakes::wrong_keys(GARAGE)),
        trial("keys_that_s3s_refuses", Some(S3S), || mistakes::wrong_keys(S3S)),
        trial("s3_without_credentials_or_a_region", None, mistakes::s3_without_credentials_or_a_region),
        trial(
            "secrets_of_the_environment_show_nowhere",
            Some(GARAGE),
            mistakes::secrets_of_the_environment_show_nowhere,
        ),
        trial("logins_that_redis_refuses", Some(REDIS), mistakes::logins_that_redis_refuses),
        trial("a_user_of_redis_who_may_only_read", Some(REDIS), mistakes::a_user_of_redis_who_may_only_read),
        trial("a_redis_that_drops_keys", Some(REDIS), mistakes::a_redis_that_drops_keys),
        trial("logins_that_age_refuses", Some(AGE), mistakes::logins_that_age_refuses),
        trial("rights_that_age_needs", Some(AGE), mistakes::rights_that_age_needs),
    ];
    crate::groups::run("outage", arguments, trials)
}

/// Prints the error of an opening, and the whole log.
#[allow(clippy::print_stdout)]
fn open_and_tell(url: &str) -> ExitCode {
    logged::keep();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let opened = runtime.block_on(Backend::open(url)).map(drop);
    println!("{opened:?}\n{}", logged::text());
    ExitCode::SUCCESS
}

fn trial<F: Future<Output = ()>>(
    name: &str,
    variable: Option<&str>,
    test: impl FnOnce() -> F + Send + 'static,
) -> Trial {
    let required = std::env::var("LARDER_SERVICES").is_ok_and(|value| value == "required");
    let ignored = variable.is_some_and(|variable| std::env::var(variable).is_err()) && !required;
    let run = move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        runtime.map_err(Failed::from)?.block_on(test());
        logged::keeps(CANARY);
        Ok(())
    };
    Trial::test(name, run).with_ignored_flag(ignored)
}

/// Returns the error with which a URL is refused. Asserts that the error is in time and without the secret.
async fn refused(url: &str) -> Error {
    let begun = Instant::now();
    let opening = async {
        let place = Backend::open(url).await?;
        let stores = place.stores(&Namespace::new("weather").unwrap()).await;
        stores.errors().first().map_or(Ok(()), |(_, error)| Err((*error).clone()))
    };
    let error = opening.await.expect_err("it opens");
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    keeps_the_secret(&error);
    error
}

fn keeps_the_secret(error: &Error) {
    let mut said = format!("{error} {error:?} {error:#?}");
    let mut source = error.source();
    while let Some(inner) = source {
        said += &format!("{inner} {inner:?}");
        source = inner.source();
    }
    assert!(!said.contains(CANARY), "the secret shows");
}

/// Returns the host and port of a URL.
fn host(url: &str) -> &str {
    url.rsplit_once('@').unwrap().1.split(['/', '?']).next().unwrap()
}

fn urls(port: u16) -> [String; 4] {
    let at = format!("127.0.0.1:{port}");
    [
        format!("redis://user:{CANARY}@{at}?connect_timeout_ms=500"),
        format!("redis+cluster://user:{CANARY}@{at}?connect_timeout_ms=500"),
        // The name of a key is not secret.
        format!(
            "s3://AKIAKEY:{CANARY}@bucket\
             ?endpoint=http://{at}&region=x&path_style=true&response_timeout_ms=500"
        ),
        format!("age://user:{CANARY}@{at}/x?acquire_timeout_ms=500&statement_timeout_ms=500"),
    ]
}

async fn a_listener_that_never_responds() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for url in urls(port) {
        let begun = Instant::now();
        let error = refused(&url).await;
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    }
}
