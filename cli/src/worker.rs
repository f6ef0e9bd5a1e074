//! `larder worker`: one client process of the level `concurrent`.
//!
//! The process reads lines of JSON from standard input and writes lines of JSON. The first line is the URL of
//! the backend. For each history, the process receives a script, opens its store, reports that it is ready,
//! and waits for the start signal.

use std::io::{BufRead as _, Lines, StdinLock, Write as _};
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use larder::Registry;
use larder_conformance::concurrent::Script;
use larder_conformance::{Harness, OpenOptions, StoreSet};
use rustix::time::{ClockId, clock_gettime};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::runtime::Runtime;

use crate::{output, url};

/// A message of a worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Said {
    /// The store is open.
    Ready,
    /// The script has run, with this recording.
    Played(String),
    /// The script could not run.
    Failed(String),
}

/// Runs the command until the end of standard input.
pub(crate) fn run(registry: &Registry) -> ExitCode {
    match serve(registry) {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => output::trouble(reason),
    }
}

fn serve(registry: &Registry) -> Result<(), String> {
    let runtime = output::runtime()?;
    let mut lines = std::io::stdin().lock().lines();
    let Some(url) = next::<String>(&mut lines)? else { return Ok(()) };
    // The worker isolates nothing, so it uses no scratch folder.
    let opening = url::named(registry, "worker", &url, Path::new("."));
    let harness = runtime.block_on(opening).map_err(|error| format!("cannot open the backend: {error}"))?;
    while let Some(script) = next::<Script>(&mut lines)? {
        match runtime.block_on(open(&harness, &script)) {
            Ok(stores) => {
                say(&Said::Ready)?;
                if next::<()>(&mut lines)?.is_none() {
                    return Ok(());
                }
                say(&play(&runtime, &script, &stores))?;
            }
            Err(error) => say(&Said::Failed(error.to_string()))?,
        }
    }
    Ok(())
}

async fn open(harness: &Arc<dyn Harness>, script: &Script) -> larder_kernel::Result<StoreSet> {
    let options = OpenOptions::default();
    let stores = harness.open(&script.namespace, &options).await?;
    Ok(stores)
}

fn play(runtime: &Runtime, script: &Script, stores: &StoreSet) -> Said {
    match runtime.block_on(script.play(stores, &now)) {
        Ok(recorded) => Said::Played(recorded),
        Err(error) => Said::Failed(error.to_string()),
    }
}

/// Returns nanoseconds of the clock that all processes of the machine share.
fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, rest) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(rest.unwrap_or(0))
}

fn next<T: DeserializeOwned>(lines: &mut Lines<StdinLock<'_>>) -> Result<Option<T>, String> {
    let Some(line) = lines.next() else { return Ok(None) };
    let line = line.map_err(|error| format!("cannot read the instruction: {error}"))?;
    serde_json::from_str(&line).map(Some).map_err(|error| format!("cannot parse the instruction: {error}"))
}

fn say(said: &Said) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("cannot write the response: {error}");
    let line = serde_json::to_string(said).map_err(|error| format!("cannot write the response: {error}"))?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).map_err(failed)
}
