//! Reports for the tests of this folder.

use std::collections::BTreeMap;

use larder_kernel::{Capabilities, Contract};

use super::waiver::{Date, Waiver, Waivers};
use super::{AbsentBackend, BackendReport, CaseOutcome, CaseReport, Report};
use crate::case::Level;
use crate::latency::Latency;
use crate::level::{Counterexample, LevelReport};
use crate::suites;

/// Text that a hostile store could return.
pub(super) const HOSTILE: &str = "</script><script>document.title='taken'</script><img src=x \
                                  onerror=alert(1)> \"quoted\" 'single' & \u{1}\u{2028}]]>";

fn case(clause: &'static str, name: &str, outcome: CaseOutcome) -> CaseReport {
    CaseReport {
        clause,
        case: format!("key_value.{name}"),
        contract: Contract::KeyValue,
        backend: "mine".to_owned(),
        level: Level::Contract,
        outcome,
        reason: String::new(),
        expected: String::new(),
        got: String::new(),
        waived: None,
        missing: None,
        elapsed_us: 1_500,
    }
}

pub(super) fn counterexample(clause: &'static str) -> Counterexample {
    Counterexample {
        clause,
        finding: format!("the value is another one {HOSTILE}"),
        script: "let store = open();".to_owned(),
        seed: 17,
    }
}

fn with(cases: Vec<CaseReport>) -> Report {
    let mut report = Report::new(1);
    let capabilities = BTreeMap::from([(Contract::KeyValue, Capabilities::default())]);
    let backend = BackendReport { name: "mine".to_owned(), url: "mine:".to_owned(), capabilities };
    report.add(backend, cases);
    let mut model = LevelReport::new("mine", Level::Model, Some(Contract::KeyValue), "operations", 100_000);
    model.executed = 100_000;
    report.levels.push(model);
    report
}

/// Returns a report of two passed cases and a proven level.
pub(super) fn passing() -> Report {
    with(vec![case("KV-001", "one", CaseOutcome::Passed), case("KV-002", "two", CaseOutcome::Passed)])
}

/// Returns a report of one passed case and one failed case.
pub(super) fn failing() -> Report {
    let mut failed = case("KV-001", "one", CaseOutcome::Failed);
    failed.expected = "the value".to_owned();
    failed.got = HOSTILE.to_owned();
    failed.reason = format!("expected the value; got {HOSTILE}");
    with(vec![failed, case("KV-002", "two", CaseOutcome::Passed)])
}

/// Returns a report in which every key-value case of the level `contract` passed.
pub(super) fn complete() -> Report {
    let all = suites::all().into_iter();
    let of = all.filter(|case| case.contract == Contract::KeyValue && case.level == Level::Contract);
    with(of.map(|own| CaseReport { case: own.name, ..case(own.clause, "", CaseOutcome::Passed) }).collect())
}

/// Returns a report with one of everything that a report can contain.
pub(super) fn everything() -> Report {
    let mut report = failing();
    let extra = [
        case("KV-003", "three", CaseOutcome::Unsupported),
        case("KV-004", "four", CaseOutcome::Error),
        CaseReport {
            expected: "1".to_owned(),
            got: "2".to_owned(),
            ..case("KV-005", "five", CaseOutcome::Failed)
        },
        CaseReport {
            reason: "key_value.list is not implemented".to_owned(),
            got: "key_value.list is not implemented".to_owned(),
            missing: Some("key_value.list"),
            ..case("KV-006", "six", CaseOutcome::Waiting)
        },
    ];
    report.cases.extend(extra);
    report.jobs = 16;
    report.elapsed_us = 2_000_000;
    report.again.insert("mine".to_owned(), "cargo larder check mine:".to_owned());
    report.levels[0].counterexamples.push(counterexample("KV-002"));
    report.levels[0].notes.push("3 trials met nothing".to_owned());
    let mut whole = LevelReport::new("mine", Level::Faults, None, "faults", 200);
    whole.trouble = Some(format!("the server does not respond {HOSTILE}"));
    report.levels.push(whole);
    report.absent.push(AbsentBackend { name: "far".to_owned(), reason: HOSTILE.to_owned(), required: true });
    report.latencies.push(Latency {
        backend: "mine".to_owned(),
        contract: Contract::KeyValue,
        method: "put",
        count: 100,
        errors: 3,
        p50_ns: 1_500,
        p99_ns: 2_500_000,
        max_ns: 3_000_000_000,
    });
    let waiver = |clause: &str, level, expires: &str| Waiver {
        backend: "mine".to_owned(),
        clause: Some(clause.to_owned()),
        level,
        reason: format!("known {HOSTILE}"),
        expires: expires.parse().unwrap(),
    };
    let waivers = vec![
        waiver("KV-005", None, "2027-01-31"),
        waiver("KV-002", Some(Level::Model), "2027-01-31"),
        waiver("KV-001", None, "2020-01-31"),
        Waiver { clause: None, ..waiver("KV-001", Some(Level::Hostile), "2027-01-31") },
    ];
    let today: Date = "2026-01-01".parse().unwrap();
    report.waive(&Waivers::new(waivers).unwrap(), today);
    report
}
