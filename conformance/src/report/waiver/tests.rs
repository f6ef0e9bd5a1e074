use larder_kernel::Contract;

use super::*;
use crate::report::sample;

fn waiver(backend: &str, clause: Option<&str>, level: Option<Level>) -> Waiver {
    Waiver {
        backend: backend.to_owned(),
        clause: clause.map(str::to_owned),
        level,
        reason: "known".to_owned(),
        expires: "2027-01-31".parse().unwrap(),
    }
}

fn waive(report: &mut Report, waiver: Waiver, today: &str) -> WaiverStatus {
    report.waive(&Waivers::new(vec![waiver]).unwrap(), today.parse().unwrap());
    report.waivers.last().unwrap().status
}

#[test]
fn a_waived_failure_is_counted_as_such_and_does_not_make_the_run_fail() {
    let mut report = sample::failing();
    assert_eq!((report.exit_code(), report.summary.failed), (1, 1));
    let status = waive(&mut report, waiver("mine", Some("KV-001"), None), "2027-01-31");
    assert_eq!(status, WaiverStatus::Used);
    assert_eq!((report.exit_code(), report.summary.failed, report.summary.waived), (0, 0, 1));
    let case = report.cases.iter().find(|case| case.outcome == CaseOutcome::Waived).unwrap();
    assert_eq!(case.waived.as_ref().unwrap().reason, "known");
    assert!(report.failures().next().is_none() && report.broken_clauses().is_empty());
}

#[test]
fn an_expired_waiver_waives_nothing_and_is_an_error_that_names_it() {
    let mut report = sample::failing();
    let status = waive(&mut report, waiver("mine", Some("KV-001"), None), "2027-02-01");
    assert_eq!((status, report.exit_code(), report.summary.failed), (WaiverStatus::Expired, 1, 1));
    let line = report.waivers[0].to_string();
    assert!(
        line.starts_with(
            "EXPIRED waiver of mine KV-001: it ended on 2027-01-31 (failures that need it: 1): known"
        ),
        "{line}"
    );
    // Even if the report needs no waiver any more.
    let mut report = sample::passing();
    waive(&mut report, waiver("mine", Some("KV-001"), None), "2027-02-01");
    assert_eq!(report.exit_code(), 1);
}

#[test]
fn a_waiver_without_a_match_is_unused_or_not_in_the_run() {
    let mut report = sample::passing();
    for (waiver, status) in [
        (waiver("mine", Some("KV-001"), None), WaiverStatus::Unused),
        (waiver("mine", Some("KV-001"), Some(Level::Contract)), WaiverStatus::Unused),
        (waiver("mine", None, Some(Level::Model)), WaiverStatus::Unused),
        (waiver("mine", Some("KV-001"), Some(Level::Model)), WaiverStatus::Unused),
        (waiver("mine", Some("KV-002"), None), WaiverStatus::Unused),
        (waiver("mine", Some("BLOB-004"), Some(Level::Model)), WaiverStatus::NotInRun),
        (waiver("mine", None, Some(Level::Faults)), WaiverStatus::NotInRun),
        (waiver("other", Some("KV-001"), None), WaiverStatus::NotInRun),
    ] {
        let subject = waiver.subject();
        assert_eq!(waive(&mut report, waiver, "2026-01-01"), status, "{subject}");
    }
    assert_eq!((report.exit_code(), report.summary.waived), (0, 0));
}

#[test]
fn a_waiver_applies_only_to_its_backend_level_and_clause() {
    for other in [
        waiver("yours", Some("KV-001"), None),
        waiver("mine", Some("KV-002"), None),
        waiver("mine", Some("KV-001"), Some(Level::Hostile)),
    ] {
        let mut report = sample::failing();
        waive(&mut report, other, "2026-01-01");
        assert_eq!((report.exit_code(), report.summary.failed), (1, 1));
    }
}

#[test]
fn a_waiver_applies_to_its_backend_with_a_description() {
    for (more, result) in [(": stand-in, Redis 8.0", (0, 0)), ("-cluster", (1, 1))] {
        let mut report = sample::failing();
        for case in &mut report.cases {
            case.backend.push_str(more);
        }
        waive(&mut report, waiver("mine", Some("KV-001"), None), "2026-01-01");
        assert_eq!((report.exit_code(), report.summary.failed), result);
    }
}

#[test]
fn a_level_is_waived_only_if_all_its_counterexamples_are() {
    use crate::level::Verdict;

    let mut report = sample::passing();
    let level = &mut report.levels[0];
    assert_eq!(level.contract, Some(Contract::KeyValue));
    level.counterexamples = vec![sample::counterexample("KV-001"), sample::counterexample("KV-004")];
    assert_eq!((level.verdict(), report.exit_code()), (Verdict::Broken, 1));
    waive(&mut report, waiver("mine", Some("KV-001"), Some(Level::Model)), "2026-01-01");
    assert_eq!(report.levels[0].verdict(), Verdict::Broken);
    waive(&mut report, waiver("mine", None, Some(Level::Model)), "2026-01-01");
    assert_eq!((report.levels[0].verdict(), report.exit_code()), (Verdict::Waived, 0));
    assert_eq!((report.waivers[0].matched, report.waivers[1].matched), (1, 1));
    report.levels[0].trouble = Some("the server does not respond".to_owned());
    assert_eq!((report.levels[0].verdict(), report.exit_code()), (Verdict::Error, 2));
}

