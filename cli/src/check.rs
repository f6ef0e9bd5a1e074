//! `larder check`: runs the conformance suite against backends.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use larder::Registry;
use larder::driver::Sharing;
use larder_conformance::report::waiver::{Date, Waivers};
use larder_conformance::runner::{self, Probed};
use larder_conformance::{Case, CaseOutcome, Effort, Harness, Level, Report, RunOptions, Stopwatch, suites};

use crate::layered::Around;
use crate::levels::{self, Word};
use crate::live::{self, Backends};
use crate::service::SERVICES;
use crate::services::{self, Running};
use crate::{output, url};

/// The output format.
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
    /// Backends, such as `memory:`, `sqlite:./larder.db` or `mine=file:./blobs`; the default is all embedded
    /// backends.
    #[arg(value_name = "[NAME=]URL")]
    urls: Vec<String>,
    /// Check the live services as well. The command starts missing services and stops them afterwards. If
    /// `CI` is set, all services are required.
    #[arg(long)]
    live: bool,
    /// Check each layer over each backend, and all layers together, instead of the backends. To check one
    /// layer, put its name before the URL: `retry+sqlite:./larder.db`, or `stack+memory:` for all layers.
    #[arg(long, conflicts_with = "live")]
    layers: bool,
    /// Exit with 2 if this backend, or a backend with this scheme, is missing. Can be given several times.
    #[arg(long, value_name = "NAME-OR-SCHEME")]
    require: Vec<String>,
    /// Output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Also write report.json, junit.xml, report.html and a badge for each backend into this folder.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
    /// Read known failures, each with a reason and an expiry date, from a TOML file. The default in Larder's
    /// repository is conformance/waivers.toml.
    #[arg(long, value_name = "FILE")]
    waivers: Option<PathBuf>,
    /// Run only cases whose name or clause contains this text.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Levels to run: `contract` and `hostile` run the cases, the other levels go beyond them.
    #[arg(
        long,
        value_enum,
        value_delimiter = ',',
        default_values = ["contract", "hostile"],
        value_name = "LEVEL",
    )]
    level: Vec<Word>,
    /// Run the levels beyond the cases for at least ten times as long.
    #[arg(long)]
    long: bool,
    /// Run this fraction of their work, in thousandths; a reduced run proves nothing.
    #[arg(
        long,
        hide = true,
        default_value_t = 1_000,
        value_parser = clap::value_parser!(u32).range(1..=1_000),
    )]
    per_mille: u32,
    /// List the cases instead of running them.
    #[arg(long)]
    list: bool,
    /// Random seed; the report contains it.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of concurrent cases.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    jobs: Option<u16>,
    /// Time limit of a case, in seconds.
    #[arg(
        long,
        default_value_t = 60,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u64).range(1..),
    )]
    timeout: u64,
}

/// Runs the command.
pub(crate) fn run(registry: &Registry, args: &Args) -> ExitCode {
    let cases = selected(args);
    let beyond = [Level::Model, Level::Concurrent, Level::Durable, Level::Faults];
    if cases.is_empty() && !beyond.into_iter().any(|level| levels::asked(&args.level, level)) {
        return output::trouble("no case matches the filter; list the cases with `--list`");
    }
    if args.list {
        let line = |case: &Case| format!("{}  {}  {}", case.clause, case.level.as_str(), case.name);
        return output::finish(cases.iter().map(line).collect::<Vec<_>>().join("\n"), ExitCode::SUCCESS);
    }
    let waivers = match waivers(args) {
        Ok(waivers) => waivers,
        Err(reason) => return output::trouble(reason),
    };
    if args.live && !cfg!(feature = "full") {
        return output::trouble(
            "this build has only the embedded backends; run `cargo larder-full check --live`",
        );
    }
    output::on_runtime(supervised(registry, args, &cases, &waivers))
}

/// Runs the check, and then stops the services that were started for it, even if the check fails.
async fn supervised(
    registry: &Registry,
    args: &Args,
    cases: &[Case],
    waivers: &Waivers,
) -> Result<ExitCode, String> {
    if !args.live {
        return check(registry, args, cases, waivers, None).await;
    }
    services::beside(async |running| check(registry, args, cases, waivers, Some(running?)).await).await
}

fn selected(args: &Args) -> Vec<Case> {
    let named = |case: &Case| {
        args.filter.as_ref().is_none_or(|text| case.name.contains(text) || case.clause.contains(text))
    };
    let wanted = |case: &Case| levels::asked(&args.level, case.level) && named(case);
    suites::all().into_iter().filter(wanted).collect()
}

/// Returns the waivers of the given file, or of the repository in which the command runs.
fn waivers(args: &Args) -> Result<Waivers, String> {
    let of_tree = || {
        let here = std::env::current_dir().ok()?;
        here.ancestors().map(|folder| folder.join("conformance/waivers.toml")).find(|path| path.is_file())
    };
    match args.waivers.clone().or_else(of_tree) {
        Some(path) => Waivers::read(&path).map_err(|error| error.to_string()),
        None => Ok(Waivers::default()),
    }
}

