//! `larder mutants`: runs the suite against stores with deliberate defects.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use comfy_table::{Cell, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use larder_conformance::RunOptions;
use larder_conformance::mutants::{self, Evaluation, Matrix, Mutant, Scope, Tally, Verdict};
use larder_kernel::Contract;

use crate::output;

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people.
    Table,
    /// One JSON document.
    Json,
}

/// Arguments of `larder mutants`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Run only mutants whose name contains this text. Can be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Run only the mutants of this contract. Can be given several times.
    #[arg(long, value_name = "CONTRACT", value_parser = contract)]
    contract: Vec<Contract>,
    /// Run every case of the contract, not only the cases of the clauses that name the defect. This is slower
    /// and shows which other clauses detect it.
    #[arg(long)]
    matrix: bool,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// List the mutants instead of running them.
    #[arg(long)]
    list: bool,
    /// Random seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> ExitCode {
    let chosen = chosen(args);
    if chosen.is_empty() {
        return output::trouble("no mutant has this name; `larder mutants` lists the names");
    }
    if args.list {
        let line = |mutant: &Mutant| format!("{}  {}", mutant.name, mutant.clauses.join(" "));
        let lines: Vec<_> = chosen.iter().map(|mutant| line(mutant).trim_end().to_owned()).collect();
        return output::finish(lines.join("\n"), ExitCode::SUCCESS);
    }
    output::on_runtime(judge(args, &chosen))
}

fn contract(text: &str) -> Result<Contract, String> {
    let names = || Contract::ALL.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let found = Contract::ALL.iter().copied().find(|contract| contract.to_string() == text);
    found.ok_or_else(|| format!("one of {}", names()))
}

/// Returns the requested mutants, and the control of each of their contracts. Without a control, a kill
/// proves nothing.
fn chosen(args: &Args) -> Vec<Mutant> {
    let of_contract = |mutant: &Mutant| args.contract.is_empty() || args.contract.contains(&mutant.contract);
    let named = |mutant: &Mutant| {
        args.only.is_empty() || args.only.iter().any(|text| mutant.name.contains(text.as_str()))
    };
    let all = mutants::all();
    let named: Vec<_> = all.iter().filter(|mutant| of_contract(mutant) && named(mutant)).collect();
    let wanted = |mutant: &&Mutant| {
        named
            .iter()
            .any(|one| one.name == mutant.name || (mutant.is_control() && one.contract == mutant.contract))
    };
    all.iter().filter(wanted).cloned().collect()
}

async fn judge(args: &Args, chosen: &[Mutant]) -> Result<ExitCode, String> {
    let begun = Instant::now();
    let scope = if args.matrix { Scope::All } else { Scope::Own };
    let options = RunOptions { seed: args.seed, ..mutants::options() };
    let bar = ProgressBar::new(u64::try_from(chosen.len()).unwrap_or(u64::MAX));
    if let Ok(style) = ProgressStyle::with_template("{prefix:>13} [{wide_bar}] {pos}/{len} {elapsed}") {
        bar.set_style(style);
    }
    let done = |judged: &Evaluation| {
        if !judged.is_right() {
            bar.println(format!("{} {}", word(judged), judged.mutant));
        }
        bar.inc(1);
    };
    let judged = mutants::matrix(chosen, scope, &options, &done).await;
    let matrix = judged.map_err(|error| format!("cannot open a mutant: {error}"))?;
    bar.finish_and_clear();
    let text = match args.format {
        Format::Table => table(&matrix, begun.elapsed()),
        Format::Json => {
            serde_json::to_string_pretty(&matrix).map_err(|error| format!("cannot write JSON: {error}"))?
        }
    };
    Ok(output::finish(text, ExitCode::from(matrix.exit_code())))
}

fn word(judged: &Evaluation) -> &'static str {
    match judged.verdict {
        Verdict::Killed => "killed",
        Verdict::Survived => "SURVIVED",
        Verdict::Passed => "passed",
        Verdict::Condemned => "CONTROL FAILED",
    }
}

/// Formats the matrix of mutants and clauses by contract, then each mutant with an unexpected result.
fn table(matrix: &Matrix, elapsed: Duration) -> String {
    let mut text = String::new();
    for &contract in Contract::ALL {
        let rows: Vec<_> = matrix.mutants.iter().filter(|judged| judged.contract == contract).collect();
        if !rows.is_empty() {
            text.push_str(&format!("{}\n", group(contract, &rows, matrix.scope)));
        }
    }
    for judged in matrix.mutants.iter().filter(|judged| !judged.is_right()) {
        text.push_str(&trouble(judged, matrix.seed));
    }
    text.push_str(&verdict(matrix, elapsed));
    text
}

fn group(contract: Contract, rows: &[&Evaluation], scope: Scope) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    let mut header = vec![contract.to_string(), "verdict".to_owned(), "caught by".to_owned()];
    if scope == Scope::All {
        header.push("also".to_owned());
    }
    table.set_header(header);
    for judged in rows {
        let mut row =
            vec![Cell::new(&judged.defect), Cell::new(word(judged)), Cell::new(judged.caught_by.join(" "))];
        if scope == Scope::All {
            row.push(Cell::new(also(&judged.also)));
        }
        table.add_row(row);
    }
    table
}

/// Lists the other clauses that detected the mutant, or their number if they do not fit on a line.
fn also(ids: &[&str]) -> String {
    const SHOWN: usize = 4;
    match ids.get(..SHOWN) {
        Some(first) if ids.len() > SHOWN => format!("{} and {} more", first.join(" "), ids.len() - SHOWN),
        _ => ids.join(" "),
    }
}

fn trouble(judged: &Evaluation, seed: u64) -> String {
    let missed = match judged.verdict {
        Verdict::Condemned => format!("fails {}", judged.also.join(" ")),
        _ => format!("not noticed by {}", judged.unnoticed_by.join(" ")),
    };
    let also = match (judged.verdict, judged.also.as_slice()) {
        (Verdict::Survived, [_, ..]) => format!("    noticed   by {}\n", judged.also.join(" ")),
        _ => String::new(),
    };
    let reason = match judged.reason.as_str() {
        "" => String::new(),
        reason => format!("    reason    {reason}\n"),
    };
    format!(
        "\n{} {}: {missed}\n{also}{reason}    again     \
         cargo larder mutants --matrix --only {} --seed {seed}\n",
        word(judged),
        judged.mutant,
        judged.mutant
    )
}

fn verdict(matrix: &Matrix, elapsed: Duration) -> String {
    let Tally { killed, survived, controls_passed, controls_condemned } = matrix.tally;
    let condemned = match controls_condemned {
        0 => String::new(),
        count => format!(", {count} controls FAILED"),
    };
    format!(
        "{killed} killed, {survived} survived; {controls_passed} controls passed{condemned}; suite {}, \
         seed {}, in {:.1} s",
        matrix.suite_version,
        matrix.seed,
        elapsed.as_secs_f64()
    )
}
