//! The data of the cases, and functions that read it back.

use std::sync::Arc;

use larder_kernel::{
    Entity, EntityId, EntityQuery, EntityType, ErrorKind, GraphStore, GraphWritten, Metadata, PageRequest,
    Relationship, RelationshipId, RelationshipQuery, RelationshipType, Result, Revision, SubGraph,
};
use tokio::task::JoinSet;

use crate::case::{CaseResult, Failure};
use crate::context::Handles;
use crate::expect;
use crate::suites::vectors::support::joined;

pub(super) fn entity_id(text: &str) -> CaseResult<EntityId> {
    Ok(EntityId::new(text)?)
}

pub(super) fn entity_ids<T: AsRef<str>>(texts: &[T]) -> CaseResult<Vec<EntityId>> {
    texts.iter().map(|text| entity_id(text.as_ref())).collect()
}

pub(super) fn relationship_id(text: &str) -> CaseResult<RelationshipId> {
    Ok(RelationshipId::new(text)?)
}

pub(super) fn relationship_ids<T: AsRef<str>>(texts: &[T]) -> CaseResult<Vec<RelationshipId>> {
    texts.iter().map(|text| relationship_id(text.as_ref())).collect()
}

pub(super) fn relationship_type(text: &str) -> CaseResult<RelationshipType> {
    Ok(RelationshipType::new(text)?)
}

/// Returns an entity of the type `node`.
pub(super) fn node(id: &str) -> CaseResult<Entity> {
    typed(id, "node", Metadata::new())
}

pub(super) fn typed(id: &str, entity_type: &str, properties: Metadata) -> CaseResult<Entity> {
    Ok(Entity::new(entity_id(id)?, EntityType::new(entity_type)?).with_properties(properties))
}

pub(super) fn nodes(ids: &[&str]) -> CaseResult<Vec<Entity>> {
    ids.iter().map(|id| node(id)).collect()
}

/// Returns a relationship without properties, written `id type source target`.
pub(super) fn edge(id: &str, kind: &str, source: &str, target: &str) -> CaseResult<Relationship> {
    Ok(Relationship::new(
        relationship_id(id)?,
        relationship_type(kind)?,
        entity_id(source)?,
        entity_id(target)?,
    ))
}

pub(super) fn edges(all: &[(&str, &str, &str, &str)]) -> CaseResult<Vec<Relationship>> {
    all.iter().map(|(id, kind, source, target)| edge(id, kind, source, target)).collect()
}

/// Stores a graph of new records.
pub(super) async fn store_all(
    store: &dyn GraphStore,
    entities: &[Entity],
    relationships: &[Relationship],
) -> CaseResult {
    for batch in entities.chunks(500) {
        let report = store.upsert_entities(batch.to_vec()).await?;
        expect::equal("entities created", &usize::try_from(report.created).ok(), &Some(batch.len()))?;
    }
    for batch in relationships.chunks(500) {
        let report = store.upsert_relationships(batch.to_vec()).await?;
        expect::equal("relationships created", &usize::try_from(report.created).ok(), &Some(batch.len()))?;
    }
    Ok(())
}

/// Returns every entity that the query finds, page by page, and checks that each page respects its limit and
/// advances.
pub(super) async fn find_entities(
    store: &dyn GraphStore,
    query: &EntityQuery,
    limit: usize,
) -> CaseResult<Vec<Entity>> {
    let mut all = Vec::new();
    let mut request = PageRequest::first(limit);
    loop {
        let page = store.find_entities(query, request.clone()).await?;
        expect::that(page.items.len() <= limit, format!("a page of at most {limit}"), page.items.len())?;
        all.extend(page.items);
        let Some(next) = page.next else { return Ok(all) };
        let moved = request.after.as_ref().is_none_or(|before| *before < next);
        expect::that(moved, "a next page after this one", &next)?;
        request = PageRequest::after(next, limit);
    }
}

/// Returns every relationship that the query finds, with the same checks.
pub(super) async fn find_relationships(
    store: &dyn GraphStore,
    query: &RelationshipQuery,
    limit: usize,
) -> CaseResult<Vec<Relationship>> {
    let mut all = Vec::new();
    let mut request = PageRequest::first(limit);
    loop {
        let page = store.find_relationships(query, request.clone()).await?;
        expect::that(page.items.len() <= limit, format!("a page of at most {limit}"), page.items.len())?;
        all.extend(page.items);
        let Some(next) = page.next else { return Ok(all) };
        let moved = request.after.as_ref().is_none_or(|before| *before < next);
        expect::that(moved, "a next page after this one", &next)?;
        request = PageRequest::after(next, limit);
    }
}

