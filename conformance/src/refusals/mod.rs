//! Calls that every store refuses: each method with each kind of bad input that it can be given.
//!
//! The rows of a table are made by crossing kinds of bad input with the places where a call takes them. Each row is one
//! call, refused as `InvalidInput` that names the field and the limit and says that nothing was applied; after each, all
//! that can be read is compared with what was there before the first. Rows of one table share a namespace, so a table is
//! one case; [`count`] says how many rows a contract has.

mod blobs;
mod graph;
mod history;
mod inputs;
mod key_value;
mod tasks;
mod vectors;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use larder_kernel::{Capability, Contract, ErrorKind, Outcome, Result};
use serde_json::Value;

use crate::case::{Case, CaseResult, Level};
use crate::context::Context;
use crate::expect;
use crate::harness::{OpenOptions, StoreSet};
use crate::suites;

/// What `populate` marks its records with, so that bad calls can name what is there.
const MARKER: &str = "kept";

type Make = Arc<dyn for<'a> Fn(&'a StoreSet) -> BoxFuture<'a, Result<()>> + Send + Sync>;

/// One bad call.
#[derive(Clone)]
struct Refusal {
    what: String,
    field: &'static str,
    limit: Option<u64>,
    make: Make,
}

impl Refusal {
    fn new<F>(what: String, field: &'static str, limit: Option<u64>, make: F) -> Self
    where
        F: for<'a> Fn(&'a StoreSet) -> BoxFuture<'a, Result<()>> + Send + Sync + 'static,
    {
        Self { what, field, limit, make: Arc::new(make) }
    }
}

/// Bad calls that one case makes, one after the other.
struct Table {
    name: String,
    needs: Option<Capability>,
    rows: Vec<Refusal>,
}

fn table(name: impl Into<String>, rows: impl IntoIterator<Item = Refusal>) -> Table {
    Table { name: name.into(), needs: None, rows: rows.into_iter().collect() }
}

fn tables(contract: Contract) -> Vec<Table> {
    match contract {
        Contract::History => history::tables(),
        Contract::Vectors => vectors::tables(),
        Contract::Graph => graph::tables(),
        Contract::Blobs => blobs::tables(),
        Contract::Tasks => tasks::tables(),
        Contract::KeyValue => key_value::tables(),
    }
}

/// How many bad calls the tables of a contract make on every store of it, those that need a capability left out.
#[must_use]
pub fn count(contract: Contract) -> usize {
    tables(contract).iter().filter(|table| table.needs.is_none()).map(|table| table.rows.len()).sum()
}

/// One case for each table.
#[must_use]
pub fn cases() -> Vec<Case> {
    let of = |contract| tables(contract).into_iter().map(move |table| case(contract, table));
    Contract::ALL.into_iter().flat_map(of).collect()
}

fn case(contract: Contract, table: Table) -> Case {
    let rows = Arc::new(table.rows);
    let name = format!("refuses_every_{}", table.name);
    let case = Case::new(contract, "STORE-010", name, move |context| {
        let rows = Arc::clone(&rows);
        async move { refused(&context, contract, &rows).await }
    });
    let case = case.at_level(Level::Hostile);
    match table.needs {
        Some(capability) => case.needing(capability),
        None => case,
    }
}

async fn refused(context: &Context, contract: Contract, rows: &[Refusal]) -> CaseResult {
    let stores = context.open().await?;
    let other = context.open_with(&context.namespace, &OpenOptions::default().with_handle(1)).await?;
    suites::shared::populate(&stores, contract, MARKER).await?;
    let before = suites::shared::dump(&other, contract).await?;
    expect::that(before.to_string().contains(MARKER), "something stored", "nothing")?;
    for row in rows {
        judge(row, (row.make)(&stores).await)?;
        unchanged(row, &suites::shared::dump(&other, contract).await?, &before)?;
    }
    // After so many refusals, the store takes what is right.
    suites::shared::populate(&stores, contract, "afterwards").await
}

fn judge(row: &Refusal, answer: Result<()>) -> CaseResult {
    let what = &row.what;
    let refusal = expect::error(what, answer, ErrorKind::InvalidInput)?;
    expect::equal(&format!("{what}: the field named"), &refusal.field(), &Some(row.field))?;
    expect::equal(&format!("{what}: the limit named"), &refusal.limit(), &row.limit)?;
    expect::equal(&format!("{what}: the outcome"), &refusal.outcome(), &Outcome::NotApplied)
}

fn unchanged(row: &Refusal, read: &Value, before: &Value) -> CaseResult {
    expect::equal(&format!("everything after {}", row.what), read, before)
}

fn served<T: ?Sized>(store: Option<&Arc<T>>) -> Result<&T> {
    store.map(|store| &**store).ok_or_else(|| {
        larder_kernel::Error::new(ErrorKind::Unexpected, "suite.refusals", "the contract is not served")
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A backend of one contract is pressed as hard as one of six. The figures stand here so that none shrinks unseen.
    #[test]
    fn every_contract_refuses_at_least_400_bad_calls() {
        for contract in Contract::ALL {
            assert!(count(contract) >= 400, "{contract}: {}", count(contract));
        }
    }

    #[test]
    fn no_row_stands_twice_in_a_table() {
        for contract in Contract::ALL {
            for table in tables(contract) {
                let names: BTreeSet<_> = table.rows.iter().map(|row| &row.what).collect();
                assert_eq!(names.len(), table.rows.len(), "{contract} {}", table.name);
            }
        }
    }
}
