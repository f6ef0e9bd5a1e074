//! `larder inspect`: shows the contents of a namespace as a table, as JSON, or interactively.

#[cfg(feature = "browse")]
mod browse;
#[cfg(feature = "browse")]
mod detail;
mod show;
mod survey;

use std::process::ExitCode;

use clap::Parser;
use larder::{Registry, Stores, redact_url};
use larder_kernel::{ErrorKind, Namespace};

pub(crate) use self::survey::first;
use crate::live::sentence;
use crate::opening::{self, Access};
use crate::output;
use crate::thread::parse_namespace;
use crate::trouble::Trouble;

/// Arguments of `larder inspect`.
///
/// The command only reads. It refuses a file that opening would create or upgrade, and a Postgres schema of
/// another version.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// URL of the backend, such as `sqlite:./larder.db`.
    url: String,
    /// Namespace.
    #[arg(long, default_value = "default", value_parser = parse_namespace)]
    namespace: Namespace,
    /// Maximum number of items to list or count of each kind; the output shows if more exist.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1_000,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000),
    )]
    limit: u64,
    /// Print one JSON document.
    #[arg(long, conflicts_with = "browse")]
    json: bool,
    /// Browse interactively in the terminal with arrow keys, Enter, Escape and `q`.
    #[arg(long)]
    browse: bool,
}

/// Runs the command.
pub(crate) fn run(registry: &Registry, args: &Args) -> ExitCode {
    output::on_runtime(Box::pin(inspect(registry, args)))
}

async fn inspect(registry: &Registry, args: &Args) -> Result<ExitCode, String> {
    let stores = open(registry, args).await?;
    let shown = look(args, &stores).await;
    stores.close().await;
    match shown {
        Ok(code) => Ok(code),
        Err(error) => Err(error.told(registry, &args.url).await),
    }
}

async fn look(args: &Args, stores: &Stores) -> Result<ExitCode, Trouble> {
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let survey = survey::take(stores, limit).await?;
    if args.browse {
        return Ok(browse(args, stores.clone(), survey).await?);
    }
    let text = if args.json {
        serde_json::to_string_pretty(&survey).map_err(|error| format!("cannot write the survey: {error}"))?
    } else {
        show::table(&redact_url(&args.url), &survey)
    };
    Ok(output::finish(text, ExitCode::SUCCESS))
}

/// Opens the backend for reading, and refuses a backend that opening would create or upgrade.
async fn open(registry: &Registry, args: &Args) -> Result<Stores, String> {
    let cannot = |reason: String| format!("cannot open {}: {reason}", redact_url(&args.url));
    let failed = |error| cannot(sentence(&error));
    if let Some(change) = registry.opening_changes(&args.url).map_err(failed)? {
        return Err(cannot(format!("{change}; inspect only reads")));
    }
    let backend = opening::backend(registry, &args.url, Access::Read).await?;
    let stores = backend.stores(&args.namespace).await;
    for (contract, error) in stores.errors() {
        // Opening it for writing may create it, as the vectors of Postgres. The others can be shown.
        if error.kind() != ErrorKind::Unsupported || stores.contracts().is_empty() {
            return Err(cannot(sentence(error)));
        }
        output::note(format_args!("{contract} is not shown: {}", sentence(error)));
    }
    Ok(stores)
}

#[cfg(feature = "browse")]
async fn browse(args: &Args, stores: Stores, survey: survey::Survey) -> Result<ExitCode, String> {
    use std::io::IsTerminal as _;
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err("--browse needs a terminal; without the option, the same contents are printed".to_owned());
    }
    browse::run(redact_url(&args.url), stores, survey).await.map(|()| ExitCode::SUCCESS)
}

#[cfg(not(feature = "browse"))]
#[allow(clippy::unused_async)]
async fn browse(_: &Args, _: Stores, _: survey::Survey) -> Result<ExitCode, String> {
    Err("this build cannot browse; `cargo larder-full` can".to_owned())
}
