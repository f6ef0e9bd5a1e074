//! The model of [`GraphStore`].

mod edges;
mod operation;
mod walk;
mod write;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::check::size;
use larder_kernel::storage::graph::{
    check_entities, check_entity_query, check_relationship_query, check_relationships,
};
use larder_kernel::{
    Capabilities, Contract, DeletedEntity, Entity, EntityId, EntityQuery, ErrorKind, GraphCounts, GraphStore,
    PageRequest, Relationship, RelationshipId, RelationshipQuery, Revision, UpsertReport,
};

use self::operation::Operation;
use super::compare::{Checked, Expected, same};
use super::recorder::{Recorder, id, json, owned_id, page};
use super::rng::Rng;
use super::shared::page_of;
use super::subject::Subject;
use crate::harness::StoreSet;

/// The state that the clauses require of a graph.
#[derive(Debug, Default)]
pub(super) struct Graph {
    entities: BTreeMap<EntityId, Entity>,
    relationships: BTreeMap<RelationshipId, Relationship>,
    /// The revisions of the entities whose last write returned one.
    revisions: BTreeMap<EntityId, Revision>,
    /// The same for relationships.
    edge_revisions: BTreeMap<RelationshipId, Revision>,
}

impl Graph {
    async fn upsert_entities(
        &mut self,
        store: &dyn GraphStore,
        batch: &[Entity],
        recorder: &mut Recorder,
    ) -> Checked {
        const CLAUSE: &str = "GRAPH-003";
        recorder.call(CLAUSE, |_| format!("upsert_entities({})", json(&batch)));
        let replaced = size(batch.iter().filter(|entity| self.entities.contains_key(&entity.id)).count());
        let report = UpsertReport::new(size(batch.len()).saturating_sub(replaced), replaced);
        let expected = check_entities(batch).map(|()| report).map_err(Into::into);
        same(recorder, CLAUSE, &store.upsert_entities(batch.to_vec()).await, &expected)?;
        if expected.is_ok() {
            self.entities.extend(batch.iter().map(|entity| (entity.id.clone(), entity.clone())));
            self.revisions.retain(|id, _| batch.iter().all(|entity| entity.id != *id));
        }
        Ok(())
    }

    async fn upsert_relationships(
        &mut self,
        store: &dyn GraphStore,
        batch: &[Relationship],
        recorder: &mut Recorder,
    ) -> Checked {
        let ends = |one: &Relationship| {
            self.entities.contains_key(&one.source) && self.entities.contains_key(&one.target)
        };
        let there = batch.iter().filter(|one| self.relationships.contains_key(&one.id)).count();
        let created = size(batch.len()).saturating_sub(size(there));
        let (clause, expected): (_, Expected<UpsertReport>) = match check_relationships(batch) {
            Err(refusal) => ("STORE-010", Err(refusal.into())),
            Ok(()) if !batch.iter().all(ends) => ("GRAPH-006", Err(ErrorKind::NotFound.into())),
            Ok(()) => ("GRAPH-007", Ok(UpsertReport::new(created, size(there)))),
        };
        recorder.call(clause, |_| format!("upsert_relationships({})", json(&batch)));
        same(recorder, clause, &store.upsert_relationships(batch.to_vec()).await, &expected)?;
        if expected.is_ok() {
            self.relationships.extend(batch.iter().map(|one| (one.id.clone(), one.clone())));
            self.edge_revisions.retain(|id, _| batch.iter().all(|one| one.id != *id));
        }
        Ok(())
    }

    async fn get_entities(
        &mut self,
        store: &dyn GraphStore,
        ids: &[EntityId],
        recorder: &mut Recorder,
    ) -> Checked {
        const CLAUSE: &str = "GRAPH-011";
        recorder.call(CLAUSE, |_| format!("get_entities(&[{}])", list(ids)));
        let expected = ids.iter().map(|id| self.entities.get(id).cloned()).collect();
        same(recorder, CLAUSE, &store.get_entities(ids).await, &Ok(expected))
    }

    async fn get_relationships(
        &mut self,
        store: &dyn GraphStore,
        ids: &[RelationshipId],
        recorder: &mut Recorder,
    ) -> Checked {
        const CLAUSE: &str = "GRAPH-012";
        recorder.call(CLAUSE, |_| format!("get_relationships(&[{}])", list(ids)));
        let expected = ids.iter().map(|id| self.relationships.get(id).cloned()).collect();
        same(recorder, CLAUSE, &store.get_relationships(ids).await, &Ok(expected))
    }

    async fn delete_entity(
        &mut self,
        store: &dyn GraphStore,
        entity: &EntityId,
        recorder: &mut Recorder,
    ) -> Checked {
        let existed = self.entities.remove(entity).is_some();
        self.revisions.remove(entity);
        let clause = if existed { "GRAPH-031" } else { "GRAPH-033" };
        recorder.call(clause, |_| format!("delete_entity({})", id(entity)));
        let before = self.relationships.len();
        self.relationships.retain(|_, one| one.source != *entity && one.target != *entity);
        let relationships = size(before - self.relationships.len());
        let left = &self.relationships;
        self.edge_revisions.retain(|id, _| left.contains_key(id));
        let expected = DeletedEntity::new(existed, relationships);
        same(recorder, clause, &store.delete_entity(entity).await, &Ok(expected))
    }

