//! The output of the command: results on standard output, everything else on standard error.
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use comfy_table::{Cell, CellAlignment, Table, presets};
use larder_conformance::report::waiver::WaiverStatus;
use larder_conformance::{AbsentBackend, CaseOutcome, CaseReport, Clause, Report, Summary, clauses};
use larder_kernel::Contract;

/// The name of this repository's program.
const LARDER: &str = "larder";

/// Prints the result and returns `code`, unless the result cannot be written.
pub fn finish(text: impl Display, code: ExitCode) -> ExitCode {
    let mut stdout = std::io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Ok(()) => code,
        // The reader closed the pipe, which is not an error.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => code,
        Err(error) => trouble(format_args!("cannot write the result: {error}")),
    }
}

/// Prints an error as one line and returns its exit code.
pub fn trouble(text: impl Display) -> ExitCode {
    eprintln!("larder: {text}");
    ExitCode::from(2)
}

/// Returns the name of the running program. A third-party backend can have a program with another name.
fn program() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(Path::file_stem);
    name.map_or_else(|| LARDER.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Returns whether the program is this repository's `larder`.
pub(crate) fn is_larder() -> bool {
    program() == LARDER
}

/// Returns the command line that starts this program; `full` selects the build with every backend.
pub(crate) fn invocation(full: bool) -> String {
    match (program(), full) {
        (name, false) if name == LARDER => "cargo larder".to_owned(),
        (name, true) if name == LARDER => "cargo larder-full".to_owned(),
        (name, _) => name,
    }
}

/// Creates the runtime of a command.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| format!("cannot create a runtime: {error}"))
}

/// Runs the future on a new runtime. A backend that blocks a thread does not keep the command from ending.
pub(crate) fn on_runtime(command: impl Future<Output = Result<ExitCode, String>>) -> ExitCode {
    let runtime = match runtime() {
        Ok(runtime) => runtime,
        Err(reason) => return trouble(reason),
    };
    let code = runtime.block_on(command);
    runtime.shutdown_background();
    code.unwrap_or_else(trouble)
}

/// Runs the future and prints its result.
pub(crate) fn report(command: impl Future<Output = Result<String, String>>) -> ExitCode {
    on_runtime(async { Ok(finish(command.await?, ExitCode::SUCCESS)) })
}

/// The maximum number of backends in a table with one line per cell.
const BACKENDS_WIDE: usize = 4;

/// Prints one line about the progress.
pub fn note(text: impl Display) {
    eprintln!("larder: {text}");
}

/// Formats the matrix of contracts and backends, then each failure with the command that reproduces it.
pub(crate) fn table(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    let mut header = vec![Cell::new("contract")];
    header.extend(report.backends.iter().map(|backend| Cell::new(&backend.name)));
    header.extend(not_there(report).map(|absent| Cell::new(&absent.name)));
    table.set_header(header);
    let separator = if report.backends.len() > BACKENDS_WIDE { "\n" } else { ", " };
    for &contract in Contract::ALL {
        let mut row = vec![Cell::new(contract)];
        for backend in &report.backends {
            let cases = report.cases.iter();
            let cases = cases.filter(|case| case.contract == contract && case.backend == backend.name);
            let text = cell(&cases.collect::<Vec<_>>(), separator);
            row.push(Cell::new(text).set_alignment(CellAlignment::Right));
        }
        row.extend(not_there(report).map(|_| Cell::new("missing").set_alignment(CellAlignment::Right)));
        table.add_row(row);
    }
    let mut text = format!("{table}\n");
    let bad = |case: &&CaseReport| matches!(case.outcome, CaseOutcome::Failed | CaseOutcome::Error);
    for case in report.cases.iter().filter(bad) {
        text.push_str(&failure(report, case));
    }
    text.push_str(&unsupported(report));
    text.push_str(&lines(&report.levels));
    for absent in &report.absent {
        let required = if absent.required { " REQUIRED" } else { "" };
        text.push_str(&format!("missing{required} {}: {}\n", absent.name, absent.reason));
    }
    for used in report.waivers.iter().filter(|used| used.status != WaiverStatus::NotInRun) {
        text.push_str(&format!("{used}\n"));
    }
    for standing in report.standings() {
        text.push_str(&format!("{standing}\n"));
    }
    text.push_str(&report.conclusion());
    let elapsed = Duration::from_micros(report.elapsed_us);
    text.push_str(&format!("{}, in {:.1} s", verdict(report), elapsed.as_secs_f64()));
    text
}

