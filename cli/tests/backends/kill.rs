//! A server that dies in the middle of a run: what runs then ends in time with errors of their kind, nothing passes from
//! then on, and the handles that were open work again once the server is back, with all that it had acknowledged.
//!
//! Each test starts a server of its own beside those of the other tests, from the same installation. Without the
//! service's variable in the environment it is shown as ignored, or fails where `LARDER_SERVICES=required`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::HashMap;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use larder::Registry;
use larder_cli::service::{SERVICES, Service, free_ports, scripts};
use larder_cli::url;
use larder_conformance::runner::{probe, run};
use larder_conformance::{
    Case, CaseOutcome, CaseReport, Harness, OpenOptions, Report, RunOptions, StoreSet, suites,
};
use larder_kernel::{
    BlobKey, BlobStoreExt, BucketName, Entity, EntityId, EntityType, Key, KeyValueStoreExt, Namespace,
};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::sync::Notify;

/// How long a case may take: more than any call tries to reach a server before it gives up, which over S3 is 15 seconds,
/// besides what it takes while the server is alive. That of AGE runs one statement at a time.
const CASE_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a run may take whose server is dead.
const RUN_TIME_MAX: Duration = Duration::from_secs(150);
/// How many cases a run has at most, spread over all of them.
const CASES_MAX: usize = 120;
/// After how many cases the server is killed.
const CASES_BEFORE: usize = 25;

pub(crate) fn group(arguments: &Arguments) -> bool {
    let killed = [
        ("postgres", "LARDER_PG_PORT"),
        ("redis", "LARDER_REDIS_PORT"),
        ("garage", "LARDER_GARAGE_PORT"),
        ("age", "LARDER_AGE_PORT"),
    ];
    let trials = killed.map(|(script, port_variable)| trial(script, port_variable)).into();
    crate::run("kill", arguments, trials)
}

fn trial(script: &'static str, port_variable: &'static str) -> Trial {
    let service = *SERVICES.iter().find(|service| service.script == script).expect("a service");
    let required = std::env::var("LARDER_SERVICES").is_ok_and(|value| value == "required");
    let ignored = std::env::var_os(service.variable).is_none() && !required;
    let test = move || {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failed::from)?;
        let server = Server::start(service, port_variable);
        runtime.block_on(dies_and_comes_back(&server));
        // What a call still does must not keep the test from ending.
        runtime.shutdown_background();
        Ok(())
    };
    Trial::test(format!("{}_dies_during_a_run", service.name.replace('-', "_")), test)
        .with_ignored_flag(ignored)
}

/// A server that nobody else uses. It is removed with its data in the end.
struct Server {
    service: Service,
    port: (&'static str, String),
}

impl Server {
    fn start(service: Service, port_variable: &'static str) -> Self {
        let server = Self { service, port: (port_variable, free_ports(3).unwrap().to_string()) };
        // An earlier run that was ended from outside may have left one behind.
        server.tell("remove");
        server.tell("up");
        server
    }

    fn command(&self, word: &str) -> Command {
        let script = scripts().join(self.service.script);
        let mut command = Command::new(script);
        command.arg(word).env("LARDER_SERVICES_SET", "kill").env(self.port.0, &self.port.1);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
        command
    }

    fn tell(&self, word: &str) {
        assert!(self.command(word).status().unwrap().success(), "{} {word}", self.service.script);
    }

