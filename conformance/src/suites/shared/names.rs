//! Hostile namespaces: a namespace is an id too, and a backend may join it with the id that follows.

use larder_kernel::limits::{BLOB_SHORT_NAMESPACE_BYTES_MAX, NAMESPACE_BYTES_MAX};
use larder_kernel::{Capability, Contract, Namespace};

use super::probe;
use super::single::{accepts, listed, read, write};
use crate::case::CaseResult;
use crate::context::Context;
use crate::expect;
use crate::harness::{OpenOptions, StoreSet};
use crate::suites::ids::{hostile, hostile_pairs};

/// Returns the longest namespace in which the store keeps every short id.
async fn longest(context: &Context, contract: Contract) -> CaseResult<usize> {
    let declared = context.open().await?.capabilities(contract).unwrap_or_default();
    let short = contract == Contract::Blobs && !declared.has(Capability::BlobLongKeys);
    Ok(if short { BLOB_SHORT_NAMESPACE_BYTES_MAX } else { NAMESPACE_BYTES_MAX })
}

async fn open(context: &Context, namespace: &Namespace, handle: usize) -> CaseResult<StoreSet> {
    context.open_with(namespace, &OpenOptions::default().with_handle(handle)).await
}

/// Returns namespaces of the case that end in every hostile id and in the longest ends that differ only in
/// the last byte.
async fn hostile_namespaces(context: &Context, contract: Contract) -> CaseResult<Vec<Namespace>> {
    let room = longest(context, contract).await?.saturating_sub(context.namespace.as_str().len());
    let long = ["y", "z"].map(|end| format!("{}{end}", "x".repeat(room.saturating_sub(1))));
    let ends = hostile().into_iter().filter(|end| end.len() <= room).chain(long);
    ends.map(|end| context.sibling(&end)).collect()
}

/// `STORE-003`: each namespace keeps its own item under the same id, and an erasure takes only that item.
pub(super) async fn are_distinct(context: Context, contract: Contract) -> CaseResult {
    let all = hostile_namespaces(&context, contract).await?;
    for namespace in &all {
        let stores = open(&context, namespace, 0).await?;
        write(&stores, contract, "same", namespace.as_str()).await?;
    }
    for (number, namespace) in all.iter().enumerate() {
        let stores = open(&context, namespace, 1).await?;
        let found = read(&stores, contract, "same").await?;
        expect::equal("the item of its namespace", &found, &vec![namespace.to_string()])?;
        let own = probe::store(&stores, contract)?;
        expect::equal("the name of the namespace", own.namespace(), namespace)?;
        if number.is_multiple_of(2) {
            own.erase().await?;
        }
    }
    for (number, namespace) in all.iter().enumerate() {
        let found = read(&open(&context, namespace, 0).await?, contract, "same").await?;
        let expected = if number.is_multiple_of(2) { Vec::new() } else { vec![namespace.to_string()] };
        expect::equal("the item after the erasure of others", &found, &expected)?;
    }
    Ok(())
}

/// `STORE-003`: a namespace and the id that follows it never merge.
pub(super) async fn do_not_merge_with_ids(context: Context, contract: Contract) -> CaseResult {
    let room = longest(&context, contract).await?.saturating_sub(context.namespace.as_str().len());
    let fits = |(end, id): &(String, String)| end.len() <= room && accepts(contract, id);
    let pairs: Vec<_> = hostile_pairs().into_iter().filter(fits).collect();
    let mut all = Vec::new();
    for (end, id) in pairs {
        let namespace = Namespace::new(format!("{}{end}", context.namespace))?;
        if !context.siblings().contains(&namespace) {
            context.sibling(&end)?;
        }
        all.push((namespace, id));
    }
    for (namespace, id) in &all {
        let stores = open(&context, namespace, 0).await?;
        write(&stores, contract, id, &format!("{namespace:?} {id:?}")).await?;
    }
    for (namespace, id) in &all {
        let stores = open(&context, namespace, 1).await?;
        let found = read(&stores, contract, id).await?;
        expect::equal("the item of the pair", &found, &vec![format!("{namespace:?} {id:?}")])?;
    }
    for namespace in context.siblings() {
        let stores = open(&context, &namespace, 0).await?;
        let mut expected: Vec<_> =
            all.iter().filter(|(other, _)| *other == namespace).map(|(_, id)| id.clone()).collect();
        expected.sort_unstable();
        if let Some(found) = listed(&stores, contract).await? {
            expect::equal("the ids that the namespace lists", &found, &expected)?;
        }
    }
    Ok(())
}
