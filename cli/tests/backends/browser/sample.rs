//! A run on ten backends, partly real and mostly invented, so that the page shows every feature.

use std::collections::BTreeMap;

use larder::Registry;
use larder_cli::url;
use larder_conformance::report::waiver::{Waiver, Waivers};
use larder_conformance::report::{AbsentBackend, BackendReport, CaseOutcome, CaseReport, Report};
use larder_conformance::runner;
use larder_conformance::{Counterexample, Level, LevelReport, RunOptions, Stopwatch, suites};
use larder_kernel::Contract::{self, Blobs, Graph, History, KeyValue, Tasks, Vectors};

/// A text that a hostile store could put into a reply.
pub(crate) const HOSTILE: &str =
    "</script><script>document.title = \"taken\"</script><img src=x onerror='document.title=1'> & \"quotes\"";

const BACKENDS: [(&str, &str, &[Contract]); 10] = [
    ("memory", "memory:", &[History, Vectors, Graph, Blobs, Tasks, KeyValue]),
    ("sqlite", "sqlite:/tmp/.tmpx1/larder.db", &[History, Vectors, Graph, Blobs, Tasks, KeyValue]),
    ("fs", "file:/tmp/.tmpx1/blobs", &[Blobs]),
    ("postgres", "postgres://larder:***@127.0.0.1:24329/larder", &[History, Vectors, Graph, Tasks, KeyValue]),
    ("redis", "redis://default:***@127.0.0.1:27379/0", &[History, Tasks, KeyValue]),
    (
        "redis-cluster",
        "redis+cluster://default:***@127.0.0.1:27001,127.0.0.1:27002",
        &[History, Tasks, KeyValue],
    ),
    ("s3-garage", "s3://larder?endpoint=http://127.0.0.1:23900&region=garage", &[Blobs]),
    ("s3-s3s", "s3://larder?endpoint=http://127.0.0.1:23910&region=us-east-1", &[Blobs]),
    ("s3-moto", "s3://larder?endpoint=http://127.0.0.1:23920&region=us-east-1", &[Blobs]),
    ("age", "age://larder:***@127.0.0.1:24330/larder", &[Graph]),
];

/// Returns the run; with `sound`, without its problems.
pub(crate) fn report(sound: bool) -> Report {
    let mut report = Report::new(1);
    measure(&mut report);
    let backends = if sound { &BACKENDS[..3] } else { &BACKENDS[..] };
    for (name, url, contracts) in backends {
        let capabilities = contracts.iter().map(|contract| (*contract, Default::default())).collect();
        let backend = BackendReport::new(*name, *url, capabilities);
        report.add(backend, cases(name, contracts, sound));
        let command = if sound { "cargo larder check" } else { "cargo larder-full check --live" };
        report.again.insert((*name).to_owned(), command.to_owned());
        report.levels.extend(contracts.iter().map(|contract| level(name, Level::Model, Some(*contract))));
        report
            .levels
            .extend(contracts.iter().map(|contract| level(name, Level::Concurrent, Some(*contract))));
        report.levels.push(level(name, Level::Faults, None));
    }
    report.jobs = 16;
    report.elapsed_us = 1_279_100_000;
    if !sound {
        trouble(&mut report);
    }
    let reason = "s3s-fs 0.14.1 returns the new bytes with the old ETag while an object is overwritten";
    let expires = "2027-06-30".parse().unwrap();
    let known = Waiver::new("s3-s3s", reason, expires).with_clause("BLOB-004").with_level(Level::Concurrent);
    let unused = Waiver::new("memory", "mended since", expires).with_clause("KV-001");
    let reason = "the server's counters lose an update under load";
    let expired = Waiver::new("redis", reason, "2020-01-01".parse().unwrap()).with_clause("KV-009");
    let waivers = if sound { vec![known, unused] } else { vec![known, unused, expired] };
    report.waive(&Waivers::new(waivers).unwrap(), "2026-11-21".parse().unwrap());
    report
}

