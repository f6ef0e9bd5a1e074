//! `larder-bench`: the costs of the stores, each compared with a peer or a physical limit in the same run.
//!
//! A figure is a ratio. Its two sides are measured in turns, one round at a time, so other load on the
//! machine affects both. The figure is the median of the rounds; the minimum and the maximum are printed next
//! to it. A missed target is only reported: the exit code says whether anything was measured.

mod approximate;
mod blobs;
mod claims;
mod compression;
mod conditions;
mod curve;
mod figure;
mod files;
mod frameworks;
mod graph;
mod history;
mod limits;
mod machine;
mod memory;
mod neighbors;
mod payload;
mod peak;
mod pgbench;
mod pgvector;
mod pops;
mod postgres;
mod postgres_blobs;
mod reasons;
mod redis;
mod report;
mod s3;
mod sessions;
mod sqlite;
mod tokens;
mod vectors;
mod window;

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, ValueEnum};
use futures_util::future::LocalBoxFuture;
use tokio::runtime::{Builder, Runtime};

use curve::{Curve, Plot};
use figure::{Figure, Skipped};
use larder_cli::output;
use larder_cli::services::Running;
use machine::Machine;
use report::BenchReport;

/// A measurement, or the reason why it is missing.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The output format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table for people.
    Table,
    /// One JSON document.
    Json,
}

/// Measure Larder's backends, compared with the tools of their services.
#[derive(Debug, Parser)]
#[command(name = "larder-bench", version)]
struct Args {
    /// Only the benchmarks whose name contains this text.
    #[arg(long, value_name = "NAME")]
    only: Option<String>,
    /// Print the benchmarks instead of running them.
    #[arg(long)]
    list: bool,
    /// Number of rounds; the median is the figure.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..=999))]
    rounds: u16,
    /// Smaller data and shorter rounds: a test of the benchmarks, not a measurement.
    #[arg(long)]
    quick: bool,
    /// The output format.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Also write the result as a page of Markdown, and its plots into `guide/src/plots` in the same folder.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
    /// Start no services; measure only the services that a LARDER_*_URL variable names.
    #[arg(long)]
    no_services: bool,
    /// Measure one step's memory in this process; the program starts itself with this option.
    #[arg(long, hide = true, value_name = "STEP")]
    peak_of: Option<peak::Step>,
}

/// The options that every benchmark receives.
struct Plan {
    rounds: usize,
    quick: bool,
    /// A folder that is removed after the run.
    scratch: PathBuf,
    variables: Vec<(String, String)>,
    /// The curves that the benchmarks measured.
    curves: RefCell<Vec<Curve>>,
}

impl Plan {
    /// Keeps a curve for the plots.
    fn draw(&self, plot: Plot, line: impl Into<String>, mut points: Vec<(f64, f64)>) {
        // Zero has no position on a logarithmic axis.
        points.retain(|(size, cost)| *size > 0.0 && *cost > 0.0);
        self.curves.borrow_mut().push(Curve { plot, line: line.into(), points });
    }

    /// The calls or the megabytes of a round.
    fn size(&self, full: u32, quick: u32) -> u32 {
        if self.quick { quick } else { full }
    }

    /// Returns the value of a variable that names a service.
    fn url(&self, variable: &str) -> Outcome<String> {
        let set = |(name, value): &(String, String)| (name == variable).then(|| value.clone());
        let found = std::env::var(variable).ok().filter(|url| !url.is_empty());
        found
            .or_else(|| self.variables.iter().find_map(set))
            .ok_or_else(|| format!("{variable} is not set, and the service did not start").into())
    }
}

/// A benchmark: some figures with the same preparation.
struct Bench {
    name: &'static str,
    /// The variable of the service that it needs.
    service: Option<&'static str>,
    threads: Threads,
    run: for<'p> fn(&'p Plan) -> LocalBoxFuture<'p, Outcome<Vec<Figure>>>,
}

/// The runtime of a benchmark's calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Threads {
    /// The thread that also waits for the replies, as in a call from a server's task.
    One,
    /// One thread per core, for calls with internal concurrency.
    Many,
}

impl Threads {
    fn runtime(self) -> std::io::Result<Runtime> {
        match self {
            Self::One => Builder::new_current_thread().enable_all().build(),
            Self::Many => Builder::new_multi_thread().enable_all().build(),
        }
    }
}

