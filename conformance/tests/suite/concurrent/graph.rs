//! Faulty graph stores.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use larder_agents::storage::InMemoryGraphStore;
use larder_conformance::{Harness, StoreSet};
use larder_kernel::{
    DeletedEntity, Entity, EntityId, EntityQuery, EntityWrite, GraphCondition, GraphCounts, GraphWritten,
    NeighborQuery, Page, PageRequest, Relationship, RelationshipId, RelationshipQuery, RelationshipWrite,
    Result, SubGraph, UpsertReport,
};

use super::frame::{assert_caught, assert_explained, pause, serve};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    /// Checks that the entity exists, waits, and deletes it.
    LooksBeforeDeletion,
    /// Counts the new items, waits, and writes.
    CountsBeforeUpsert,
    /// Keeps the relationships of deleted entities, for each handle.
    DanglingReads,
    /// Checks that the entity does not exist, waits, and writes it.
    LooksBeforeCreation,
    /// Checks that the relationship does not exist, waits, and writes it.
    LooksBeforeRelationship,
}

fn backend(defect: Defect) -> Arc<dyn Harness> {
    serve(move |place, namespace, _| {
        let inner = InMemoryGraphStore::open(place, namespace);
        let wrong = Wrong { inner, defect, seen: Mutex::default() };
        StoreSet::default().with_graph(Arc::new(wrong))
    })
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryGraphStore,
    defect: Defect,
    seen: Mutex<BTreeMap<RelationshipId, Relationship>>,
}

wrong! {
    GraphStore for Wrong {
        async fn upsert_entities(&self, entities: Vec<Entity>) -> Result<UpsertReport> {
            if self.defect == Defect::CountsBeforeUpsert {
                let ids: Vec<EntityId> = entities.iter().map(|entity| entity.id.clone()).collect();
                let there = self.inner.get_entities(&ids).await?.iter().flatten().count();
                pause().await;
                self.inner.upsert_entities(entities).await?;
                let replaced = u64::try_from(there).unwrap();
                return Ok(UpsertReport::new(u64::try_from(ids.len()).unwrap() - replaced, replaced));
            }
            self.inner.upsert_entities(entities).await
        }

        async fn write_entities(&self, mut writes: Vec<EntityWrite>) -> Result<Vec<GraphWritten>> {
            if self.defect == Defect::LooksBeforeCreation {
                for write in &mut writes {
                    let id = write.entity.id.clone();
                    let stored = self.inner.get_stored_entities(&[id]).await?.remove(0);
                    write.check_condition(stored.map(|stored| stored.revision))?;
                    write.condition = GraphCondition::None;
                }
                pause().await;
            }
            self.inner.write_entities(writes).await
        }

        async fn write_relationships(&self, mut writes: Vec<RelationshipWrite>) -> Result<Vec<GraphWritten>> {
            if self.defect == Defect::LooksBeforeRelationship {
                for write in &mut writes {
                    let id = write.relationship.id.clone();
                    let stored = self.inner.get_stored_relationships(&[id]).await?.remove(0);
                    write.check_condition(stored.map(|stored| stored.revision))?;
                    write.condition = GraphCondition::None;
                }
                pause().await;
            }
            self.inner.write_relationships(writes).await
        }

        async fn delete_entity(&self, entity: &EntityId) -> Result<DeletedEntity> {
            if self.defect == Defect::LooksBeforeDeletion {
                let there = self.inner.get_entities(std::slice::from_ref(entity)).await?;
                pause().await;
                let mut deleted = self.inner.delete_entity(entity).await?;
                deleted.existed = there[0].is_some();
                return Ok(deleted);
            }
            self.inner.delete_entity(entity).await
        }

        async fn get_relationships(&self, ids: &[RelationshipId]) -> Result<Vec<Option<Relationship>>> {
            let mut found = self.inner.get_relationships(ids).await?;
            if self.defect == Defect::DanglingReads {
                let mut seen = self.seen.lock().unwrap();
                for (id, found) in ids.iter().zip(&mut found) {
                    match found {
                        Some(found) => drop(seen.insert(id.clone(), found.clone())),
                        None => *found = seen.get(id).cloned(),
                    }
                }
            }
            Ok(found)
        }
    }
    upsert_relationships(relationships: Vec<Relationship>) -> UpsertReport;
    get_entities(ids: &[EntityId]) -> Vec<Option<Entity>>;
    neighbors(entity: &EntityId, query: &NeighborQuery) -> SubGraph;
    delete_relationship(relationship: &RelationshipId) -> bool;
    find_entities(query: &EntityQuery, page: PageRequest<EntityId>) -> Page<Entity, EntityId>;
    find_relationships(query: &RelationshipQuery, page: PageRequest<RelationshipId>)
        -> Page<Relationship, RelationshipId>;
    count() -> GraphCounts;
}

#[test]
fn the_control_is_explained() {
    assert_explained(&backend(Defect::None));
}

#[test]
fn a_deletion_that_looks_first_is_caught() {
    // Later clients also detect a wrong reply that nothing existed.
    let clauses = ["GRAPH-031", "GRAPH-003", "GRAPH-006", "GRAPH-010", "GRAPH-034", "STORE-002"];
    assert_caught(&clauses, &backend(Defect::LooksBeforeDeletion));
}

#[test]
fn an_upsert_that_counts_first_is_caught() {
    assert_caught(
        &["GRAPH-003", "GRAPH-006", "GRAPH-010", "GRAPH-031", "STORE-002"],
        &backend(Defect::CountsBeforeUpsert),
    );
}

#[test]
fn a_creation_that_looks_first_is_caught() {
    // Other clients also detect a wrong count of their upserts, and reads that change.
    let clauses = ["GRAPH-050", "GRAPH-046", "GRAPH-003", "GRAPH-006", "GRAPH-010", "GRAPH-031", "STORE-002"];
    assert_caught(&clauses, &backend(Defect::LooksBeforeCreation));
}

#[test]
fn a_creation_of_a_relationship_that_looks_first_is_caught() {
    let clauses = ["GRAPH-061", "GRAPH-057", "GRAPH-060", "GRAPH-006", "GRAPH-010", "GRAPH-031", "GRAPH-034"];
    assert_caught(&clauses, &backend(Defect::LooksBeforeRelationship));
}

#[test]
fn a_relationship_without_its_entity_is_caught() {
    assert_caught(&["STORE-002", "GRAPH-010", "GRAPH-031", "GRAPH-034"], &backend(Defect::DanglingReads));
}