#[test]
fn lists_out_of_order_are_refused() {
    let refused = |waivers| Waivers::new(waivers).unwrap_err();
    assert_eq!(refused(vec![waiver(" ", Some("KV-001"), None)]).field.unwrap(), "backend");
    assert_eq!(refused(vec![waiver("mine", None, None)]).field.unwrap(), "clause");
    assert_eq!(refused(vec![waiver("mine", Some("KV-999"), None)]).field.unwrap(), "clause");
    let twice = waiver("mine", Some("KV-001"), None);
    assert_eq!(refused(vec![twice.clone(), twice]).message, "mine KV-001 is waived twice");
    assert!(Waivers::new(Vec::new()).is_ok());
}

#[cfg(feature = "report")]
mod file {
    use super::*;

    const GOOD: &str = r#"
# The reason.
[[waiver]]
backend = "s3-s3s"
level = "concurrent"
clause = "BLOB-004"
reason = "old tag"
expires = 2027-06-30

[[waiver]]
backend = "mine"
level = "model"
reason = "slow"
expires = "2027-01-31"
"#;

    #[test]
    fn a_file_reads_with_dates_bare_or_in_quotes() {
        let waivers = Waivers::from_toml(GOOD).unwrap();
        let [first, second] = waivers.as_slice() else { panic!("{waivers:?}") };
        assert_eq!(first.subject(), "s3-s3s concurrent BLOB-004");
        assert_eq!((first.expires.to_string(), first.reason.as_str()), ("2027-06-30".to_owned(), "old tag"));
        assert_eq!((second.subject(), second.clause.clone()), ("mine model".to_owned(), None));
        assert!(Waivers::from_toml("").unwrap().as_slice().is_empty());
    }

    #[test]
    fn an_invalid_line_is_named_with_its_field() {
        let head = "[[waiver]]\nbackend = \"b\"\nclause = \"KV-001\"\n";
        let good = "reason = \"r\"\nexpires = 2027-01-31\n";
        for (text, line, field) in [
            ("[[waiver]\n".to_owned(), 1, None),
            ("a = 1\n".to_owned(), 1, Some("a")),
            ("\nwaiver = 1\n".to_owned(), 2, Some("waiver")),
            ("waiver = [1]\n".to_owned(), 1, Some("waiver")),
            (format!("{head}reason = \"r\"\n"), 1, Some("expires")),
            (format!("{head}expires = 2027-01-31\n"), 1, Some("reason")),
            (format!("{head}{good}because = 1\n"), 6, Some("because")),
            (format!("{head}reason = 7\nexpires = 2027-01-31\n"), 4, Some("reason")),
            (format!("{head}reason = \"\"\nexpires = 2027-01-31\n"), 4, Some("reason")),
            (format!("{head}reason = \"r\"\nexpires = 2027-01-31T00:00:00Z\n"), 5, Some("expires")),
            (format!("{head}reason = \"r\"\nexpires = \"soon\"\n"), 5, Some("expires")),
            (format!("{head}reason = \"r\"\nexpires = \"2027-02-30\"\n"), 5, Some("expires")),
            (format!("{head}reason = \"r\"\nexpires = 12:00:00\n"), 5, Some("expires")),
            (format!("{head}{good}level = \"hard\"\n"), 6, Some("level")),
            (format!("[[waiver]]\nbackend = \"b\"\n{good}"), 1, Some("clause")),
            (format!("[[waiver]]\nbackend = \"b\"\nclause = \"XX-1\"\n{good}"), 3, Some("clause")),
            (format!("{head}{good}{head}{good}"), 6, Some("backend")),
        ] {
            let error = Waivers::from_toml(&text).unwrap_err();
            assert_eq!((error.line, error.field.as_deref()), (Some(line), field), "{text}: {error}");
        }
    }

    #[test]
    fn an_error_names_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("waivers.toml");
        let line = Waivers::read(&path).unwrap_err().to_string();
        assert!(line.contains("waivers.toml: cannot be read"), "{line}");
        std::fs::write(&path, "[[waiver]]\nbackend = 1\n").unwrap();
        let line = Waivers::read(&path).unwrap_err().to_string();
        assert!(line.ends_with("waivers.toml:2: field `backend`: expected text in quotes"), "{line}");
    }

    #[test]
    fn the_file_of_a_store_has_no_findings() {
        let waivers = Waivers::from_toml(include_str!("../../../waivers.toml")).unwrap();
        assert!(waivers.as_slice().iter().any(|waiver| waiver.subject() == "s3-s3s concurrent BLOB-004"));
    }
}