    async fn delete_relationship(
        &mut self,
        store: &dyn GraphStore,
        relationship: &RelationshipId,
        recorder: &mut Recorder,
    ) -> Checked {
        const CLAUSE: &str = "GRAPH-034";
        recorder.call(CLAUSE, |_| format!("delete_relationship({})", id(relationship)));
        let there = self.relationships.remove(relationship).is_some();
        self.edge_revisions.remove(relationship);
        same(recorder, CLAUSE, &store.delete_relationship(relationship).await, &Ok(there))
    }

    async fn find_entities(
        &mut self,
        store: &dyn GraphStore,
        (query, request): (&EntityQuery, &PageRequest<EntityId>),
        recorder: &mut Recorder,
    ) -> Checked {
        let clause = if request.after.is_some() { "GRAPH-036" } else { "GRAPH-035" };
        recorder.call(clause, |_| format!("find_entities(&{}, {})", json(query), page(request, owned_id)));
        let wanted = |entity: &&Entity| {
            query.entity_type.as_ref().is_none_or(|wanted| entity.entity_type == *wanted)
                && query.filter.as_ref().is_none_or(|filter| filter.matches(&entity.properties))
        };
        let found = self.entities.values().filter(wanted).cloned();
        let expected = check_entity_query(query, request)
            .map(|()| page_of(found, request, |entity| entity.id.clone()))
            .map_err(Into::into);
        same(recorder, clause, &store.find_entities(query, request.clone()).await, &expected)
    }

    async fn find_relationships(
        &mut self,
        store: &dyn GraphStore,
        (query, request): (&RelationshipQuery, &PageRequest<RelationshipId>),
        recorder: &mut Recorder,
    ) -> Checked {
        let clause = if request.after.is_some() { "GRAPH-038" } else { "GRAPH-037" };
        recorder
            .call(clause, |_| format!("find_relationships(&{}, {})", json(query), page(request, owned_id)));
        let wanted = |one: &&Relationship| {
            query.relationship_type.as_ref().is_none_or(|wanted| one.relationship_type == *wanted)
                && query.source.as_ref().is_none_or(|source| one.source == *source)
                && query.target.as_ref().is_none_or(|target| one.target == *target)
                && query.filter.as_ref().is_none_or(|filter| filter.matches(&one.properties))
        };
        let found = self.relationships.values().filter(wanted).cloned();
        let expected = check_relationship_query(query, request)
            .map(|()| page_of(found, request, |one| one.id.clone()))
            .map_err(Into::into);
        same(recorder, clause, &store.find_relationships(query, request.clone()).await, &expected)
    }

    async fn count(&mut self, store: &dyn GraphStore, recorder: &mut Recorder) -> Checked {
        const CLAUSE: &str = "GRAPH-039";
        recorder.call(CLAUSE, |_| "count()".to_owned());
        let expected = GraphCounts::new(size(self.entities.len()), size(self.relationships.len()));
        same(recorder, CLAUSE, &store.count().await, &Ok(expected))
    }

    async fn erase(&mut self, store: &dyn GraphStore, recorder: &mut Recorder) -> Checked {
        recorder.call("STORE-006", |_| "erase()".to_owned());
        same(recorder, "STORE-006", &store.erase().await, &Ok(()))?;
        *self = Self::default();
        Ok(())
    }
}

fn list<T: std::fmt::Display>(ids: &[T]) -> String {
    ids.iter().map(owned_id).collect::<Vec<_>>().join(", ")
}

#[async_trait]
impl Subject for Graph {
    const CONTRACT: Contract = Contract::Graph;
    const FIELD: &'static str = "graph";
    type Store = dyn GraphStore;
    type Operation = Operation;

    fn new(_declared: &Capabilities) -> Self {
        Self::default()
    }

    fn store(stores: &StoreSet) -> larder_kernel::Result<Arc<Self::Store>> {
        stores.graph()
    }

    fn draw(rng: &mut Rng<'_>) -> Operation {
        operation::draw(rng)
    }

    async fn step(&mut self, store: &Self::Store, operation: &Operation, recorder: &mut Recorder) -> Checked {
        match operation {
            Operation::Entities(batch) => self.upsert_entities(store, batch, recorder).await,
            Operation::Writes(batch) => self.write_entities(store, batch, recorder).await,
            Operation::Relationships(batch) => self.upsert_relationships(store, batch, recorder).await,
            Operation::EdgeWrites(batch) => self.write_relationships(store, batch, recorder).await,
            Operation::GetEntities(ids) => self.get_entities(store, ids, recorder).await,
            Operation::GetRelationships(ids) => self.get_relationships(store, ids, recorder).await,
            Operation::Neighbors { entity, query } => self.neighbors(store, (entity, query), recorder).await,
            Operation::DeleteEntity(entity) => self.delete_entity(store, entity, recorder).await,
            Operation::DeleteRelationship(one) => self.delete_relationship(store, one, recorder).await,
            Operation::FindEntities { query, page } => {
                self.find_entities(store, (query, page), recorder).await
            }
            Operation::FindRelationships { query, page } => {
                self.find_relationships(store, (query, page), recorder).await
            }
            Operation::Count => self.count(store, recorder).await,
            Operation::Erase => self.erase(store, recorder).await,
        }
    }

    async fn dump(&mut self, store: &Self::Store, recorder: &mut Recorder) -> Checked {
        self.count(store, recorder).await?;
        let all = (&EntityQuery::default(), &PageRequest::first(10_000));
        self.find_entities(store, all, recorder).await?;
        let all = (&RelationshipQuery::default(), &PageRequest::first(10_000));
        self.find_relationships(store, all, recorder).await
    }
}
