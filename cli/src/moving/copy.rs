//! `larder copy`: copies everything from one backend to another.

use std::process::ExitCode;

use clap::Parser;
use larder::transfer::{Source, Watch, copy};
use larder::{Backend, Registry};
use larder_kernel::{Contract, Namespace};

use super::progress::Meter;
use super::{CHANGED, Target, Unsupported, contracts, lines, parse_contract, side};
use crate::opening::{self, Access};
use crate::output;
use crate::thread::{parse_namespace, printable};

/// Arguments of `larder copy`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// URL to copy from, such as `sqlite:./larder.db`.
    source: String,
    /// URL to copy to.
    target: String,
    /// Copy only this contract. Can be given several times.
    #[arg(long = "contract", value_name = "NAME", value_parser = parse_contract)]
    contracts: Vec<Contract>,
    /// Namespace to copy. Can be given several times.
    #[arg(
        long = "namespace",
        value_name = "NAMESPACE",
        default_value = "default",
        value_parser = parse_namespace,
    )]
    namespaces: Vec<Namespace>,
    /// Namespace in the target, if it is another one.
    #[arg(long, value_name = "NAMESPACE", value_parser = parse_namespace)]
    to_namespace: Option<Namespace>,
    #[command(flatten)]
    existing: Target,
}

/// Runs the command.
pub(crate) fn run(registry: &Registry, args: &Args) -> ExitCode {
    output::on_runtime(Box::pin(run_copy(registry, args)))
}

async fn run_copy(registry: &Registry, args: &Args) -> Result<ExitCode, String> {
    if args.to_namespace.is_some() && args.namespaces.len() > 1 {
        return Err("--to-namespace takes one --namespace".to_owned());
    }
    let from = opening::backend(registry, &args.source, Access::Read).await?;
    let to = opening::backend(registry, &args.target, Access::Write).await?;
    let copied = copy_between(args, &from, &to).await;
    from.close().await;
    to.close().await;
    copied
}

async fn copy_between(args: &Args, from: &Backend, to: &Backend) -> Result<ExitCode, String> {
    let mut moves = Vec::new();
    for namespace in &args.namespaces {
        let source =
            Source::from(side(from, &args.source, namespace, &args.contracts, Unsupported::Fails).await?);
        let into = args.to_namespace.as_ref().unwrap_or(namespace);
        let target = side(to, &args.target, into, &args.contracts, Unsupported::IsLeftOut).await?;
        let contracts = contracts(&args.contracts, &source, &target).await?;
        moves.push((namespace, source, target, contracts));
    }
    let meter = Meter::new();
    let told = |progress| meter.told(progress);
    let (mut text, mut all_equal) = (Vec::new(), true);
    for (namespace, source, target, contracts) in moves {
        let copied = copy(&source, &target, &contracts, args.existing.existing(), &Watch::new(&told)).await;
        let copied = copied.map_err(|error| {
            let told = args.existing.told(&error, "--to-namespace");
            format!("namespace {}: {told}", printable(namespace.as_str()))
        })?;
        let (lines, equal) = lines(&copied);
        all_equal &= equal;
        text.push(format!("namespace {}\n{lines}", printable(namespace.as_str())));
    }
    text.push(meter.finish());
    if !all_equal {
        output::note(CHANGED);
    }
    Ok(output::finish(text.join("\n"), ExitCode::from(u8::from(!all_equal))))
}
