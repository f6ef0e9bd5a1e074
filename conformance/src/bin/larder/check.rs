//! `larder check`: the suite against backends.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use larder_conformance::runner::{self, Probed};
use larder_conformance::{Case, CaseOutcome, Harness, Report, RunOptions, suites, url};

use crate::output;

/// How to print the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people.
    Table,
    /// One JSON document.
    Json,
}

/// Arguments of `larder check`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Backends, such as `memory:`, `sqlite:./larder.db` or `file:./blobs`. None means all embedded ones.
    urls: Vec<String>,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Run only cases whose name or clause contains this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Print the cases instead of running them.
    #[arg(long)]
    list: bool,
    /// Where the cases' chance comes from; the report names it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many cases at once.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// How long a case may take, in seconds.
    #[arg(long, default_value_t = 60, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: u64,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> ExitCode {
    let cases = selected(args.filter.as_deref());
    if cases.is_empty() {
        return output::trouble("no case matches the filter");
    }
    if args.list {
        let line = |case: &Case| format!("{}  {}  {}", case.clause, case.level.as_str(), case.name);
        return output::finish(cases.iter().map(line).collect::<Vec<_>>().join("\n"), ExitCode::SUCCESS);
    }
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return output::trouble(format_args!("cannot make a runtime: {error}")),
    };
    let checked = runtime.block_on(check(args, &cases));
    // A backend that holds on to a thread must not keep the command from ending.
    runtime.shutdown_background();
    match checked {
        Ok(code) => code,
        Err(reason) => output::trouble(reason),
    }
}

fn selected(filter: Option<&str>) -> Vec<Case> {
    let wanted =
        |case: &Case| filter.is_none_or(|text| case.name.contains(text) || case.clause.contains(text));
    suites::all().into_iter().filter(wanted).collect()
}

async fn check(args: &Args, cases: &[Case]) -> Result<ExitCode, String> {
    let begun = Instant::now();
    let scratch = tempfile::tempdir().map_err(|error| format!("cannot make a temporary folder: {error}"))?;
    let harnesses = url::harnesses(&args.urls, scratch.path()).await.map_err(|error| error.to_string())?;
    let mut probed = Vec::new();
    for harness in &harnesses {
        let cannot = |error| format!("cannot open {}: {error}", harness.url());
        probed.push(runner::probe(&**harness).await.map_err(cannot)?);
    }
    let options = options(args);
    let bar = progress_bar(&probed, cases);
    let mut report = Report::new(options.seed);
    for (harness, probed) in harnesses.iter().zip(probed) {
        bar.set_prefix(harness.name().to_owned());
        let found = run_one(harness, &probed, cases, &options, &bar).await;
        harness.destroy().await.map_err(|error| format!("cannot clean up {}: {error}", harness.url()))?;
        report.add(probed.backend, found);
    }
    bar.finish_and_clear();
    let text = match args.format {
        Format::Table => output::table(&report, begun.elapsed(), !args.urls.is_empty()),
        Format::Json => {
            serde_json::to_string_pretty(&report).map_err(|error| format!("cannot write JSON: {error}"))?
        }
    };
    Ok(output::finish(text, ExitCode::from(report.summary.exit_code())))
}

async fn run_one(
    harness: &Arc<dyn Harness>,
    probed: &Probed,
    cases: &[Case],
    options: &RunOptions,
    bar: &ProgressBar,
) -> Vec<larder_conformance::CaseReport> {
    runner::run(harness, probed, cases, options, &|case| {
        if case.outcome == CaseOutcome::Failed {
            bar.println(format!("FAILED {} {} on {}", case.clause, case.case, case.backend));
        }
        bar.inc(1);
    })
    .await
}

fn options(args: &Args) -> RunOptions {
    let mut options =
        RunOptions { seed: args.seed, timeout: Duration::from_secs(args.timeout), ..RunOptions::default() };
    if let Some(jobs) = args.jobs {
        options.jobs = usize::from(jobs);
    }
    options
}

/// A bar on standard error; nothing is drawn where that is no terminal.
fn progress_bar(probed: &[Probed], cases: &[Case]) -> ProgressBar {
    let count = |probed: &Probed| cases.iter().filter(|case| probed.serves(case)).count();
    let total: usize = probed.iter().map(count).sum();
    let bar = ProgressBar::new(u64::try_from(total).unwrap_or(u64::MAX));
    if let Ok(style) = ProgressStyle::with_template("{prefix:>8} [{wide_bar}] {pos}/{len} {elapsed}") {
        bar.set_style(style);
    }
    bar
}
