//! Calls that every store rejects: each method with each kind of invalid input that it can receive.
//!
//! The rows of a table combine the kinds of invalid input with the parameters that accept them. Each row is
//! one call. The call must fail with `InvalidInput`, name the field and the limit, and report that nothing
//! was applied. After each call that reaches the store, all readable data is compared with the data before
//! the first call. The rows of one case share a namespace. [`count`] returns the number of rows of a
//! contract.

mod blobs;
mod graph;
mod history;
mod inputs;
mod key_value;
mod tasks;
mod vectors;

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use inputs::Rule;
use larder_kernel::{Capability, Contract, Result};
use serde_json::Value;

use crate::case::{Case, CaseResult, Level};
use crate::context::Context;
use crate::expect;
use crate::harness::{OpenOptions, StoreSet};
use crate::suites;

/// The marker of the records that `populate` writes, so that invalid calls can name existing data.
const MARKER: &str = "kept";

/// The maximum number of rows of a case.
const ROWS_MAX: usize = 6;

type Make = Arc<dyn for<'a> Fn(&'a StoreSet) -> BoxFuture<'a, Result<()>> + Send + Sync>;

/// One invalid call.
#[derive(Clone)]
struct Refusal {
    /// The operation that the error names: the method, or the constructor of the value.
    call: &'static str,
    /// The kind of invalid input.
    kind: String,
    /// The field that the error names.
    field: &'static str,
    /// The limit and the text of the error. Every backend must name the limit. The text is that of the
    /// kernel's checks.
    rule: Rule,
    /// True if the call reaches a store. A value that cannot be constructed reaches none.
    calls: bool,
    make: Make,
}

impl Refusal {
    fn new<F>(call: &'static str, kind: String, field: &'static str, rule: Rule, make: F) -> Self
    where
        F: for<'a> Fn(&'a StoreSet) -> BoxFuture<'a, Result<()>> + Send + Sync + 'static,
    {
        Self { call, kind, field, rule, calls: true, make: Arc::new(make) }
    }

    /// Creates a row for a value whose constructor rejects it, so that no call can contain it.
    fn value<F>(call: &'static str, kind: String, field: &'static str, rule: Rule, make: F) -> Self
    where
        F: Fn() -> Result<()> + Send + Sync + 'static,
    {
        let row = Self::new(call, kind, field, rule, move |_| Box::pin(std::future::ready(make())));
        Self { calls: false, ..row }
    }
}

/// Invalid calls of one kind.
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

/// Returns the number of invalid calls that the tables of a contract make on every store of it, without the
/// calls that need a capability.
#[must_use]
pub fn count(contract: Contract) -> usize {
    tables(contract).iter().filter(|table| table.needs.is_none()).map(|table| table.rows.len()).sum()
}

/// Returns the tables as cases. Each calls one method, and has so few rows that a slow server completes one
/// in time.
#[must_use]
pub fn cases() -> Vec<Case> {
    let of = |contract| tables(contract).into_iter().flat_map(move |table| parts(contract, &table));
    Contract::ALL.iter().copied().flat_map(of).collect()
}

fn parts(contract: Contract, table: &Table) -> Vec<Case> {
    let mut by_call: BTreeMap<&str, Vec<Refusal>> = BTreeMap::new();
    for row in &table.rows {
        by_call.entry(row.call).or_default().push(row.clone());
    }
    let mut cases = Vec::new();
    for (call, rows) in &by_call {
        let name = match call.split_once('.') {
            Some((_, method)) if by_call.len() > 1 => format!("refuses_every_{}_by_{method}", table.name),
            _ => format!("refuses_every_{}", table.name),
        };
        let parts = rows.chunks(ROWS_MAX).enumerate();
        cases.extend(parts.map(|(part, rows)| case(contract, table.needs, &name, part, rows)));
    }
    cases
}