async fn check(
    registry: &Registry,
    args: &Args,
    cases: &[Case],
    waivers: &Waivers,
    running: Option<&Running>,
) -> Result<ExitCode, String> {
    let begun = Instant::now();
    let scratch =
        tempfile::tempdir().map_err(|error| format!("cannot create a temporary folder: {error}"))?;
    let options = options(args);
    let layered = args.layers.then(|| url::behind_layers(registry, &args.urls, scratch.path()));
    let urls = layered.as_ref().unwrap_or(&args.urls);
    let mut backends = Backends::open(registry, urls, scratch.path(), running, options.timeout).await?;
    let required = required(args);
    backends.require(&required)?;
    let bar = progress_bar(&backends, cases);
    let mut report = Report::new(options.seed);
    report.absent = backends.absent;
    report.jobs = options.jobs;
    for (harness, probed) in &backends.opened {
        bar.set_prefix(harness.name().to_owned());
        let watch = Stopwatch::default();
        let found = run_one(&watch.watch(Arc::clone(harness)), probed, cases, &options, &bar).await;
        report.latencies.extend(watch.latencies(harness.name()));
        report.again.insert(harness.name().to_owned(), again(registry, args, harness.name(), &harness.url()));
        report.add(probed.backend.clone(), found);
    }
    report.levels = levels::run_all(registry, &args.level, &backends.opened, &effort(args)).await?;
    for (harness, _) in &backends.opened {
        let destroyed = runner::within(options.timeout, "check.destroy", harness.destroy()).await;
        destroyed.map_err(|error| format!("cannot clean up {}: {error}", harness.url()))?;
    }
    bar.finish_and_clear();
    live::note_idle(&mut report, &required);
    report.waive(waivers, Date::today());
    report.finish(begun.elapsed());
    if let Some(folder) = &args.report {
        write(&report, folder)?;
    }
    let text = match args.format {
        Format::Table => output::table(&report),
        Format::Json => {
            serde_json::to_string_pretty(&report).map_err(|error| format!("cannot write JSON: {error}"))?
        }
    };
    Ok(output::finish(text, ExitCode::from(report.exit_code())))
}

fn write(report: &Report, folder: &Path) -> Result<(), String> {
    let written = report.write(folder)?;
    let page = written.iter().find(|path| path.extension().is_some_and(|end| end == "html"));
    output::note(format_args!("the report is in {}", page.unwrap_or(&folder.to_owned()).display()));
    Ok(())
}

/// Returns the required backends, without which the run fails: in CI, every live service of the check.
fn required(args: &Args) -> Vec<String> {
    let mut required = args.require.clone();
    if args.live && std::env::var_os("CI").is_some() {
        required.extend(SERVICES.iter().map(|service| service.name.to_owned()));
    }
    required
}

/// Returns the command that checks a backend again. The temporary embedded backends no longer exist by then,
/// and the addresses of services may change.
fn again(registry: &Registry, args: &Args, name: &str, url: &str) -> String {
    let long = if args.long { " --long" } else { "" };
    let long = if args.layers { format!(" --layers{long}") } else { long.to_owned() };
    let behind = Around::split(url).map_or(url, |(_, behind)| behind);
    let server = registry.driver(behind).is_ok_and(|driver| driver.sharing() == Sharing::Network);
    let command = output::invocation(args.live || server);
    if args.live {
        return format!("{command} check --live{long}");
    }
    if args.urls.is_empty() {
        return format!("{command} check{long}");
    }
    let scheme = url.split(':').next().unwrap_or_default();
    let word = if name == scheme { url.to_owned() } else { format!("{name}={url}") };
    format!("{command} check {}{long}", output::shell_word(&word))
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

fn effort(args: &Args) -> Effort {
    Effort {
        seed: args.seed,
        long: args.long,
        timeout: Duration::from_secs(args.timeout),
        per_mille: args.per_mille,
    }
}

fn options(args: &Args) -> RunOptions {
    let mut options =
        RunOptions { seed: args.seed, timeout: Duration::from_secs(args.timeout), ..RunOptions::default() };
    if let Some(jobs) = args.jobs {
        options.jobs = usize::from(jobs);
    }
    options
}

/// Returns a progress bar on standard error, which is hidden unless that is a terminal.
fn progress_bar(backends: &Backends, cases: &[Case]) -> ProgressBar {
    let count = |probed: &Probed| cases.iter().filter(|case| probed.serves(case)).count();
    let total: usize = backends.opened.iter().map(|(_, probed)| count(probed)).sum();
    let bar = ProgressBar::new(u64::try_from(total).unwrap_or(u64::MAX));
    if let Ok(style) = ProgressStyle::with_template("{prefix:>13} [{wide_bar}] {pos}/{len} {elapsed}") {
        bar.set_style(style);
    }
    bar
}