const BENCHES: &[Bench] = &[
    Bench {
        name: "sqlite-history",
        service: None,
        threads: Threads::One,
        run: |plan| Box::pin(sqlite::history(plan)),
    },
    Bench {
        name: "sqlite-long-thread",
        service: None,
        threads: Threads::One,
        run: |plan| Box::pin(sqlite::long_thread(plan)),
    },
    Bench {
        name: "sqlite-compression",
        service: None,
        threads: Threads::One,
        run: |plan| Box::pin(compression::sqlite(plan)),
    },
    Bench {
        name: "sqlite-conditions",
        service: None,
        threads: Threads::One,
        run: |plan| Box::pin(conditions::sqlite(plan)),
    },
    Bench {
        name: "sqlite-pops",
        service: None,
        threads: Threads::One,
        run: |plan| Box::pin(pops::sqlite(plan)),
    },
    Bench {
        name: "sqlite-updates",
        service: None,
        threads: Threads::One,
        run: |plan| Box::pin(pops::sqlite_updates(plan)),
    },
    Bench {
        name: "sqlite-sessions",
        service: Some(postgres::VARIABLE),
        threads: Threads::Many,
        run: |plan| Box::pin(sessions::sqlite(plan)),
    },
    Bench {
        name: "sqlite-claims",
        service: Some(postgres::VARIABLE),
        threads: Threads::Many,
        run: |plan| Box::pin(claims::sqlite(plan)),
    },
    Bench {
        name: "sqlite-neighbors",
        service: None,
        threads: Threads::One,
        run: |plan| Box::pin(neighbors::sqlite(plan)),
    },
    Bench {
        name: "memory-history",
        service: None,
        threads: Threads::One,
        run: |plan| Box::pin(memory::history(plan)),
    },
    Bench {
        name: "memory-graph",
        service: None,
        threads: Threads::One,
        run: |plan| Box::pin(graph::memory(plan)),
    },
    Bench {
        name: "memory-long-thread",
        service: None,
        threads: Threads::One,
        run: |plan| Box::pin(memory_long_thread(plan)),
    },
    Bench {
        name: "window-trim",
        service: None,
        threads: Threads::One,
        run: |plan| Box::pin(window::beside_langchain(plan)),
    },
    Bench {
        name: "window-tokenized",
        service: None,
        threads: Threads::One,
        run: |plan| Box::pin(window::tokenized(plan)),
    },
    Bench {
        name: "tokens",
        service: None,
        threads: Threads::One,
        run: |plan| Box::pin(tokens::beside_tiktoken(plan)),
    },
    Bench {
        name: "vector-scan",
        service: None,
        threads: Threads::One,
        run: |plan| Box::pin(vectors::scan(plan)),
    },
    Bench {
        name: "vector-batch",
        service: None,
        threads: Threads::One,
        run: |plan| Box::pin(vectors::batch(plan)),
    },
    Bench {
        name: "vector-filter",
        service: None,
        threads: Threads::One,
        run: |plan| Box::pin(vectors::filtered(plan)),
    },
    Bench {
        name: "vector-approximate",
        service: None,
        threads: Threads::One,
        run: |plan| Box::pin(approximate::beside_hnsw(plan)),
    },
    Bench {
        name: "file-blobs",
        service: None,
        threads: Threads::Many,
        run: |plan| Box::pin(files::blobs(plan)),
    },
    Bench {
        name: "postgres-history",
        service: Some(postgres::VARIABLE),
        threads: Threads::One,
        run: |plan| Box::pin(postgres::history(plan)),
    },
    Bench {
        name: "postgres-conditions",
        service: Some(postgres::VARIABLE),
        threads: Threads::One,
        run: |plan| Box::pin(conditions::postgres(plan)),
    },
    Bench {
        name: "postgres-sessions",
        service: Some(postgres::VARIABLE),
        threads: Threads::Many,
        run: |plan| Box::pin(sessions::postgres(plan)),
    },
    Bench {
        name: "postgres-claims",
        service: Some(postgres::VARIABLE),
        threads: Threads::Many,
        run: |plan| Box::pin(claims::postgres(plan)),
    },
    Bench {
        name: "postgres-neighbors",
        service: Some(postgres::VARIABLE),
        threads: Threads::One,
        run: |plan| Box::pin(neighbors::postgres(plan)),
    },
    Bench {
        name: "postgres-vectors",
        service: Some(postgres::VARIABLE),
        threads: Threads::One,
        run: |plan| Box::pin(pgvector::filtered(plan)),
    },
    Bench {
        name: "postgres-blobs",
        service: Some(postgres::VARIABLE),
        threads: Threads::Many,
        run: |plan| Box::pin(postgres_blobs::blobs(plan)),
    },
    Bench {
        name: "postgres-long-thread",
        service: Some(postgres::VARIABLE),
        threads: Threads::One,
        run: |plan| Box::pin(postgres::long_thread(plan)),
    },
    Bench {
        name: "redis-history",
        service: Some(redis::VARIABLE),
        threads: Threads::One,
        run: |plan| Box::pin(redis::history(plan)),
    },
    Bench {
        name: "redis-conditions",
        service: Some(redis::VARIABLE),
        threads: Threads::One,
        run: |plan| Box::pin(conditions::redis(plan)),
    },
    Bench {
        name: "redis-long-thread",
        service: Some(redis::VARIABLE),
        threads: Threads::One,
        run: |plan| Box::pin(redis::long_thread(plan)),
    },
    Bench {
        name: "s3-blobs",
        service: Some(s3::VARIABLE),
        threads: Threads::Many,
        run: |plan| Box::pin(s3::blobs(plan)),
    },
    Bench {
        name: "s3-memory",
        service: Some(s3::VARIABLE),
        threads: Threads::Many,
        run: |plan| Box::pin(peak::s3_memory(plan)),
    },
    Bench {
        name: "openai-agents",
        service: None,
        threads: Threads::One,
        run: |plan| Box::pin(frameworks::openai_agents(plan)),
    },
    Bench {
        name: "langgraph",
        service: Some(postgres::VARIABLE),
        threads: Threads::One,
        run: |plan| Box::pin(frameworks::langgraph(plan)),
    },
    Bench {
        name: "agno",
        service: Some(postgres::VARIABLE),
        threads: Threads::One,
        run: |plan| Box::pin(frameworks::agno(plan)),
    },
];