fn case(contract: Contract, needs: Option<Capability>, name: &str, part: usize, rows: &[Refusal]) -> Case {
    let rows: Arc<[Refusal]> = Arc::from(rows);
    let name = if part == 0 { name.to_owned() } else { format!("{name}_part_{}", part + 1) };
    let case = Case::new(contract, "STORE-010", name, move |context| {
        let rows = Arc::clone(&rows);
        async move { refused(&context, contract, &rows).await }
    });
    let case = case.at_level(Level::Hostile);
    match needs {
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
        if row.calls {
            unchanged(&row.kind, &suites::shared::dump(&other, contract).await?, &before)?;
        }
    }
    unchanged("all of them", &suites::shared::dump(&other, contract).await?, &before)?;
    // After all rejected calls, the store must accept a valid one.
    suites::shared::populate(&stores, contract, "afterwards").await
}

fn judge(row: &Refusal, answer: Result<()>) -> CaseResult {
    let what = format!("{} ({})", row.kind, row.rule.error);
    let refusal = expect::invalid(&what, answer, row.field)?;
    expect::equal(&format!("{what}: the limit named"), &refusal.limit(), &row.rule.limit)
}

fn unchanged(what: &str, read: &Value, before: &Value) -> CaseResult {
    expect::equal(&format!("everything after {what}"), read, before)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use async_trait::async_trait;
    use larder_agents::storage::MemoryBackend;
    use larder_kernel::storage::graph::check_cypher;
    use larder_kernel::{
        Capabilities, CypherCapable, CypherRow, Durability, GraphStore, Metadata, Namespace, OptionSet, Store,
    };

    use super::*;
    use crate::memory;

    /// A graph with Cypher, as the in-memory graph has none.
    #[derive(Debug)]
    struct Cypher(Namespace);

    #[async_trait]
    impl Store for Cypher {
        fn namespace(&self) -> &Namespace {
            &self.0
        }

        fn capabilities(&self) -> Capabilities {
            Capabilities::new(Durability::None)
        }

        fn options(&self) -> OptionSet {
            OptionSet::default()
        }

        async fn erase(&self) -> Result<()> {
            Ok(())
        }
    }

    impl GraphStore for Cypher {
        fn as_cypher(&self) -> Option<&dyn CypherCapable> {
            Some(self)
        }
    }

    #[async_trait]
    impl CypherCapable for Cypher {
        async fn cypher(&self, query: &str, parameters: Metadata) -> Result<Vec<CypherRow>> {
            check_cypher(query, &parameters).map(|()| Vec::new())
        }
    }

    #[tokio::test]
    async fn the_kernel_refuses_every_row_with_its_text() {
        let namespace = Namespace::new("refusals").unwrap();
        let backend = MemoryBackend::new().with_blob_versions();
        let stores = memory::stores(&backend, &namespace);
        let cypher = StoreSet::default().with_graph(Arc::new(Cypher(namespace)));
        let mut different = BTreeSet::new();
        for &contract in Contract::ALL {
            suites::shared::populate(&stores, contract, MARKER).await.unwrap();
            for table in tables(contract) {
                let stores = if table.needs == Some(Capability::Cypher) { &cypher } else { &stores };
                for row in table.rows {
                    let error = (row.make)(stores).await.unwrap_err();
                    let seen = (error.operation(), error.message());
                    if seen != (row.call, row.rule.error) {
                        let expected = (row.call, row.rule.error);
                        different.insert(format!("{} {}: {seen:?} {expected:?}", table.name, row.kind));
                        continue;
                    }
                    judge(&row, Err(error)).unwrap();
                }
            }
        }
        let different = different.into_iter().collect::<Vec<_>>();
        assert!(different.is_empty(), "{}", different.join("\n"));
    }

    /// A backend of one contract gets as many invalid calls as one of six. The fixed figures prevent an
    /// unnoticed decrease.
    #[test]
    fn every_contract_refuses_at_least_400_bad_calls() {
        for &contract in Contract::ALL {
            assert!(count(contract) >= 400, "{contract}: {}", count(contract));
        }
    }

    #[test]
    fn no_table_has_a_duplicate_row() {
        for &contract in Contract::ALL {
            for table in tables(contract) {
                let names: BTreeSet<_> = table.rows.iter().map(|row| (row.call, &row.kind)).collect();
                assert_eq!(names.len(), table.rows.len(), "{contract} {}", table.name);
            }
        }
    }
}
