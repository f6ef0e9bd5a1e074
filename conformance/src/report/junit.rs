//! `junit.xml`, in the form that CI servers read.
//!
//! The file has one test suite for each backend and contract, one for each backend and level beyond the
//! cases, one for missing backends, and one for the waivers. A case that is waived, undeclared or waiting for
//! a missing method counts as skipped, with the reason. A level that is not proven is an error, as it is for
//! the command.

use std::time::Duration;

use larder_kernel::Contract;
use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};

use super::waiver::{Waived, WaiverStatus};
use super::{CaseOutcome, CaseReport, Report};
use crate::case::Level;
use crate::clause::clauses;
use crate::level::{LevelReport, Verdict};

/// Returns the report as XML.
///
/// # Errors
/// A sentence if it cannot be written.
pub(super) fn xml(report: &Report) -> Result<String, String> {
    let mut junit = quick_junit::Report::new(format!("larder {}", report.suite_version));
    junit.set_time(Duration::from_micros(report.elapsed_us));
    for backend in &report.backends {
        for &contract in Contract::ALL {
            let cases =
                report.cases.iter().filter(|case| case.contract == contract && case.backend == backend.name);
            let cases: Vec<TestCase> = cases.map(|case| of_case(report, case)).collect();
            add(&mut junit, format!("{}.{contract}", backend.name), cases);
        }
        for &level in Level::ALL {
            let levels = report.levels.iter().filter(|own| own.level == level && own.backend == backend.name);
            let cases: Vec<TestCase> = levels.map(|own| of_level(report, own)).collect();
            add(&mut junit, format!("{}.level-{}", backend.name, level.as_str()), cases);
        }
    }
    let absent = report.absent.iter().map(|absent| {
        let mut status = match absent.required {
            true => TestCaseStatus::non_success(NonSuccessKind::Error),
            false => TestCaseStatus::skipped(),
        };
        status.set_message(absent.reason.as_str());
        TestCase::new(absent.name.as_str(), status)
    });
    add(&mut junit, "missing".to_owned(), absent.collect());
    let waivers = report.waivers.iter().map(|used| {
        let mut status = match used.status {
            WaiverStatus::Expired => TestCaseStatus::non_success(NonSuccessKind::Failure),
            WaiverStatus::Used => TestCaseStatus::success(),
            WaiverStatus::Unused | WaiverStatus::NotInRun => TestCaseStatus::skipped(),
        };
        if used.status != WaiverStatus::Used {
            status.set_message(used.to_string());
        }
        TestCase::new(used.waiver.subject(), status)
    });
    add(&mut junit, "waivers".to_owned(), waivers.collect());
    junit.to_string().map_err(|error| format!("cannot write XML: {error}"))
}

fn add(junit: &mut quick_junit::Report, name: String, cases: Vec<TestCase>) {
    if cases.is_empty() {
        return;
    }
    let mut suite = TestSuite::new(name);
    suite.set_time(cases.iter().filter_map(|case| case.time).sum());
    suite.add_test_cases(cases);
    junit.add_test_suite(suite);
}

fn of_case(report: &Report, case: &CaseReport) -> TestCase {
    let mut status = match case.outcome {
        CaseOutcome::Passed => TestCaseStatus::success(),
        CaseOutcome::Failed => TestCaseStatus::non_success(NonSuccessKind::Failure),
        CaseOutcome::Error => TestCaseStatus::non_success(NonSuccessKind::Error),
        CaseOutcome::Unsupported | CaseOutcome::Waived | CaseOutcome::Waiting => TestCaseStatus::skipped(),
    };
    match &case.waived {
        Some(waived) => _ = status.set_type("waived").set_message(words(waived)),
        None if case.outcome == CaseOutcome::Passed => {}
        None => _ = status.set_type(case.outcome.as_str()).set_message(case.reason.as_str()),
    }
    if matches!(case.outcome, CaseOutcome::Failed | CaseOutcome::Error | CaseOutcome::Waived) {
        let clause = clauses().into_iter().find(|clause| clause.id == case.clause);
        let sentence = clause.map_or_else(String::new, |clause| clause.sentence);
        let again = report.again_case(case).map_or_else(String::new, |command| format!("\nagain: {command}"));
        status.set_description(format!("{}: {sentence}\n{}{again}", case.clause, case.reason));
    }
    let mut written = TestCase::new(format!("{} [{}]", case.case, case.clause), status);
    written.set_classname(format!("{}.{}", case.backend, case.contract));
    written.set_time(Duration::from_micros(case.elapsed_us));
    written
}

