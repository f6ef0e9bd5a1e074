//! Moving data: `larder copy`, `dump`, `load` and `erase`.

pub(crate) mod copy;
pub(crate) mod dump;
pub(crate) mod erase;
pub(crate) mod load;
mod progress;

use std::process::ExitCode;

use clap::Args;
use larder::driver::StoresRequest;
use larder::transfer::{Copied, Difference, Existing, Missing, Source, left_out};
use larder::{Backend, StoreSet};
use larder_kernel::{Contract, Error, ErrorKind, Namespace};

use crate::opening::cannot_open;
use crate::output;
use crate::thread::printable;

/// The treatment of a target that is not empty.
#[derive(Debug, Args)]
struct Target {
    /// Keep data that only the target has; refuse data that differs.
    #[arg(long)]
    into_existing: bool,
    /// Keep data that only the target has; overwrite data that differs.
    #[arg(long)]
    overwrite: bool,
}

impl Target {
    fn existing(&self) -> Existing {
        match (self.overwrite, self.into_existing) {
            (true, _) => Existing::Overwrite,
            (false, true) => Existing::Keep,
            (false, false) => Existing::Refuse,
        }
    }

    /// Formats an error, with advice if a target was refused. `namespace` is the option for another
    /// namespace.
    fn told(&self, error: &Error, namespace: &str) -> String {
        match (error.kind(), self.existing()) {
            (ErrorKind::AlreadyExists, Existing::Refuse) => format!(
                "{error} ({namespace} selects an empty namespace, --into-existing keeps data that only the \
                 target has, and --overwrite also replaces data that differs)"
            ),
            _ => error.to_string(),
        }
    }
}

pub(crate) fn parse_contract(text: &str) -> Result<Contract, String> {
    let name = text.replace('-', "_");
    let found = Contract::ALL.iter().copied().find(|contract| contract.as_str() == name);
    found.ok_or_else(|| {
        let names: Vec<_> = Contract::ALL.iter().map(|contract| contract.as_str()).collect();
        format!("unknown contract; the contracts are {}", names.join(", "))
    })
}

/// The treatment of a contract that was not requested and that the backend cannot store, such as vectors on a
/// server without pgvector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unsupported {
    /// It is an error, so that the operation is complete.
    Fails,
    /// It is named and left out. [`contracts`] fails if the source has data of it.
    IsLeftOut,
}

/// Opens the stores of a namespace: those of the requested contracts, or all.
async fn side(
    place: &Backend,
    url: &str,
    namespace: &Namespace,
    contracts: &[Contract],
    unsupported: Unsupported,
) -> Result<StoreSet, String> {
    let mut request = StoresRequest::new(namespace.clone());
    if !contracts.is_empty() {
        request = request.with_contracts(contracts.to_vec());
    }
    let stores = place.stores_for(request).await;
    for (contract, error) in stores.errors() {
        let may_lack = unsupported == Unsupported::IsLeftOut && contracts.is_empty();
        if !may_lack || !matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::PermissionDenied) {
            return Err(format!("{} (--contract selects what to move)", cannot_open(url, error)));
        }
        output::note(format_args!("{contract} is left out: {}", cannot_open(url, error)));
    }
    Ok(stores.set().clone())
}

/// Returns the contracts to move: the requested ones, or all contracts of which the source has data.
///
/// # Errors
/// A message if one side lacks a requested contract, or the target lacks a contract of the source.
async fn contracts(asked: &[Contract], source: &Source, target: &StoreSet) -> Result<Vec<Contract>, String> {
    let (from, to) = (source.contracts(), target.contracts());
    if asked.is_empty() {
        let left = left_out(source, &to).await.map_err(|error| error.to_string())?;
        if !left.is_empty() {
            let counts: Vec<_> =
                left.iter().map(|(contract, records)| format!("{contract} ({records} records)")).collect();
            return Err(format!(
                "the target has no store for {}; nothing was written (--contract selects what to move)",
                counts.join(", ")
            ));
        }
        return Ok(from.into_iter().filter(|contract| to.contains(contract)).collect());
    }
    for contract in asked {
        for (side, there) in [("source", &from), ("target", &to)] {
            if !there.contains(contract) {
                return Err(format!("the {side} has no store for {contract}; nothing was written"));
            }
        }
    }
    Ok(Contract::ALL.iter().copied().filter(|contract| asked.contains(contract)).collect())
}

/// Formats one line per contract, and returns whether all are equal.
fn lines(copied: &[Copied]) -> (String, bool) {
    let line = |copied: &Copied| {
        let Copied { contract, written, source, target, difference, .. } = copied;
        let name = contract.as_str();
        if copied.is_equal() {
            let (records, sha256) = (source.records, &source.sha256);
            return format!("{name:<10} {records} records, {written} written, sha256 {sha256} on both sides");
        }
        let Difference { missing, different, extra, .. } = difference;
        format!(
            "{name:<10} DIFFERS: {missing} missing in the target, {different} different, {extra} only in the \
             target; source {} records, sha256 {}; target {} records, sha256 {}",
            source.records, source.sha256, target.records, target.sha256
        )
    };
    let text: Vec<String> = copied.iter().map(line).collect();
    (text.join("\n"), copied.iter().all(Copied::is_equal))
}

/// Prints what an archive lacks, and returns the exit code.
fn note_missing(missing: &[Missing]) -> ExitCode {
    for Missing { contract, place, reason, .. } in missing {
        let (contract, place) = (contract.as_str(), printable(place));
        output::note(format_args!("missing in the archive: {contract}: {place}: {reason}"));
    }
    ExitCode::from(u8::from(!missing.is_empty()))
}

/// The message if the sides differ after a copy.
const CHANGED: &str = "the source or the target changed during the operation; run it again";