pub(super) async fn all_entities(store: &dyn GraphStore) -> CaseResult<Vec<Entity>> {
    find_entities(store, &EntityQuery::default(), 100).await
}

pub(super) async fn all_relationships(store: &dyn GraphStore) -> CaseResult<Vec<Relationship>> {
    find_relationships(store, &RelationshipQuery::default(), 100).await
}

/// Reads one entity that must exist.
pub(super) async fn read(store: &dyn GraphStore, id: &str) -> CaseResult<Entity> {
    let mut found = store.get_entities(&[entity_id(id)?]).await?;
    expect::equal("positions in the result", &found.len(), &1)?;
    expect::some(&format!("the entity {id:?}"), found.pop().flatten())
}

/// Checks that the graph contains exactly these records. A store that cannot list yet is asked for each of
/// them.
pub(super) async fn graph_is(
    what: &str,
    store: &dyn GraphStore,
    entities: &[Entity],
    relationships: &[Relationship],
) -> CaseResult {
    let (mut entities, mut relationships) = (entities.to_vec(), relationships.to_vec());
    entities.sort_by(|left, right| left.id.cmp(&right.id));
    relationships.sort_by(|left, right| left.id.cmp(&right.id));
    let ids: Vec<_> = entities.iter().map(|entity| entity.id.clone()).collect();
    let found = match all_entities(store).await {
        Err(Failure::Missing { .. }) => store.get_entities(&ids).await?.into_iter().flatten().collect(),
        found => found?,
    };
    expect::equal(&format!("{what}: entities"), &found, &entities)?;
    let ids: Vec<_> = relationships.iter().map(|one| one.id.clone()).collect();
    let found = match all_relationships(store).await {
        // A graph without relationships needs no method that reads them.
        Err(Failure::Missing { .. }) if ids.is_empty() => Vec::new(),
        Err(Failure::Missing { .. }) => store.get_relationships(&ids).await?.into_iter().flatten().collect(),
        found => found?,
    };
    expect::equal(&format!("{what}: relationships"), &found, &relationships)
}

/// Returns the ids and hops of a traversal, and the ids of its relationships, for a short comparison.
pub(super) fn outline(reached: &SubGraph) -> (Vec<(&str, u32)>, Vec<&str>) {
    (
        reached.entities.iter().map(|one| (one.entity.id.as_str(), one.hops)).collect(),
        reached.relationships.iter().map(|one| one.id.as_str()).collect(),
    )
}

/// Returns properties of every type, under names that a backend may use internally.
pub(super) fn rich_properties() -> Metadata {
    use serde_json::json;
    Metadata::new()
        .with("null", json!(null))
        .with("bools", json!([true, false]))
        .with("numbers", json!([0, -1, 1.5, 1e300, 5e-324, i64::MIN, u64::MAX, 1e16, -0.0]))
        .with("nested", json!({"": {"a.b": [[], {}, ""]}, "é": "e\u{301}"}))
        .with("", "the empty key")
        .with("id", "not the id")
        .with("type", json!({"source": 1}))
        .with("$$", "\"'`\\\n\t\u{1f}\u{7f} $$ }) RETURN 1 //")
}

/// The number of workers that write at the same time.
pub(super) const WORKERS: usize = 8;

/// Runs the write of each worker at the same time. Exactly one must succeed, and the others must fail with
/// `Conflict`. Returns the number of the one and its revision.
pub(super) async fn winner<F>(
    stores: &Handles<dyn GraphStore>,
    write: impl Fn(Arc<dyn GraphStore>, i64) -> F,
) -> CaseResult<(i64, Revision)>
where
    F: Future<Output = CaseResult<Result<Vec<GraphWritten>>>> + Send + 'static,
{
    let mut workers: JoinSet<CaseResult<Option<(i64, Revision)>>> = JoinSet::new();
    for worker in 0..WORKERS {
        let number = i64::try_from(worker).unwrap_or(i64::MAX);
        let written = write(Arc::clone(if worker % 2 == 0 { &stores.a } else { &stores.b }), number);
        workers.spawn(async move {
            match written.await? {
                Ok(written) => Ok(written.first().map(|one| (number, one.revision))),
                Err(error) if error.kind() == ErrorKind::Conflict => Ok(None),
                Err(error) => Err(Failure::from(error)),
            }
        });
    }
    let winners: Vec<_> = joined(workers).await?.into_iter().flatten().collect();
    match winners[..] {
        [winner] => Ok(winner),
        _ => Err(expect::broken("one winner", format!("{winners:?}"))),
    }
}