/// A thread of a hundred messages and one of a million, in memory.
async fn memory_long_thread(plan: &Plan) -> Outcome<Vec<Figure>> {
    let mut conversations = history::Conversations::open("memory:").await?;
    let names = history::Names {
        backend: "memory",
        time: "memory-append-long",
        bytes: "memory-append-long-log",
        read: "memory-last-50-long",
        window: "memory-window-long",
        log: "log",
    };
    history::long_thread(plan, &mut conversations, names, "in memory", async || Ok(()), async || Ok(None))
        .await
}

fn main() -> ExitCode {
    let args = Args::parse();
    let wanted = |bench: &&Bench| args.only.as_ref().is_none_or(|text| bench.name.contains(text.as_str()));
    let benches: Vec<&Bench> = BENCHES.iter().filter(wanted).collect();
    if benches.is_empty() {
        return output::trouble("no bench matches; --list names them");
    }
    if args.list {
        let names: Vec<&str> = benches.iter().map(|bench| bench.name).collect();
        return output::finish(names.join("\n"), ExitCode::SUCCESS);
    }
    if cfg!(debug_assertions) {
        return output::trouble("a debug build; its figures say nothing (use `cargo larder-bench`)");
    }
    let measured = match args.peak_of {
        Some(step) => return peak::child(step),
        None => measure(&args, &benches),
    };
    match measured {
        Ok(report) => print(&args, &report),
        Err(error) => output::trouble(error),
    }
}

fn measure(args: &Args, benches: &[&Bench]) -> Outcome<BenchReport> {
    let scratch = tempfile::tempdir()?;
    let running = start(args, benches);
    let plan = Plan {
        rounds: usize::from(args.rounds),
        quick: args.quick,
        scratch: scratch.path().to_path_buf(),
        variables: running.as_ref().map(|running| running.variables.clone()).unwrap_or_default(),
        curves: RefCell::default(),
    };
    let mut machine = Machine::now();
    let (mut figures, mut skipped) = (Vec::new(), Vec::new());
    for bench in benches {
        let begun = Instant::now();
        let runtime = bench.threads.runtime()?;
        let measured = runtime.block_on((bench.run)(&plan));
        // A backend that blocks a thread must not keep the command from ending.
        runtime.shutdown_background();
        match measured {
            Ok(found) => figures.extend(found),
            Err(error) => skipped.push(Skipped { bench: bench.name.to_owned(), reason: error.to_string() }),
        }
        output::note(format_args!("{}: {} s", bench.name, begun.elapsed().as_secs()));
    }
    machine.end();
    if let Some(Err(reason)) = running.map(|running| running.stop()) {
        output::trouble(reason);
    }
    let curves = plan.curves.take();
    Ok(BenchReport { machine, rounds: args.rounds, quick: args.quick, figures, curves, skipped })
}

/// Starts the services, unless the variables of all required services are set.
fn start(args: &Args, benches: &[&Bench]) -> Option<Running> {
    let set = |variable| std::env::var_os(variable).is_some_and(|url| !url.is_empty());
    if args.no_services || benches.iter().filter_map(|bench| bench.service).all(set) {
        return None;
    }
    // Without services, the embedded backends still have figures. The other benchmarks report the reason why
    // theirs are missing.
    Running::start().map_err(output::trouble).ok()
}

fn print(args: &Args, report: &BenchReport) -> ExitCode {
    if let Some(path) = &args.write {
        let written = curve::draw(path, &report.curves)
            .and_then(|plots| Ok(std::fs::write(path, report.markdown(&plots))?));
        if let Err(error) = written {
            return output::trouble(format_args!("cannot write {}: {error}", path.display()));
        }
    }
    let code = if report.figures.is_empty() { ExitCode::from(2) } else { ExitCode::SUCCESS };
    match args.format {
        Format::Table => output::finish(report.table(), code),
        Format::Json => match serde_json::to_string_pretty(report) {
            Ok(json) => output::finish(json, code),
            Err(error) => output::trouble(error),
        },
    }
}
