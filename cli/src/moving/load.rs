//! `larder load`: loads an archive into a backend.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use larder::transfer::{Archive, Source, Watch, copy};
use larder::{Backend, Registry};
use larder_kernel::{Contract, Namespace};

use super::progress::Meter;
use super::{CHANGED, Target, Unsupported, contracts, lines, note_missing, parse_contract, side};
use crate::opening::{self, Access};
use crate::output;
use crate::thread::{parse_namespace, printable};

/// Arguments of `larder load`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Archive; the whole file is validated before the first write.
    file: PathBuf,
    /// URL to write to, such as `sqlite:./larder.db`.
    url: String,
    /// Load only this contract. Can be given several times.
    #[arg(long = "contract", value_name = "NAME", value_parser = parse_contract)]
    contracts: Vec<Contract>,
    /// Namespace to write to; the default is the archive's namespace.
    #[arg(long, value_parser = parse_namespace)]
    namespace: Option<Namespace>,
    #[command(flatten)]
    existing: Target,
}

/// Runs the command.
pub(crate) fn run(registry: &Registry, args: &Args) -> ExitCode {
    output::on_runtime(Box::pin(run_load(registry, args)))
}

async fn run_load(registry: &Registry, args: &Args) -> Result<ExitCode, String> {
    let archive = Archive::open(&args.file).map_err(|error| {
        let name = printable(&args.file.display().to_string());
        format!("cannot load {name}: {error}; nothing was written")
    })?;
    let namespace = args.namespace.clone().unwrap_or_else(|| archive.namespace().clone());
    let place = opening::backend(registry, &args.url, Access::Write).await?;
    let loaded = load_into(args, archive, &namespace, &place).await;
    place.close().await;
    loaded
}

async fn load_into(
    args: &Args,
    archive: Archive,
    namespace: &Namespace,
    place: &Backend,
) -> Result<ExitCode, String> {
    let target = side(place, &args.url, namespace, &args.contracts, Unsupported::IsLeftOut).await?;
    let missing = archive.missing().to_vec();
    let source = Source::from(archive);
    let contracts = contracts(&args.contracts, &source, &target).await?;
    let meter = Meter::new();
    let told = |progress| meter.told(progress);
    let copied = copy(&source, &target, &contracts, args.existing.existing(), &Watch::new(&told)).await;
    let (lines, equal) = lines(&copied.map_err(|error| args.existing.told(&error, "--namespace"))?);
    let text = format!("namespace {}\n{lines}\n{}", printable(namespace.as_str()), meter.finish());
    if !equal {
        output::note(CHANGED);
    }
    let code = note_missing(&missing);
    Ok(output::finish(text, if equal { code } else { ExitCode::from(1) }))
}
