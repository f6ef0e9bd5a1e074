//! Entities and relationships in SQLite, traversed level by level in one snapshot.

mod find;
mod rows;
mod traversal;
mod write;

use async_trait::async_trait;
use larder_kernel::limits::PAGE_ITEMS_MAX;
use larder_kernel::storage::graph::{
    check_entities, check_entity_query, check_entity_writes, check_neighbors, check_relationship_query,
    check_relationship_writes, check_relationships,
};
use larder_kernel::{
    DeletedEntity, Entity, EntityId, EntityQuery, EntityWrite, GraphCounts, GraphStore, GraphWritten,
    Namespace, NeighborQuery, Page, PageRequest, Relationship, RelationshipId, RelationshipQuery,
    RelationshipWrite, Result, StoredEntity, StoredRelationship, SubGraph, UpsertReport, check,
};
use rusqlite::Connection;

use super::engine::{Engine, ReadBudget};
use super::{Sqlite, capabilities};
use crate::steps::Steps;
use traversal::Traversal;

impl Sqlite {
    /// Returns the graph store of `namespace`.
    #[must_use]
    pub fn graph(&self, namespace: Namespace) -> SqliteGraphStore {
        SqliteGraphStore { engine: self.engine.clone(), namespace }
    }
}

/// A [`GraphStore`] in an SQLite file, created by [`Sqlite::graph`].
#[derive(Clone)]
pub struct SqliteGraphStore {
    engine: Engine,
    namespace: Namespace,
}

impl SqliteGraphStore {
    async fn write(&self, operation: &'static str, writes: Vec<EntityWrite>) -> Result<Vec<GraphWritten>> {
        let namespace = self.namespace.clone();
        let write = move |connection: &Connection| write::write_entities(connection, &namespace, &writes);
        self.engine.write(operation, write).await
    }

    async fn write_edges(
        &self,
        operation: &'static str,
        writes: Vec<RelationshipWrite>,
    ) -> Result<Vec<GraphWritten>> {
        let namespace = self.namespace.clone();
        let write = move |connection: &Connection| {
            write::write_relationships(connection, &namespace, &writes, operation)
        };
        self.engine.write(operation, write).await
    }
}

store! {
    SqliteGraphStore as store,
    shows: { engine: &store.engine },
    capabilities: capabilities(&store.engine),
    options: [
        EntityCondition, EntityMode, RelationshipCondition, RelationshipMode, NeighborsDirection,
        NeighborsTypes, EntitiesType, EntitiesFilter, RelationshipsType, RelationshipsSource,
        RelationshipsTarget, RelationshipsFilter
    ],
    erase: {
        let mut steps = Steps::default();
        for delete in write::ERASE {
            let step = || {
                let namespace = store.namespace.clone();
                let step = move |connection: &Connection| write::erase_step(connection, &namespace, delete);
                store.engine.write("graph.erase", step)
            };
            steps.run(step).await?;
        }
        Ok(())
    },
}

#[async_trait]
impl GraphStore for SqliteGraphStore {
    async fn upsert_entities(&self, entities: Vec<Entity>) -> Result<UpsertReport> {
        check_entities(&entities)?;
        let writes = entities.into_iter().map(EntityWrite::replace).collect();
        Ok(UpsertReport::of(&self.write("graph.upsert_entities", writes).await?))
    }

    async fn write_entities(&self, writes: Vec<EntityWrite>) -> Result<Vec<GraphWritten>> {
        check_entity_writes(&writes)?;
        self.write("graph.write_entities", writes).await
    }

    async fn upsert_relationships(&self, relationships: Vec<Relationship>) -> Result<UpsertReport> {
        check_relationships(&relationships)?;
        let writes = relationships.into_iter().map(RelationshipWrite::replace).collect();
        Ok(UpsertReport::of(&self.write_edges("graph.upsert_relationships", writes).await?))
    }

    async fn write_relationships(&self, writes: Vec<RelationshipWrite>) -> Result<Vec<GraphWritten>> {
        check_relationship_writes(&writes)?;
        self.write_edges("graph.write_relationships", writes).await
    }