fn of_level(report: &Report, level: &LevelReport) -> TestCase {
    let verdict = level.verdict();
    let mut status = match verdict {
        Verdict::Proven => TestCaseStatus::success(),
        Verdict::Waived => TestCaseStatus::skipped(),
        Verdict::Broken => TestCaseStatus::non_success(NonSuccessKind::Failure),
        Verdict::NotProven | Verdict::Error => TestCaseStatus::non_success(NonSuccessKind::Error),
    };
    let figures = format!("{} of {} {}", level.executed, level.required, level.unit);
    if verdict != Verdict::Proven {
        let waived = level.waived.values().map(words).collect::<Vec<_>>().join("; ");
        let more = level.trouble.as_deref().unwrap_or(&waived);
        let dash = if more.is_empty() { "" } else { ": " };
        status.set_type(verdict.as_str()).set_message(format!("{}, {figures}{dash}{more}", verdict.as_str()));
    }
    let mut text = String::new();
    for found in &level.counterexamples {
        let again = report.again_level(level, found.seed);
        let again = again.map_or_else(String::new, |command| format!("\nagain: {command}"));
        text.push_str(&format!(
            "{} {} (seed {}){again}\n{}\n",
            found.clause, found.finding, found.seed, found.script
        ));
    }
    if !text.is_empty() {
        status.set_description(text);
    }
    let name = level.contract.map_or_else(|| "backend".to_owned(), |contract| contract.to_string());
    let mut written = TestCase::new(format!("{name} ({})", level.unit), status);
    written.set_classname(format!("{}.level-{}", level.backend, level.level.as_str()));
    written.set_time(Duration::from_micros(level.elapsed_us));
    if verdict == Verdict::Proven {
        written.set_system_out(
            std::iter::once(figures).chain(level.notes.clone()).collect::<Vec<_>>().join("\n"),
        );
    }
    written
}

fn words(waived: &Waived) -> String {
    format!("waived until {}: {}", waived.expires, waived.reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    /// Parses the XML and returns the element names with their attributes, unescaped.
    fn read(text: &str) -> Vec<(String, Vec<(String, String)>)> {
        use quick_xml::events::Event;

        let mut reader = quick_xml::Reader::from_str(text);
        let mut found = Vec::new();
        let mut open = 0;
        loop {
            let event = reader.read_event().unwrap_or_else(|error| panic!("{error}: {text}"));
            let element = match &event {
                Event::Start(element) => {
                    open += 1;
                    element
                }
                Event::Empty(element) => element,
                Event::End(_) => {
                    open -= 1;
                    continue;
                }
                Event::Eof => break,
                _ => continue,
            };
            let name = String::from_utf8(element.name().as_ref().to_vec()).unwrap();
            let attribute = |attribute: Result<quick_xml::events::attributes::Attribute<'_>, _>| {
                let attribute = attribute.unwrap();
                let key = String::from_utf8(attribute.key.as_ref().to_vec()).unwrap();
                let raw = std::str::from_utf8(&attribute.value).unwrap();
                (key, quick_xml::escape::unescape(raw).unwrap().into_owned())
            };
            found.push((name, element.attributes().map(attribute).collect()));
        }
        assert_eq!(open, 0, "an element stays open");
        found
    }

    #[test]
    fn the_file_is_well_formed_for_all_results_of_stores() {
        let report = sample::everything();
        let text = xml(&report).unwrap();
        let found = read(&text);
        let named = |element: &str| found.iter().filter(|(name, _)| name == element).count();
        assert_eq!((named("testsuites"), named("testsuite")), (1, 5), "{text}");
        assert_eq!(named("testcase"), report.cases.len() + 2 + 1 + 4);
        assert!(
            text.bytes().all(|byte| byte >= b' ' || byte == b'\n' || byte == b'\t'),
            "a control character"
        );
        let messages: Vec<_> = found.iter().flat_map(|(_, attributes)| attributes).collect();
        let is =
            |key: &str, part: &str| messages.iter().any(|(name, value)| name == key && value.contains(part));
        assert!(is("message", "</script><script>") && is("message", "waived until 2027-01-31: known"));
        assert!(is("name", "key_value.one [KV-001]") && is("classname", "mine.level-model"));
        assert!(is("message", "EXPIRED waiver of mine KV-001"));
    }

    #[test]
    fn the_counts_are_those_of_the_run() {
        let found = read(&xml(&sample::everything()).unwrap());
        let suite = |name: &str| {
            let suite = found.iter().find(|(element, attributes)| {
                element == "testsuite" && attributes.contains(&("name".to_owned(), name.to_owned()))
            });
            let attributes = &suite.unwrap_or_else(|| panic!("no suite {name}")).1;
            let count = |key: &str| attributes.iter().find(|(name, _)| name == key).unwrap().1.clone();
            [count("tests"), count("failures"), count("errors"), count("disabled")].join(" ")
        };
        assert_eq!(suite("mine.key_value"), "6 1 1 3");
        assert_eq!(suite("mine.level-model"), "1 0 0 1");
        assert_eq!(suite("mine.level-faults"), "1 0 1 0");
        assert_eq!(suite("missing"), "1 0 1 0");
        assert_eq!(suite("waivers"), "4 1 0 1");
    }
}
