//! Every method of every contract, each called on a small world that is laid out first.
//!
//! What is to be shown of each method alike is written once over this table: that it stays in its namespace, and that its
//! future may be dropped wherever it waits. A test compares the names with the methods of the traits, so that a method
//! that is added there is missed here.

mod blobs;
mod graph;
mod history;
mod key_value;
mod tasks;
mod vectors;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use larder_kernel::{Contract, Error, ErrorKind, Result};
use serde::Serialize;
use serde_json::{Value, json};

use crate::case::{CaseResult, Failure};
use crate::harness::StoreSet;

/// Makes one call and tells what it answered.
type Run = for<'a> fn(&'a StoreSet) -> BoxFuture<'a, CaseResult<Value>>;

/// What a store was given before the call. Both worlds use the same ids for different things, and each of `Theirs` has
/// some beside them, so that what is told or changed in the wrong one shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum World {
    /// That of the calls.
    Mine,
    /// That of another namespace.
    Theirs,
}

impl World {
    /// The text that all of it holds.
    fn text(self) -> &'static str {
        match self {
            Self::Mine => "mine",
            Self::Theirs => "theirs",
        }
    }

    fn is_theirs(self) -> bool {
        self == Self::Theirs
    }
}

/// One call of one method.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    /// The contract.
    pub(crate) contract: Contract,
    /// The method, and after a `/` the way it is called where there are several.
    pub(crate) name: &'static str,
    run: Run,
}

impl Call {
    const fn new(contract: Contract, name: &'static str, run: Run) -> Self {
        Self { contract, name, run }
    }

    /// The method's name.
    #[cfg(test)]
    fn method(&self) -> &'static str {
        self.name.split('/').next().unwrap_or_default()
    }

    /// The name as part of a case's.
    pub(crate) fn title(&self) -> String {
        self.name.replace('/', "_")
    }

    /// Makes the call in the world of [`World::Mine`]. A refusal is an answer, too.
    pub(crate) fn run<'a>(&self, stores: &'a StoreSet) -> BoxFuture<'a, CaseResult<Value>> {
        (self.run)(stores)
    }
}

/// Every method of the contract, some of them called in several ways.
pub(crate) fn of(contract: Contract) -> Vec<Call> {
    let mut calls = match contract {
        Contract::History => history::calls(),
        Contract::Vectors => vectors::calls(),
        Contract::Graph => graph::calls(),
        Contract::Blobs => blobs::calls(),
        Contract::Tasks => tasks::calls(),
        Contract::KeyValue => key_value::calls(),
    };
    calls.push(erase(contract));
    calls
}

/// Writes the world that the calls of the contract meet.
pub(crate) fn lay_out(stores: &StoreSet, contract: Contract, world: World) -> BoxFuture<'_, CaseResult> {
    async move {
        match contract {
            Contract::History => history::lay_out(served(stores.history.as_deref())?, world).await?,
            Contract::Vectors => vectors::lay_out(served(stores.vectors.as_deref())?, world).await?,
            Contract::Graph => graph::lay_out(served(stores.graph.as_deref())?, world).await?,
            Contract::Blobs => blobs::lay_out(served(stores.blobs.as_deref())?, world).await?,
            Contract::Tasks => tasks::lay_out(served(stores.tasks.as_deref())?, world).await?,
            Contract::KeyValue => key_value::lay_out(served(stores.key_value.as_deref())?, world).await?,
        }
        Ok(())
    }
    .boxed()
}

/// What the world of [`World::Theirs`] remembers and no listing shows: keys that were used, and deletions.
pub(crate) async fn witness(stores: &StoreSet, contract: Contract) -> CaseResult<Value> {
    match contract {
        Contract::History => told(history::witness(served(stores.history.as_deref())?).await),
        Contract::KeyValue => told(key_value::witness(served(stores.key_value.as_deref())?).await),
        _ => Ok(Value::Null),
    }
}

fn erase(contract: Contract) -> Call {
    macro_rules! erasing {
        ($field:ident) => {
            |stores| {
                async move { told(larder_kernel::Store::erase(served(stores.$field.as_deref())?).await) }
                    .boxed()
            }
        };
    }
    let run: Run = match contract {
        Contract::History => erasing!(history),
        Contract::Vectors => erasing!(vectors),
        Contract::Graph => erasing!(graph),
        Contract::Blobs => erasing!(blobs),
        Contract::Tasks => erasing!(tasks),
        Contract::KeyValue => erasing!(key_value),
    };
    Call::new(contract, "erase", run)
}

fn served<T>(store: Option<T>) -> CaseResult<T> {
    store.ok_or_else(|| Failure::Engine("the backend does not serve the contract".to_owned()))
}

/// What a call answered, without what no two calls answer alike.
fn told<T: Serialize>(answer: Result<T, Error>) -> CaseResult<Value> {
    match answer {
        Ok(value) => {
            let value = serde_json::to_value(value);
            value.map(comparable).map_err(|error| Failure::Engine(format!("an answer as JSON: {error}")))
        }
        Err(error) if error.missing_method().is_some() => Err(error.into()),
        Err(error) => match error.kind() {
            kind @ (ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::Conflict
            | ErrorKind::InvalidInput
            | ErrorKind::Unsupported) => Ok(json!({ "refused": kind.as_str() })),
            // Trouble, or a defect that would hide what is to be shown.
            _ => Err(error.into()),
        },
    }
}

/// What was read, less the clock's part of it and the names that a store makes up.
pub(crate) fn comparable(mut value: Value) -> Value {
    const APART: [&str; 6] = ["etag", "expires_at", "headers", "modified_at", "created_at", "url"];
    match &mut value {
        Value::Array(items) => {
            for item in items {
                *item = comparable(item.take());
            }
        }
        Value::Object(fields) => {
            fields.retain(|name, _| !APART.contains(&name.as_str()));
            for field in fields.values_mut() {
                *field = comparable(field.take());
            }
        }
        _ => {}
    }
    value.sort_all_objects();
    value
}

/// Lists the calls of a contract: `"method/way" => |store| { … }`, each body ending in a `Result`.
macro_rules! calls {
    ($contract:ident, $field:ident; $($name:literal => |$store:ident| $body:block)*) => {
        pub(super) fn calls() -> Vec<$crate::calls::Call> {
            use ::futures_util::FutureExt;
            use $crate::calls::{Call, served, told};
            vec![$(
                Call::new(::larder_kernel::Contract::$contract, $name, |stores| {
                    async move {
                        let $store = served(stores.$field.as_deref())?;
                        told(async move { $body }.await)
                    }
                    .boxed()
                })
            ),*]
        }
    };
}
use calls;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The methods that the contract's source declares. Those that do no I/O have no future to drop.
    fn declared(source: &str) -> BTreeSet<&str> {
        let lines = source.lines().map(str::trim);
        let methods = lines.filter_map(|line| line.strip_prefix("async fn ")?.split(['(', '<']).next());
        methods.collect()
    }

    #[test]
    fn every_method_of_every_contract_is_called() {
        let shared = declared(Contract::shared_source());
        assert_eq!(shared, BTreeSet::from(["erase"]));
        for &contract in Contract::ALL {
            let mut expected = declared(contract.source());
            expected.extend(&shared);
            let called: BTreeSet<_> = of(contract).iter().map(Call::method).collect();
            assert_eq!(called, expected, "the calls of {contract}");
            let names: BTreeSet<_> = of(contract).iter().map(Call::title).collect();
            assert_eq!(names.len(), of(contract).len(), "a name of {contract} stands twice");
        }
    }
}
