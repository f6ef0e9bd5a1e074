//! One program on any backend: the example `session`, unchanged, with other URLs.
#![allow(clippy::panic, clippy::unwrap_used, missing_docs)]

use std::path::PathBuf;
use std::process::{Command, Output};

use libtest_mimic::{Arguments, Trial};

/// The folder of the examples, which `cargo test` builds next to the tests.
fn session(urls: &[&str]) -> Output {
    let mut program: PathBuf = std::env::current_exe().unwrap();
    program.pop();
    program.set_file_name("examples");
    program.push("session");
    Command::new(&program).args(urls).output().unwrap_or_else(|error| {
        panic!(
            "{} does not start ({error}); build it with `cargo build --example session`",
            program.display()
        )
    })
}

#[track_caller]
fn runs_on(urls: &[&str]) {
    let output = session(urls);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.starts_with("2 messages, "), "{printed}");
}

fn on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    runs_on(&[&format!("sqlite:{}", folder.path().join("larder.db").display())]);
}

/// Postgres alone, then with files for blobs: one after the other, because both use one namespace.
fn on_postgres(variable: &str) {
    runs_on(&[&service(variable)]);
    let folder = tempfile::tempdir().unwrap();
    runs_on(&[&service(variable), &format!("file:{}", folder.path().display())]);
}

fn on_redis_with_s3(redis: &str, s3: &str) {
    runs_on(&[&service(redis), &service(s3)]);
}

fn service(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set, and services are required"))
}

fn absent(variables: &[&str]) -> bool {
    let required = std::env::var("LARDER_SERVICES").as_deref() == Ok("required");
    !required && variables.iter().any(|variable| std::env::var_os(variable).is_none())
}

/// Returns a trial that is ignored without its services, and fails if services are required.
fn live(name: &str, variables: &'static [&'static str], run: fn(&[&str])) -> Trial {
    let trial = Trial::test(name, move || {
        run(variables);
        Ok(())
    });
    trial.with_ignored_flag(absent(variables))
}

/// Runs the tests of this group.
pub(crate) fn group(arguments: &Arguments) -> bool {
    let redis_with_s3: fn(&[&str]) = |names| on_redis_with_s3(names[0], names[1]);
    let trials = vec![
        Trial::test("in_memory", || {
            runs_on(&["memory:"]);
            Ok(())
        }),
        Trial::test("on_sqlite", || {
            on_sqlite();
            Ok(())
        }),
        live("on_postgres", &["LARDER_POSTGRES_URL"], |names| on_postgres(names[0])),
        live("on_redis_with_s3", &["LARDER_REDIS_URL", "LARDER_S3_GARAGE_URL"], redis_with_s3),
        live("on_a_redis_cluster_with_s3", &["LARDER_REDIS_CLUSTER_URL", "LARDER_S3_S3S_URL"], redis_with_s3),
    ];
    crate::groups::run("session_example", arguments, trials)
}
