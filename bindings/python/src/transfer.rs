//! Copies between two open stores.

use larder::transfer::{Copied, Difference, Digest, Existing, Source, Watch, copy, left_out};
use larder::{Contract, Error, ErrorKind, Result, StoreSet};
use pyo3::prelude::*;
use serde::Serialize;

use crate::call::Call;
use crate::errors::OrRaise as _;
use crate::stores::NativeStores;

const OPERATION: &str = "transfer.copy";

#[derive(Serialize)]
struct Shown {
    contract: &'static str,
    written: u64,
    equal: bool,
    source: Digest,
    target: Digest,
    difference: [(&'static str, u64); 4],
}

impl From<Copied> for Shown {
    fn from(copied: Copied) -> Self {
        let Difference { same, missing, different, extra, .. } = copied.difference;
        Self {
            contract: copied.contract.as_str(),
            written: copied.written,
            equal: copied.is_equal(),
            difference: [("same", same), ("missing", missing), ("different", different), ("extra", extra)],
            source: copied.source,
            target: copied.target,
        }
    }
}

/// Copies the contracts with these names, or all of which the source has data.
#[pyfunction]
#[pyo3(name = "copy")]
pub(crate) fn copy_stores(
    py: Python<'_>,
    source: &NativeStores,
    target: &NativeStores,
    contracts: Option<Vec<String>>,
    existing: &str,
) -> PyResult<Call> {
    let existing = match existing {
        "refuse" => Ok(Existing::Refuse),
        "keep" => Ok(Existing::Keep),
        "overwrite" => Ok(Existing::Overwrite),
        _ => Err(Error::invalid(OPERATION, "existing", "is unknown; use `refuse`, `keep` or `overwrite`")),
    };
    let existing = existing.or_raise(py)?;
    let asked = contracts.map(|names| names.iter().map(|name| contract(name)).collect::<Result<Vec<_>>>());
    let asked = asked.transpose().or_raise(py)?;
    let (from, to) = (source.stores().or_raise(py)?, target.stores().or_raise(py)?);
    let work = async move {
        let (from, to) = (Source::from(from.set().clone()), to.set().clone());
        let contracts = match asked {
            Some(asked) => Contract::ALL.iter().copied().filter(|known| asked.contains(known)).collect(),
            None => everything(&from, &to).await?,
        };
        let copied = copy(&from, &to, &contracts, existing, &Watch::nobody()).await?;
        Ok(copied.into_iter().map(Shown::from).collect::<Vec<_>>())
    };
    source.shared.apart(py, work)
}

fn contract(name: &str) -> Result<Contract> {
    let found = Contract::ALL.iter().copied().find(|contract| contract.as_str() == name);
    found.ok_or_else(|| {
        let names: Vec<_> = Contract::ALL.iter().map(|contract| contract.as_str()).collect();
        Error::invalid(
            OPERATION,
            "contracts",
            format!("has an unknown name; the contracts are {}", names.join(", ")),
        )
    })
}

/// Returns the contracts of both sides.
///
/// # Errors
/// `Unsupported` if the target has no store for data of the source.
async fn everything(source: &Source, target: &StoreSet) -> Result<Vec<Contract>> {
    let to = target.contracts();
    let left = left_out(source, &to).await?;
    if left.is_empty() {
        return Ok(source.contracts().into_iter().filter(|contract| to.contains(contract)).collect());
    }
    let counts: Vec<_> =
        left.iter().map(|(contract, records)| format!("{contract} ({records} records)")).collect();
    let message = format!(
        "the target has no store for {}; nothing was written (`contracts` selects what to copy)",
        counts.join(", ")
    );
    Err(Error::new(ErrorKind::Unsupported, OPERATION, message).with_field("target"))
}
