//! Bad weather around Redis, S3 and AGE: each mistake and each outage is an error of its kind, in time, which says what
//! to do, and no secret shows in it or in what the drivers log.
//!
//! What needs a live server is shown as ignored without its variable, or fails where `LARDER_SERVICES=required`.

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::error::Error as _;
use std::fmt::{Debug, Write as _};
use std::future::Future;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use larder_capabilities::open_place;
use larder_kernel::{Error, ErrorKind, Namespace, Outcome};
use libtest_mimic::{Arguments, Failed, Trial};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

const CANARY: &str = "c4nary";
const REDIS: &str = "LARDER_REDIS_URL";
const POSTGRES: &str = "LARDER_POSTGRES_URL";

/// All that was logged, at every level.
static LOGGED: Mutex<String> = Mutex::new(String::new());

struct Capture;

struct Fields<'a>(&'a mut String);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {}={value:?}", field.name());
    }
}

impl Subscriber for Capture {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut Fields(&mut LOGGED.lock().unwrap()));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut Fields(&mut LOGGED.lock().unwrap()));
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut logged = LOGGED.lock().unwrap();
        let _ = write!(logged, "\n{} {}:", event.metadata().level(), event.metadata().target());
        event.record(&mut Fields(&mut logged));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    tracing::subscriber::set_global_default(Capture).expect("the only subscriber");
    let trials = vec![
        trial("a_port_without_a_listener", None, a_port_without_a_listener),
        trial("a_listener_that_never_answers", None, a_listener_that_never_answers),
        trial("a_database_that_redis_does_not_have", Some(REDIS), a_missing_database),
        trial("a_user_of_redis_who_may_only_read", Some(REDIS), a_user_who_may_only_read),
        trial("a_postgres_without_age", Some(POSTGRES), a_postgres_without_age),
        trial("a_wrong_password_for_age", Some(POSTGRES), a_wrong_password_for_age),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
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
        let logged = LOGGED.lock().unwrap();
        let shown = logged.lines().find(|line| line.contains(CANARY));
        assert!(shown.is_none(), "a secret is logged: {shown:?}");
        Ok(())
    };
    Trial::test(name, run).with_ignored_flag(ignored)
}

/// The error with which a URL is refused, in time and without the secret in it.
async fn refused(url: &str) -> Error {
    let begun = Instant::now();
    let opening = async {
        let place = open_place(url).await?;
        place.open(&Namespace::new("weather").unwrap(), None).await.map(drop)
    };
    let error = opening.await.expect_err("it opens");
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
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

/// The host and port of a URL.
fn host(url: &str) -> &str {
    url.rsplit_once('@').unwrap().1.split(['/', '?']).next().unwrap()
}

fn urls(port: u16) -> [String; 4] {
    let at = format!("127.0.0.1:{port}");
    [
        format!("redis://user:{CANARY}@{at}?connect_timeout_ms=500"),
        format!("redis+cluster://user:{CANARY}@{at}?connect_timeout_ms=500"),
        // The name of a key is no secret.
        format!("s3://AKIAKEY:{CANARY}@bucket?endpoint=http://{at}&region=x&path_style=true"),
        format!("age://user:{CANARY}@{at}/x?acquire_timeout_ms=500&statement_timeout_ms=500"),
    ]
}

async fn a_port_without_a_listener() {
    for url in urls(1) {
        let error = refused(&url).await;
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout), "{error}");
    }
}

async fn a_listener_that_never_answers() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // S3 waits half a minute for each of several attempts, as a busy server may well take long.
    for url in urls(port).iter().filter(|url| !url.starts_with("s3:")) {
        let error = refused(url).await;
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout), "{error}");
    }
}

async fn a_missing_database() {
    let url = std::env::var(REDIS).unwrap();
    let location = url.split('?').next().unwrap();
    let (place, _) = location.rsplit_once('/').unwrap();
    let error = refused(&format!("{place}/4000000")).await;
    assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::InvalidInput), "{error:?}");
}

async fn a_user_who_may_only_read() {
    let url = std::env::var(REDIS).unwrap();
    let client = redis::Client::open(url.as_str()).unwrap();
    let mut plain = client.get_multiplexed_async_connection().await.unwrap();
    let user = format!("larder-test-{}", std::process::id());
    let rules = ["on", &format!(">{CANARY}"), "~*", "&*", "+@read", "+@connection"];
    let () =
        redis::cmd("ACL").arg("SETUSER").arg(&user).arg(&rules[..]).query_async(&mut plain).await.unwrap();
    let error = refused(&format!("redis://{user}:{CANARY}@{}/0", host(&url))).await;
    let () = redis::cmd("ACL").arg("DELUSER").arg(&user).query_async(&mut plain).await.unwrap();
    assert_eq!(
        (error.kind(), error.outcome()),
        (ErrorKind::PermissionDenied, Outcome::NotApplied),
        "{error}"
    );
}

async fn a_postgres_without_age() {
    let url = std::env::var(POSTGRES).unwrap();
    let error = refused(&url.replacen("postgres://", "age://", 1)).await;
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("AGE"), "{error}");
}

async fn a_wrong_password_for_age() {
    let url = std::env::var(POSTGRES).unwrap();
    let error = refused(&format!("age://larder:{CANARY}@{}/larder", host(&url))).await;
    assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
}
