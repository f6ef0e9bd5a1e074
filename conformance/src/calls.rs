//! Every method of every contract, each called on a small data set that is written first.
//!
//! Cases that apply to every method are written once over this table: a method stays in its namespace, and
//! its future may be dropped wherever it waits. A test compares the names with the methods of the traits, so
//! a new method that the table lacks fails the test.

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

/// Makes one call and returns its result.
type Run = for<'a> fn(&'a StoreSet) -> BoxFuture<'a, CaseResult<Value>>;

/// The data in a store before the call. Both data sets use the same ids for different items, and `Theirs` has
/// some ids in addition. So a call that reads or changes the wrong namespace is detected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum World {
    /// The data of the namespace that the calls use.
    Mine,
    /// The data of another namespace.
    Theirs,
}

impl World {
    /// Returns the text that all items of the data set contain.
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
    /// The method, followed by `/` and a variant name if it is called in several ways.
    pub(crate) name: &'static str,
    run: Run,
}

impl Call {
    const fn new(contract: Contract, name: &'static str, run: Run) -> Self {
        Self { contract, name, run }
    }

    /// The method's name.
    #[cfg(test)]
    pub(crate) fn method(&self) -> &'static str {
        self.name.split('/').next().unwrap_or_default()
    }

    /// Returns the name as a part of a case's name.
    pub(crate) fn title(&self) -> String {
        self.name.replace('/', "_")
    }

    /// Makes the call in the namespace of [`World::Mine`]. An expected error is a valid result.
    pub(crate) fn run<'a>(&self, stores: &'a StoreSet) -> BoxFuture<'a, CaseResult<Value>> {
        (self.run)(stores)
    }
}

/// Returns the calls of every method of the contract, some with several variants.
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

/// Writes the data set that the calls of the contract use.
pub(crate) fn lay_out(stores: &StoreSet, contract: Contract, world: World) -> BoxFuture<'_, CaseResult> {
    async move {
        match contract {
            Contract::History => history::lay_out(&*stores.history()?, world).await?,
            Contract::Vectors => vectors::lay_out(&*stores.vectors()?, world).await?,
            Contract::Graph => graph::lay_out(&*stores.graph()?, world).await?,
            Contract::Blobs => blobs::lay_out(&*stores.blobs()?, world).await?,
            Contract::Tasks => tasks::lay_out(&*stores.tasks()?, world).await?,
            Contract::KeyValue => key_value::lay_out(&*stores.key_value()?, world).await?,
        }
        Ok(())
    }
    .boxed()
}

/// Returns the state of [`World::Theirs`] that no listing shows: used keys, and deletions.
pub(crate) async fn witness(stores: &StoreSet, contract: Contract) -> CaseResult<Value> {
    match contract {
        Contract::History => told(history::witness(&*stores.history()?).await),
        // A store that cannot watch yet shows no past changes.
        Contract::KeyValue => match key_value::witness(&*stores.key_value()?).await {
            Err(error) if error.missing_method().is_some() => Ok(Value::Null),
            answer => told(answer),
        },
        _ => Ok(Value::Null),
    }
}

fn erase(contract: Contract) -> Call {
    macro_rules! erasing {
        ($field:ident) => {
            |stores| async move { told(larder_kernel::Store::erase(&*stores.$field()?).await) }.boxed()
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

/// Returns the result of a call, without the parts that differ in every call.
fn told<T: Serialize>(answer: Result<T, Error>) -> CaseResult<Value> {
    match answer {
        Ok(value) => {
            let value = serde_json::to_value(value);
            value.map(comparable).map_err(|error| Failure::Engine(format!("a result as JSON: {error}")))
        }
        Err(error) if error.missing_method().is_some() => Err(error.into()),
        Err(error) => match error.kind() {
            kind @ (ErrorKind::NotFound
            | ErrorKind::AlreadyExists
            | ErrorKind::Conflict
            | ErrorKind::InvalidInput
            | ErrorKind::Unsupported) => Ok(json!({ "refused": kind.as_str() })),
            // A service failure, or a defect that would hide the result under test.
            _ => Err(error.into()),
        },
    }
}

/// Removes clock values and store-generated names from a value, so that two reads compare equal.
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
        // A position names the generation of its place.
        Value::String(text) => {
            if let Ok(position) = text.parse::<larder_kernel::Seq>() {
                value = position.get().into();
            }
        }
        _ => {}
    }
    value.sort_all_objects();
    value
}

/// Lists the calls of a contract: `"method/way" => |store| { … }`, with a body that returns a `Result`.
macro_rules! calls {
    ($contract:ident, $field:ident; $($name:literal => |$store:ident| $body:block)*) => {
        pub(super) fn calls() -> Vec<$crate::calls::Call> {
            use ::futures_util::FutureExt;
            use $crate::calls::{Call, told};
            vec![$(
                Call::new(::larder_kernel::Contract::$contract, $name, |stores| {
                    async move {
                        let $store = &*stores.$field()?;
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

    /// Returns the methods that the contract's source declares. Methods without I/O are left out, because
    /// they have no future to drop.
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
            assert_eq!(names.len(), of(contract).len(), "a name of {contract} appears twice");
        }
    }
}
