//! `larder writer`: the process that the level `durable` kills.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use larder::Registry;
use larder_conformance::OpenOptions;
use larder_kernel::{Namespace, Result};

use crate::{durable, output, url};

/// Arguments of `larder writer`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// URL to write to.
    url: String,
    /// Prefix of the written names.
    #[arg(long)]
    era: String,
    /// Random seed.
    #[arg(long)]
    seed: u64,
}

/// Runs the command. It ends only if a write fails.
pub(crate) fn run(registry: &Registry, args: &Args) -> ExitCode {
    let runtime = match output::runtime() {
        Ok(runtime) => runtime,
        Err(reason) => return output::trouble(reason),
    };
    match runtime.block_on(write(registry, args)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => output::trouble(error),
    }
}

async fn write(registry: &Registry, args: &Args) -> Result<()> {
    let harness = url::named(registry, "writer", &args.url, Path::new(".")).await?;
    let stores = harness.open(&Namespace::new(durable::NAMESPACE)?, &OpenOptions::default()).await?;
    // A single write call, so that a kill can truncate only the last line.
    let say = |line: String| {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush());
    };
    durable::write(&stores, &args.era, args.seed, &say).await;
    Ok(())
}
