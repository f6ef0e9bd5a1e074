//! `larder doctor`: diagnoses backends without changing them.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use larder::diagnose::{Check, CheckStatus, Diagnosis};
use larder::{Registry, redact_url};
use serde::Serialize;

use crate::live::sentence;
use crate::output;
use crate::thread::printable;

/// Arguments of `larder doctor`.
///
/// The exit code is 0 if nothing failed, 1 with --strict if a check gave a warning, and 2 if a check failed
/// or a URL is invalid.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// URLs of backends, such as `sqlite:./larder.db` or `postgres://user:password@host/db`.
    #[arg(required = true)]
    urls: Vec<String>,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Exit with 1 if a check gives a warning.
    #[arg(long)]
    strict: bool,
    /// Time limit per backend, in seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=3600),
    )]
    timeout: u64,
}

/// The diagnoses of all backends.
#[derive(Debug, Serialize)]
struct Findings {
    status: CheckStatus,
    places: Vec<Place>,
}

/// The diagnosis of one backend.
#[derive(Debug, Serialize)]
struct Place {
    url: String,
    status: CheckStatus,
    #[serde(flatten)]
    diagnosis: Diagnosis,
}

/// Runs the command.
pub(crate) fn run(registry: &Registry, args: &Args) -> ExitCode {
    output::on_runtime(Box::pin(look(registry, args)))
}

async fn look(registry: &Registry, args: &Args) -> Result<ExitCode, String> {
    let mut places = Vec::new();
    for url in &args.urls {
        let shown = redact_url(url);
        let diagnosis = registry.diagnose(url, Duration::from_secs(args.timeout)).await;
        let diagnosis = diagnosis.map_err(|error| format!("{shown}: {}", sentence(&error)))?;
        places.push(Place { url: shown, status: diagnosis.status(), diagnosis });
    }
    let status = places.iter().map(|place| place.status).max().unwrap_or(CheckStatus::Fail);
    let found = Findings { status, places };
    let text = if args.json {
        serde_json::to_string_pretty(&found)
            .map_err(|error| format!("cannot write the diagnosis: {error}"))?
    } else {
        found.places.iter().map(show).collect::<Vec<_>>().join("\n\n")
    };
    Ok(output::finish(text, code(status, args.strict)))
}

fn code(status: CheckStatus, strict: bool) -> ExitCode {
    ExitCode::from(match status {
        CheckStatus::Ok => 0,
        CheckStatus::Warn => u8::from(strict),
        // An unknown status of a later version counts as a failure.
        _ => 2,
    })
}

/// Formats one line per check, followed by the reason and the advice for each check that is not `ok`.
fn show(place: &Place) -> String {
    let Place { url, diagnosis, .. } = place;
    let mut text = format!("{}\n", printable(url));
    for Check { name, status, seen, why, advice, .. } in &diagnosis.checks {
        text.push_str(&format!("  {:<4}  {name:<18}  {}\n", status.as_str(), printable(seen)));
        if *status != CheckStatus::Ok {
            text.push_str(&format!("        why  {why}\n"));
            let advice = advice.as_deref().unwrap_or("check the server's log");
            text.push_str(&format!("        do   {}\n", printable(advice)));
        }
    }
    let of = |wanted: CheckStatus| diagnosis.checks.iter().filter(|check| check.status == wanted).count();
    let (ok, warn, fail) = (of(CheckStatus::Ok), of(CheckStatus::Warn), of(CheckStatus::Fail));
    text.push_str(&format!("  {ok} ok, {warn} warnings, {fail} failed, in {} ms", diagnosis.elapsed_ms));
    text
}