    fn url(&self) -> String {
        let answer = self.command("env").stdout(Stdio::piped()).output().unwrap();
        let text = String::from_utf8(answer.stdout).unwrap();
        let url = text.trim().split_once('=').expect("NAME=value").1;
        // Where Postgres refuses connections, each call of a case, and of what is cleaned up behind it, waits for it to come
        // back for as long as it may wait for one.
        if matches!(self.service.scheme, "postgres" | "age") {
            format!("{url}?acquire_timeout_ms=500")
        } else {
            url.to_owned()
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.command("remove").status();
    }
}

async fn dies_and_comes_back(server: &Server) {
    let scratch = tempfile::tempdir().unwrap();
    let harness =
        url::named(&Registry::default(), server.service.name, &server.url(), scratch.path()).await.unwrap();
    let probed = probe(&*harness, CASE_TIMEOUT).await.unwrap();
    let kept = open(&harness).await;
    write_down(&kept, "before").await;

    let begun = Instant::now();
    let served: Vec<Case> = suites::all().into_iter().filter(|case| probed.serves(case)).collect();
    let step = served.len().div_ceil(CASES_MAX);
    let (cases, log) = logged(served.into_iter().step_by(step));
    let options = RunOptions { jobs: 8, timeout: CASE_TIMEOUT, seed: 1 };
    let note = |_: &CaseReport| log.end();
    let (reports, killed) = tokio::join!(run(&harness, &probed, &cases, &options, &note), async {
        log.enough.notified().await;
        let running = log.running();
        tokio::task::block_in_place(|| server.tell("kill"));
        (running, Instant::now())
    });
    let took = begun.elapsed();
    let (in_flight, killed_at) = killed;
    assert!(in_flight > 0, "no case was in flight");
    assert!(took < RUN_TIME_MAX, "the run took {took:?}");
    check_reports(&reports, &log, killed_at);
    let mut report = Report::new(options.seed);
    report.add(probed.backend.clone(), reports);
    assert_ne!(i32::from(report.exit_code()), 0);

    tokio::task::block_in_place(|| server.tell("up"));
    assert!(is_there(&kept, "before").await, "an acknowledged write is gone");
    write_down(&kept, "after").await;
    assert!(is_there(&kept, "after").await);
    // These must pass, so none may wait long for the one connection that AGE has.
    let options = RunOptions { jobs: 2, ..options };
    let again = run(&harness, &probed, &cases[..CASES_BEFORE], &options, &|_| {}).await;
    for report in again {
        assert!(matches!(report.outcome, CaseOutcome::Passed | CaseOutcome::Unsupported), "{report:?}");
    }
}

/// Nothing that began after the server was dead passes or hangs, and each says what the matter is.
fn check_reports(reports: &[CaseReport], log: &Log, killed_at: Instant) {
    let begins = log.begins.lock().unwrap();
    let mut after = 0;
    for report in reports {
        let lasted = Duration::from_micros(report.elapsed_us);
        assert!(lasted < 2 * CASE_TIMEOUT, "{report:?}");
        assert_ne!(report.got, "none", "it hangs: {report:?}");
        if report.outcome == CaseOutcome::Unsupported
            || begins.get(&report.case).is_none_or(|at| *at < killed_at)
        {
            continue;
        }
        after += 1;
        assert_ne!(report.outcome, CaseOutcome::Passed, "{report:?}");
        let typed = report.reason.contains("Unavailable") || report.reason.contains("Timeout");
        assert!(typed, "no error of its kind: {report:?}");
    }
    assert!(after > 10, "only {after} cases began after the server was killed");
}

/// When the cases began, and how many have ended.
#[derive(Default)]
struct Log {
    begins: Mutex<HashMap<String, Instant>>,
    ended: Mutex<usize>,
    /// Told once so many cases have ended.
    enough: Notify,
}

impl Log {
    fn end(&self) {
        let mut ended = self.ended.lock().unwrap();
        *ended += 1;
        if *ended == CASES_BEFORE {
            self.enough.notify_one();
        }
    }

    fn running(&self) -> usize {
        self.begins.lock().unwrap().len() - *self.ended.lock().unwrap()
    }
}

/// The cases, each of which notes when it begins.
fn logged(cases: impl Iterator<Item = Case>) -> (Vec<Case>, Arc<Log>) {
    let log = Arc::new(Log::default());
    let logged = cases.map(|case| {
        let (inner, log) = (case.clone(), Arc::clone(&log));
        let mut outer = Case::new(case.contract, case.clause, "", move |context| {
            log.begins.lock().unwrap().insert(inner.name.clone(), Instant::now());
            inner.run(context)
        });
        (outer.name, outer.level, outer.needs) = (case.name, case.level, case.needs);
        outer.needs_durability = case.needs_durability;
        outer
    });
    (logged.collect(), log)
}

async fn open(harness: &Arc<dyn Harness>) -> StoreSet {
    harness.open(&Namespace::new("kept").unwrap(), &OpenOptions::default()).await.unwrap()
}

async fn write_down(stores: &StoreSet, name: &'static str) {
    match (&stores.key_value, &stores.blobs, &stores.graph) {
        (Some(values), ..) => {
            let (bucket, key) = (BucketName::new("b").unwrap(), Key::new(name).unwrap());
            values.set(&bucket, &key, name.into()).await.unwrap();
        }
        (None, Some(blobs), _) => {
            blobs.put_bytes(&BlobKey::new(name).unwrap(), name.into()).await.unwrap();
        }
        (None, None, Some(graph)) => {
            let entity = Entity::new(EntityId::new(name).unwrap(), EntityType::new("kept").unwrap());
            graph.upsert_entities(vec![entity]).await.unwrap();
        }
        (None, None, None) => panic!("no store to write into"),
    }
}

async fn is_there(stores: &StoreSet, name: &str) -> bool {
    match (&stores.key_value, &stores.blobs, &stores.graph) {
        (Some(values), ..) => {
            let (bucket, key) = (BucketName::new("b").unwrap(), Key::new(name).unwrap());
            values.get(&bucket, &key).await.unwrap().is_some_and(|entry| entry.value == name)
        }
        (None, Some(blobs), _) => blobs.get_bytes(&BlobKey::new(name).unwrap()).await.unwrap() == name,
        (None, None, Some(graph)) => {
            graph.get_entities(&[EntityId::new(name).unwrap()]).await.unwrap()[0].is_some()
        }
        (None, None, None) => false,
    }
}