/// Returns the absent backends that have no column as tested backends.
fn not_there(report: &Report) -> impl Iterator<Item = &AbsentBackend> {
    let tested = |name: &str| report.backends.iter().any(|backend| backend.name == name);
    report.absent.iter().filter(move |absent| !tested(&absent.name))
}

fn cell(cases: &[&CaseReport], separator: &str) -> String {
    if cases.is_empty() {
        return "–".to_owned();
    }
    let summary = Summary::of(cases.iter().copied());
    let mut parts = vec![format!("{} passed", summary.passed)];
    let more = [
        (summary.failed, "FAILED"),
        (summary.unsupported, "unsupported"),
        (summary.errors, "ERRORS"),
        (summary.waived, "waived"),
        (summary.waiting, "waiting"),
    ];
    parts.extend(more.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")));
    let micros: u64 = cases.iter().map(|case| case.elapsed_us).sum();
    #[allow(clippy::cast_precision_loss)]
    let seconds = micros as f64 / 1e6;
    let dot = if separator == "\n" { separator } else { " · " };
    format!("{}{dot}{seconds:.1} s", parts.join(separator))
}

fn failure(report: &Report, case: &CaseReport) -> String {
    let sentence = sentence_of(case.clause).map_or_else(String::new, |clause| clause.sentence);
    let word = if case.outcome == CaseOutcome::Failed { "FAILED" } else { "ERROR" };
    let what = if case.outcome == CaseOutcome::Failed {
        format!("    expected  {}\n    got       {}\n", case.expected, case.got)
    } else {
        format!("    reason    {}\n", case.reason)
    };
    let again =
        report.again_case(case).map_or_else(String::new, |command| format!("    again     {command}\n"));
    format!(
        "\n{word} {} on {}: {sentence}\n    case      {}\n{what}{again}",
        case.clause, case.backend, case.case
    )
}

/// Quotes the text as one word for a shell.
pub(crate) fn shell_word(text: &str) -> String {
    let plain = |char: char| char.is_ascii_alphanumeric() || "-_./:=@%+,".contains(char);
    if text.chars().all(plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// Lists the cases that could not run, with one line per backend and reason.
fn unsupported(report: &Report) -> String {
    let mut clauses: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for case in report.cases.iter().filter(|case| case.outcome == CaseOutcome::Unsupported) {
        clauses.entry((&case.backend, &case.reason)).or_default().insert(case.clause);
    }
    let line = |((backend, reason), ids): (&(&str, &str), &BTreeSet<&str>)| {
        let ids: Vec<&str> = ids.iter().copied().collect();
        format!("unsupported on {backend}: {reason} ({})\n", ids.join(", "))
    };
    clauses.iter().map(line).collect()
}

fn verdict(report: &Report) -> String {
    let Summary { passed, failed, unsupported, errors, waived, waiting } = report.summary;
    let more =
        |count: usize, words: &str| if count == 0 { String::new() } else { format!(", {count} {words}") };
    format!(
        "{passed} passed, {failed} failed, {unsupported} unsupported, {errors} errors{}{}{}; {} of {} \
         clauses hold, suite {}, seed {}",
        more(waived, "waived"),
        more(waiting, "waiting"),
        more(report.absent.len(), "missing"),
        report.held_clauses().len(),
        clauses().len(),
        report.suite_version,
        report.seed
    )
}

/// Returns the clause with an id.
pub(crate) fn sentence_of(id: &str) -> Option<Clause> {
    clauses().into_iter().find(|clause| clause.id == id)
}

/// Formats the lines about levels below the table of cases.
fn lines(reports: &[larder_conformance::LevelReport]) -> String {
    reports.iter().map(larder_conformance::describe_level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_as_one_word_of_a_shell() {
        assert_eq!(shell_word("sqlite:./larder.db"), "sqlite:./larder.db");
        assert_eq!(shell_word("sqlite:./a b.db?synchronous=full"), "'sqlite:./a b.db?synchronous=full'");
        assert_eq!(shell_word("file:it's"), r"'file:it'\''s'");
    }
}