fn cases(backend: &str, contracts: &[Contract], sound: bool) -> Vec<CaseReport> {
    let served = suites::all().into_iter().filter(|case| contracts.contains(&case.contract));
    let of = |(index, case): (usize, larder_conformance::Case)| {
        let mut report =
            CaseReport::passed(case.clause, case.name.clone(), case.contract, backend, case.level);
        report.elapsed_us = 300 + 977 * u64::try_from(index).unwrap() % 90_000;
        let cypher = backend != "age" && case.clause.starts_with("GRAPH-04");
        let presign = ["fs", "sqlite"].contains(&backend) && case.clause.starts_with("BLOB-05");
        if cypher || presign {
            report.outcome = CaseOutcome::Unsupported;
            report.got = "capability cypher is not declared".to_owned();
            report.reason = report.got.clone();
        }
        let broken = [("redis", "KV-009"), ("postgres", "VEC-022"), ("postgres", "HIST-029")];
        if !sound && broken.contains(&(backend, case.clause)) {
            report.outcome = CaseOutcome::Failed;
            report.expected = "the count after 4 writers of 25 steps each: 100".to_owned();
            report.got = format!("97 {HOSTILE}");
            report.reason = format!("expected {}; got {}", report.expected, report.got);
        }
        if !sound && backend == "age" && case.clause == "GRAPH-020" {
            report.outcome = CaseOutcome::Error;
            report.got = "Unavailable in graph.neighbors: the server closed the connection".to_owned();
            report.reason = report.got.clone();
        }
        report
    };
    served.enumerate().map(of).collect()
}

fn level(backend: &str, level: Level, contract: Option<Contract>) -> LevelReport {
    let (unit, required) = match (level, backend) {
        (Level::Model, "memory") => ("operations", 166_667),
        (Level::Model, _) => ("operations", 16_667),
        (Level::Concurrent, _) => ("histories", 84),
        _ => ("calls", 412),
    };
    let mut report = LevelReport::new(backend, level, contract, unit, required);
    report.executed = required + 3;
    report.elapsed_us = 14_350_000;
    if level == Level::Concurrent {
        report
            .notes
            .push("1002 of 5040 calls overlapped another; 16 histories were made by 5 processes".to_owned());
    }
    report
}

fn trouble(report: &mut Report) {
    let found = |clause| {
        let script = "client 1  put a = 1  |------|\nclient 2  get a = 1      |--| with the tag of 0";
        let finding = "no order of these calls explains their results";
        Counterexample::new(clause, finding.to_owned(), script.to_owned(), 4_711)
    };
    for level in &mut report.levels {
        match (level.backend.as_str(), level.level, level.contract) {
            ("s3-s3s", Level::Concurrent, _) => {
                level.executed = 37;
                level.counterexamples = vec![found("BLOB-004")];
            }
            ("redis-cluster", Level::Concurrent, Some(Tasks)) => {
                level.executed = 12;
                level.counterexamples = vec![found("TASK-041")];
            }
            ("age", Level::Model, _) => level.executed = 1_200,
            ("s3-moto", Level::Faults, _) => level.trouble = Some("the server does not respond".to_owned()),
            _ => {}
        }
    }
    let reason = "LARDER_POSTGRES_URL is not set, and the service cannot be started";
    report.absent.push(AbsentBackend::new("postgres live", reason, false));
}

/// Returns the latency of real calls.
fn measure(report: &mut Report) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    runtime.block_on(async {
        for harness in url::harnesses(&Registry::default(), &[], scratch.path()).await.unwrap() {
            let (watch, options) = (Stopwatch::default(), RunOptions::default());
            let probed = runner::probe(&*harness, options.timeout).await.unwrap();
            let mut seen: BTreeMap<Contract, usize> = BTreeMap::new();
            let mut few = suites::all();
            few.retain(|case| {
                let count = seen.entry(case.contract).or_default();
                *count += 1;
                *count <= 4
            });
            runner::run(&watch.watch(harness.clone()), &probed, &few, &options, &|_| {}).await;
            report.latencies.extend(watch.latencies(harness.name()));
        }
    });
    runtime.shutdown_background();
}
