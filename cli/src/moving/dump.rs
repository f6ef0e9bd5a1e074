//! `larder dump`: writes the whole content of a backend into an archive.

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use larder::transfer::{Digest, Missing, Watch, dump, dump_undamaged};
use larder::{Backend, Registry, StoreSet};
use larder_kernel::{Contract, Namespace};

use super::progress::Meter;
use super::{Unsupported, note_missing, parse_contract, side};
use crate::export::beside;
use crate::opening::{self, Access};
use crate::output;
use crate::thread::{parse_namespace, printable};
use crate::trouble::Trouble;

/// Arguments of `larder dump`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// URL to read from, such as `sqlite:./larder.db`.
    url: String,
    /// Archive to write; `-` is standard output. A file is replaced atomically.
    file: PathBuf,
    /// Write only this contract. Can be given several times.
    #[arg(long = "contract", value_name = "NAME", value_parser = parse_contract)]
    contracts: Vec<Contract>,
    /// Leave out what is damaged, and list it in the archive. The exit code is then 1 if anything is missing.
    #[arg(long)]
    skip_damaged: bool,
    /// Namespace to write.
    #[arg(long, default_value = "default", value_parser = parse_namespace)]
    namespace: Namespace,
}

/// Runs the command.
pub(crate) fn run(registry: &Registry, args: &Args) -> ExitCode {
    output::on_runtime(Box::pin(run_dump(registry, args)))
}

async fn run_dump(registry: &Registry, args: &Args) -> Result<ExitCode, String> {
    let place = opening::backend(registry, &args.url, Access::Read).await?;
    let dumped = dump_from(args, &place).await;
    place.close().await;
    match dumped {
        Ok(code) => Ok(code),
        Err(error) => Err(error.told(registry, &args.url).await),
    }
}

async fn dump_from(args: &Args, place: &Backend) -> Result<ExitCode, Trouble> {
    let side = side(place, &args.url, &args.namespace, &args.contracts, Unsupported::Fails).await?;
    let there = side.contracts();
    if let Some(absent) = args.contracts.iter().find(|contract| !there.contains(contract)) {
        return Err(format!("the source has no store for {absent}; nothing was written").into());
    }
    let wanted = |contract: &Contract| args.contracts.is_empty() || args.contracts.contains(contract);
    let contracts: Vec<Contract> = there.into_iter().filter(wanted).collect();
    let meter = Meter::new();
    let (digests, missing) = if args.file == Path::new("-") {
        write(args, &side, &contracts, &mut std::io::stdout(), &meter).await?
    } else if args.file.exists() && !args.file.is_file() {
        // Writes to a device or a pipe directly; replaces a file.
        let file = std::fs::File::options().write(true).open(&args.file);
        write(args, &side, &contracts, &mut file.map_err(|error| cannot_write(&args.file, &error))?, &meter)
            .await?
    } else {
        to_file(args, &side, &contracts, &meter).await?
    };
    for (contract, Digest { records, sha256, .. }) in digests {
        output::note(format_args!("{:<10} {records} records, sha256 {sha256}", contract.as_str()));
    }
    output::note(meter.finish());
    Ok(note_missing(&missing))
}

/// The result of a dump: the digests, and what is missing in the archive.
type Dumped = (Vec<(Contract, Digest)>, Vec<Missing>);

async fn to_file(
    args: &Args,
    side: &StoreSet,
    contracts: &[Contract],
    meter: &Meter,
) -> Result<Dumped, Trouble> {
    let path = &args.file;
    let cannot = |error: std::io::Error| cannot_write(path, &error);
    let mut file = beside(path).map_err(cannot)?;
    let digests = write(args, side, contracts, file.as_file_mut(), meter).await?;
    file.as_file().sync_all().map_err(cannot)?;
    let folder = file.path().parent().map(Path::to_owned);
    file.persist(path).map_err(|error| cannot_write(path, &error.error))?;
    if let Some(folder) = folder {
        // The file's name is durable only after an fsync of its folder.
        std::fs::File::open(folder).and_then(|folder| folder.sync_all()).map_err(cannot)?;
    }
    Ok(digests)
}

async fn write(
    args: &Args,
    side: &StoreSet,
    contracts: &[Contract],
    to: &mut (dyn Write + Send),
    meter: &Meter,
) -> Result<Dumped, Trouble> {
    let told = |progress| meter.told(progress);
    let mut to = BufWriter::with_capacity(1024 * 1024, to);
    let watch = Watch::new(&told);
    if args.skip_damaged {
        return Ok(dump_undamaged(side, &args.namespace, contracts, &mut to, &watch).await?);
    }
    Ok((dump(side, &args.namespace, contracts, &mut to, &watch).await?, Vec::new()))
}

fn cannot_write(path: &Path, error: &std::io::Error) -> String {
    format!("cannot write {}: {error}", printable(&path.display().to_string()))
}
