//! The figures as a table, as JSON and as a page.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Table, presets};
use serde::Serialize;

use super::curve::{Curve, Drawn};
use super::figure::{Figure, MORE, Skipped, Spread, Verdict};
use super::machine::Machine;
use super::reasons::reason;

/// All results of a run.
#[derive(Debug, Serialize)]
pub(super) struct BenchReport {
    pub(super) machine: Machine,
    pub(super) rounds: u16,
    pub(super) quick: bool,
    pub(super) figures: Vec<Figure>,
    /// The curves: the data of the plots.
    pub(super) curves: Vec<Curve>,
    pub(super) skipped: Vec<Skipped>,
}

const HEADER: [&str; 6] = ["figure", "larder", "peer", "ratio (min to max)", "target", "verdict"];

impl BenchReport {
    /// Prints the table for a terminal.
    pub(super) fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_header(HEADER);
        for figure in &self.figures {
            let cells = row(figure);
            table.add_row(cells.into_iter().enumerate().map(|(column, text)| {
                let alignment = if column == 0 { CellAlignment::Left } else { CellAlignment::Right };
                Cell::new(text).set_alignment(alignment)
            }));
        }
        let mut text = if self.figures.is_empty() { String::new() } else { format!("{table}\n") };
        for figure in &self.figures {
            let _ =
                writeln!(text, "{}: {} / {}\n    {}", figure.name, figure.what, figure.peer, figure.settings);
        }
        for skipped in &self.skipped {
            let _ = writeln!(text, "NOT MEASURED {}: {}", skipped.bench, skipped.reason);
        }
        let _ = write!(text, "{}\n{}", self.method(), self.machine);
        text
    }

    /// Writes a page for the repository, with its plots.
    pub(super) fn markdown(&self, plots: &[Drawn]) -> String {
        let mut text = format!(
            "# Benchmarks\n\nWritten by `cargo larder-bench --write BENCHMARKS.md`. {} A missed target is \
             marked `short` and fails no test.\n\nMachine: {}.\n\n",
            self.method(),
            self.machine
        );
        let _ = writeln!(text, "| {} |\n|---|---:|---:|---:|---:|---:|", HEADER.join(" | "));
        for figure in &self.figures {
            let _ = writeln!(text, "| {} |", row(figure).join(" | "));
        }
        let short = self.figures.iter().filter(|figure| figure.verdict == Verdict::Short);
        let reasons: Vec<_> = short.filter_map(|figure| Some((figure.name, reason(figure.name)?))).collect();
        if !reasons.is_empty() {
            text.push_str("\nMissed targets and their reasons:\n\n");
        }
        for (name, reason) in reasons {
            let _ = writeln!(text, "- **{name}**: {reason}");
        }
        if !plots.is_empty() {
            text.push_str("\nCosts by size in this run; both axes are logarithmic:\n\n");
        }
        for plot in plots {
            let _ = writeln!(text, "![{}]({})", plot.law, plot.file);
        }
        text.push_str("\nEach figure: operation of Larder / operation of the peer, and the settings:\n\n");
        for figure in &self.figures {
            let _ = writeln!(
                text,
                "- **{}**: {} / {}. `{}`",
                figure.name, figure.what, figure.peer, figure.settings
            );
        }
        if !self.skipped.is_empty() {
            text.push_str("\nNot measured in this run:\n\n");
        }
        for skipped in &self.skipped {
            let _ = writeln!(text, "- **{}**: {}", skipped.bench, skipped.reason);
        }
        text
    }

    fn method(&self) -> String {
        let quick = if self.quick { " This was a quick run; its figures are not reliable." } else { "" };
        format!(
            "Ratios are larder / peer, measured alternately in one run: the median of {} rounds, or of {} \
             for a single caller of a server, with minimum and maximum.{quick}",
            self.rounds,
            usize::from(self.rounds) * MORE
        )
    }
}

fn row(figure: &Figure) -> [String; 6] {
    let Spread { median, min, max } = figure.ratio;
    [
        figure.name.to_owned(),
        amount(figure.larder.median, figure.unit.name()),
        amount(figure.beside.median, figure.unit.name()),
        format!("{median:.2} ({min:.2} to {max:.2})"),
        figure.target.map_or_else(|| "–".to_owned(), |target| target.to_string()),
        figure.verdict.word().to_owned(),
    ]
}

fn amount(value: f64, unit: &str) -> String {
    let digits = if value < 10.0 { 1 } else { 0 };
    format!("{value:.digits$} {unit}")
}
