//! `age:`, a Postgres database with Apache AGE.

use std::sync::Arc;

use larder_kernel::{Contract, Namespace, Result};

use super::Target;
use super::url::OPERATION;
use crate::age::{Age, AgeConfig};
use crate::stores::Stores;

/// What an AGE URL provides. The other contracts are Postgres's own: `postgres:` opens them in the same database.
pub(super) const CONTRACTS: &[Contract] = &[Contract::Graph];

pub(super) fn target(url: &str) -> Result<Target> {
    let config = AgeConfig::from_url(url).map_err(|error| error.in_operation(OPERATION))?;
    Ok(Target::Age(Box::new(config)))
}

pub(super) fn open(age: &Age, namespace: &Namespace) -> Stores {
    Stores::none(namespace.clone()).with_graph(Arc::new(age.graph(namespace.clone())))
}