    async fn get_entities(&self, ids: &[EntityId]) -> Result<Vec<Option<Entity>>> {
        const OPERATION: &str = "graph.get_entities";
        check::at_most(OPERATION, "ids", ids.len(), PAGE_ITEMS_MAX)?;
        let (namespace, ids) = (self.namespace.clone(), ids.to_vec());
        self.engine.read(OPERATION, move |connection| rows::get_entities(connection, &namespace, &ids)).await
    }

    async fn get_stored_entities(&self, ids: &[EntityId]) -> Result<Vec<Option<StoredEntity>>> {
        const OPERATION: &str = "graph.get_stored_entities";
        check::at_most(OPERATION, "ids", ids.len(), PAGE_ITEMS_MAX)?;
        let (namespace, ids) = (self.namespace.clone(), ids.to_vec());
        let read = move |connection: &Connection| {
            ids.iter().map(|id| rows::stored_entity(connection, &namespace, id)).collect()
        };
        self.engine.read(OPERATION, read).await
    }

    async fn get_relationships(&self, ids: &[RelationshipId]) -> Result<Vec<Option<Relationship>>> {
        const OPERATION: &str = "graph.get_relationships";
        check::at_most(OPERATION, "ids", ids.len(), PAGE_ITEMS_MAX)?;
        let (namespace, ids) = (self.namespace.clone(), ids.to_vec());
        self.engine
            .read(OPERATION, move |connection| rows::get_relationships(connection, &namespace, &ids))
            .await
    }

    async fn get_stored_relationships(
        &self,
        ids: &[RelationshipId],
    ) -> Result<Vec<Option<StoredRelationship>>> {
        const OPERATION: &str = "graph.get_stored_relationships";
        check::at_most(OPERATION, "ids", ids.len(), PAGE_ITEMS_MAX)?;
        let (namespace, ids) = (self.namespace.clone(), ids.to_vec());
        let read = move |connection: &Connection| {
            ids.iter().map(|id| rows::stored_relationship(connection, &namespace, id)).collect()
        };
        self.engine.read(OPERATION, read).await
    }

    async fn neighbors(&self, entity: &EntityId, query: &NeighborQuery) -> Result<SubGraph> {
        const OPERATION: &str = "graph.neighbors";
        check_neighbors(query)?;
        let (namespace, entity, query) = (self.namespace.clone(), entity.clone(), query.clone());
        let begin = move || {
            let mut traversal = Traversal::new(&namespace, &entity, &query);
            move |connection: &Connection, budget: &mut ReadBudget| traversal.slice(connection, budget)
        };
        self.engine.read_in_slices(OPERATION, begin).await
    }

    async fn delete_entity(&self, entity: &EntityId) -> Result<DeletedEntity> {
        let (namespace, entity) = (self.namespace.clone(), entity.clone());
        self.engine
            .write("graph.delete_entity", move |connection| {
                write::delete_entity(connection, &namespace, &entity)
            })
            .await
    }

    async fn delete_relationship(&self, relationship: &RelationshipId) -> Result<bool> {
        let (namespace, relationship) = (self.namespace.clone(), relationship.clone());
        self.engine
            .write("graph.delete_relationship", move |connection| {
                write::delete_relationship(connection, &namespace, &relationship)
            })
            .await
    }

    async fn find_entities(
        &self,
        query: &EntityQuery,
        page: PageRequest<EntityId>,
    ) -> Result<Page<Entity, EntityId>> {
        check_entity_query(query, &page)?;
        let (namespace, query) = (self.namespace.clone(), query.clone());
        self.engine
            .read("graph.find_entities", move |connection| {
                find::find_entities(connection, &namespace, &query, &page)
            })
            .await
    }

    async fn find_relationships(
        &self,
        query: &RelationshipQuery,
        page: PageRequest<RelationshipId>,
    ) -> Result<Page<Relationship, RelationshipId>> {
        check_relationship_query(query, &page)?;
        let (namespace, query) = (self.namespace.clone(), query.clone());
        self.engine
            .read("graph.find_relationships", move |connection| {
                find::find_relationships(connection, &namespace, &query, &page)
            })
            .await
    }

    async fn count(&self) -> Result<GraphCounts> {
        let namespace = self.namespace.clone();
        self.engine.read("graph.count", move |connection| find::count(connection, &namespace)).await
    }
}

#[cfg(test)]
mod tests;
