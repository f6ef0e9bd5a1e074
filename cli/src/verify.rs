//! `larder verify`: reads everything in a backend and names what is damaged.

use std::process::ExitCode;

use clap::Parser;
use larder::verify::{Fault, Repaired, Verified};
use larder::{Registry, redact_url};
use serde::Serialize;

use crate::opening::cannot_open;
use crate::output;
use crate::thread::printable;

/// Arguments of `larder verify`.
///
/// The exit code is 0 if nothing is damaged, 1 if a fault was found, and 2 if the backend cannot be read or
/// has no verification.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// URL of the backend, such as `sqlite:./larder.db`.
    url: String,
    /// Print one JSON document.
    #[arg(long)]
    json: bool,
    /// Repair what follows from other data, such as counters and indexes. The command copies the data first,
    /// removes nothing, and refuses a backend that another process has open.
    #[arg(long)]
    repair: bool,
    /// Draw a new generation for every thread, bucket and board instead. Use it after a restore, before the
    /// programs start: positions from before the restore are then refused.
    #[arg(long, conflicts_with = "repair")]
    new_generation: bool,
}

/// The result of the command.
#[derive(Debug, Serialize)]
struct Report {
    url: String,
    #[serde(flatten)]
    verified: Verified,
    #[serde(skip_serializing_if = "Option::is_none")]
    repaired: Option<Repaired>,
}

/// Runs the command.
pub(crate) fn run(registry: &Registry, args: &Args) -> ExitCode {
    output::on_runtime(Box::pin(verify(registry, args)))
}

async fn verify(registry: &Registry, args: &Args) -> Result<ExitCode, String> {
    let failed = |error| cannot_open(&args.url, &error);
    if args.new_generation {
        let generations = registry.renew_generations(&args.url).await.map_err(failed)?;
        let url = redact_url(&args.url);
        let text = if args.json {
            serde_json::json!({ "url": url, "new_generations": generations }).to_string()
        } else {
            format!("{}\n  new generations drawn: {generations}", printable(&url))
        };
        return Ok(output::finish(text, ExitCode::SUCCESS));
    }
    let mut verified = registry.verify(&args.url).await.map_err(failed)?;
    let mut repaired = None;
    if args.repair && verified.faults.iter().any(|fault| fault.repair.is_some()) {
        repaired = Some(registry.repair(&args.url).await.map_err(failed)?);
        verified = registry.verify(&args.url).await.map_err(failed)?;
    }
    let code = ExitCode::from(u8::from(!verified.faults.is_empty()));
    let report = Report { url: redact_url(&args.url), verified, repaired };
    let text = if args.json {
        serde_json::to_string_pretty(&report).map_err(|error| format!("cannot write the result: {error}"))?
    } else {
        show(&report)
    };
    Ok(output::finish(text, code))
}

fn show(report: &Report) -> String {
    let Report { url, verified, repaired } = report;
    let mut text = format!("{}\n", printable(url));
    if let Some(Repaired { copy, .. }) = repaired {
        let copy = printable(&copy.display().to_string());
        text.push_str(&format!("  repaired; the copy from before is {copy}\n"));
    }
    for fault in &verified.faults {
        text.push_str(&line(fault));
    }
    let repairable = verified.faults.iter().filter(|fault| fault.repair.is_some()).count();
    let faults = verified.faults.len();
    if verified.faults_not_listed > 0 {
        text.push_str(&format!("  {} more faults\n", verified.faults_not_listed));
    }
    let advice = if repairable > 0 { format!(" (--repair removes {repairable})") } else { String::new() };
    text.push_str(&format!("  {} records read, {faults} faults{advice}", verified.records));
    text
}

/// Returns one line for a fault: its kind, the place, and the observation.
pub(crate) fn line(fault: &Fault) -> String {
    let (place, seen) = (printable(&fault.place), printable(&fault.seen));
    format!("  {:<9}  {place}: {seen}\n", fault.kind.as_str())
}
