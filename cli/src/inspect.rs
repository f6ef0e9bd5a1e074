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
use larder_kernel::{Error, Namespace};

use crate::live::sentence;
use crate::output;
use crate::thread::parse_namespace;

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
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let survey = survey::take(&stores, limit).await.map_err(|error| error.to_string())?;
    if args.browse {
        return browse(args, stores, survey).await;
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
    let url = without_migration(registry, &args.url).map_err(failed)?;
    let backend = registry.backend(&url).await.map_err(failed)?;
    let stores = backend.stores(&args.namespace).await;
    match stores.errors().first() {
        Some((_, error)) => Err(cannot(sentence(error))),
        None => Ok(stores),
    }
}

/// Returns the URL with automatic migration disabled, unless it already has a `migrate` parameter.
fn without_migration(registry: &Registry, url: &str) -> Result<String, Error> {
    if !registry.driver(url)?.parameters().contains(&"migrate") {
        return Ok(url.to_owned());
    }
    Ok(match url.split_once('?') {
        Some((_, query)) if query.split('&').any(|pair| pair.starts_with("migrate=")) => url.to_owned(),
        Some(_) => format!("{url}&migrate=check"),
        None => format!("{url}?migrate=check"),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagnosis_does_not_upgrade_the_database() {
        for (url, opened) in [
            ("postgres://h/d", "postgres://h/d?migrate=check"),
            ("AGE://h/d?pool_size=2", "AGE://h/d?pool_size=2&migrate=check"),
            ("postgres://h/d?migrate=auto", "postgres://h/d?migrate=auto"),
            ("sqlite:./a.db", "sqlite:./a.db"),
        ] {
            let registry = Registry::default();
            // Without its driver, the URL has no parameters.
            if registry.driver(url).is_ok() {
                assert_eq!(without_migration(&registry, url).unwrap(), opened);
            }
        }
    }
}
