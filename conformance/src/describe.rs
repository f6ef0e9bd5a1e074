//! A report as text.

use std::fmt::Write as _;
use std::time::Duration;

use crate::level::LevelReport;
use crate::report::{CaseOutcome, CaseReport, Report};

/// Describes the failures of a run as text: clause, sentence, and the expected and actual results. The levels
/// follow, and for an unfinished store the missing methods.
#[must_use]
pub fn describe(report: &Report) -> String {
    let clauses = crate::clauses();
    let summary = report.summary;
    let mut text = format!(
        "{} passed, {} failed, {} unsupported, {} errors{} (suite {}, seed {})\n",
        summary.passed,
        summary.failed,
        summary.unsupported,
        summary.errors,
        if summary.waiting > 0 { format!(", {} waiting", summary.waiting) } else { String::new() },
        report.suite_version,
        report.seed
    );
    let mut line = |case: &CaseReport| {
        let sentence = clauses.iter().find(|clause| clause.id == case.clause);
        let sentence = sentence.map_or("", |clause| clause.sentence.as_str());
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{} {}\n  {sentence}\n  {}", case.clause, case.case, case.reason);
    };
    report.failures().for_each(&mut line);
    report.cases.iter().filter(|case| case.outcome == CaseOutcome::Error).for_each(&mut line);
    report.levels.iter().for_each(|level| text.push_str(&describe_level(level)));
    for absent in &report.absent {
        let _ = writeln!(text, "{} is missing: {}", absent.name, absent.reason);
    }
    text.push_str(&report.conclusion());
    text
}

/// Describes the result of a level as text, with its findings and the steps that reproduce them.
#[doc(hidden)]
#[must_use]
pub fn describe_level(report: &LevelReport) -> String {
    let contract = report.contract.map_or_else(String::new, |contract| format!(" {contract}"));
    let seconds = Duration::from_micros(report.elapsed_us).as_secs_f64();
    let mut text = format!(
        "{} {}{contract}: {}, {} of {} {}, in {seconds:.1} s\n",
        report.backend,
        report.level.as_str(),
        report.verdict().as_str(),
        report.executed,
        report.required,
        report.unit,
    );
    for note in report.notes.iter().chain(&report.trouble) {
        let _ = writeln!(text, "  {note}");
    }
    for found in &report.counterexamples {
        let waived = if report.waived.contains_key(found.clause) { "waived " } else { "" };
        let _ = writeln!(text, "  {waived}{} {} (seed {})", found.clause, found.finding, found.seed);
        for line in found.script.lines() {
            let _ = writeln!(text, "    {line}");
        }
    }
    text
}
