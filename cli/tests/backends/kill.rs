//! A server that dies in the middle of a run. Running cases end in time with errors of the right kind, and no
//! later case passes. The open handles work again once the server is back, with all acknowledged writes.
//!
//! Each test starts a separate server from the installation of the shared servers. Without the service's
//! variable the test is ignored; with `LARDER_SERVICES=required` it fails.
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

/// The time limit of a case: more than any call retries to reach a server, which is 15 seconds over S3, plus
/// the work while the server is alive. AGE runs one statement at a time.
const CASE_TIMEOUT: Duration = Duration::from_secs(60);
/// The time limit of a run whose server is dead.
const RUN_TIME_MAX: Duration = Duration::from_secs(150);
/// The maximum number of cases in a run, spread over all cases.
const CASES_MAX: usize = 120;
/// The number of cases after which the server is killed.
const CASES_BEFORE: usize = 25;

pub(crate) fn group(arguments: &Arguments) -> bool {
    let killed = [
        ("postgres", "LARDER_PG_PORT"),
        ("redis", "LARDER_REDIS_PORT"),
        ("garage", "LARDER_GARAGE_PORT"),
        ("age", "LARDER_AGE_PORT"),
    ];
    let trials = killed.map(|(script, port_variable)| trial(script, port_variable)).into();
    crate::groups::run("kill", arguments, trials)
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
        // A call in progress must not keep the test from ending.
        runtime.shutdown_background();
        Ok(())
    };
    Trial::test(format!("{}_dies_during_a_run", service.name.replace('-', "_")), test)
        .with_ignored_flag(ignored)
}

/// A server for one test. It is removed with its data at the end.
struct Server {
    service: Service,
    port: (&'static str, String),
}

impl Server {
    fn start(service: Service, port_variable: &'static str) -> Self {
        let server = Self { service, port: (port_variable, free_ports(3).unwrap().to_string()) };
        // An earlier run that was killed may have left one behind.
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
        // While Postgres refuses connections, each call of a case and of its cleanup waits up to this time
        // for the server.
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
    // A case that needs an absent capability does not begin.
    let note = |report: &CaseReport| {
        if report.outcome != CaseOutcome::Unsupported {
            log.end();
        }
    };
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
    // These cases must pass, so none may wait long for AGE's one connection.
    let options = RunOptions { jobs: 2, ..options };
    let again = run(&harness, &probed, &cases[..CASES_BEFORE], &options, &|_| {}).await;
    for report in again {
        assert!(matches!(report.outcome, CaseOutcome::Passed | CaseOutcome::Unsupported), "{report:?}");
    }
}

/// Asserts that no case that began after the server's death passes or hangs, and that each error names the
/// reason.
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

/// The start times of the cases, and the number of ended cases.
#[derive(Default)]
struct Log {
    begins: Mutex<HashMap<String, Instant>>,
    ended: Mutex<usize>,
    /// Notified once enough cases have ended.
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

/// Wraps the cases to record their start times.
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
    match (stores.key_value(), stores.blobs(), stores.graph()) {
        (Ok(values), ..) => {
            let (bucket, key) = (BucketName::new("b").unwrap(), Key::new(name).unwrap());
            values.set(&bucket, &key, name.into()).await.unwrap();
        }
        (_, Ok(blobs), _) => {
            blobs.put_bytes(&BlobKey::new(name).unwrap(), name.into()).await.unwrap();
        }
        (_, _, Ok(graph)) => {
            let entity = Entity::new(EntityId::new(name).unwrap(), EntityType::new("kept").unwrap());
            graph.upsert_entities(vec![entity]).await.unwrap();
        }
        _ => panic!("no store to write into"),
    }
}

async fn is_there(stores: &StoreSet, name: &str) -> bool {
    match (stores.key_value(), stores.blobs(), stores.graph()) {
        (Ok(values), ..) => {
            let (bucket, key) = (BucketName::new("b").unwrap(), Key::new(name).unwrap());
            values.get(&bucket, &key).await.unwrap().is_some_and(|entry| entry.value == name)
        }
        (_, Ok(blobs), _) => blobs.get_bytes(&BlobKey::new(name).unwrap()).await.unwrap() == name,
        (_, _, Ok(graph)) => graph.get_entities(&[EntityId::new(name).unwrap()]).await.unwrap()[0].is_some(),
        _ => false,
    }
}
