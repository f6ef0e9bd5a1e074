//! Entities and relationships in Postgres, without an extension: a function in the database traverses them.

mod edges;
mod find;
pub(crate) mod page;
mod rows;
pub(crate) mod upsert;
mod walk;
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

use super::Postgres;
use super::engine::Engine;
use crate::steps::Steps;

impl Postgres {
    /// Returns the graph store of `namespace`.
    #[must_use]
    pub fn graph(&self, namespace: Namespace) -> PostgresGraphStore {
        PostgresGraphStore { engine: self.engine.clone(), namespace }
    }
}

/// A [`GraphStore`] in a Postgres database, created by [`Postgres::graph`].
#[derive(Clone)]
pub struct PostgresGraphStore {
    engine: Engine,
    namespace: Namespace,
}

impl PostgresGraphStore {
    async fn write(&self, operation: &'static str, writes: &[EntityWrite]) -> Result<Vec<GraphWritten>> {
        self.engine
            .transaction(operation, &(&self.namespace, writes), |connection, &(namespace, writes)| {
                Box::pin(write::write_entities(connection, namespace, writes))
            })
            .await
    }

    async fn write_edges(
        &self,
        operation: &'static str,
        writes: &[RelationshipWrite],
    ) -> Result<Vec<GraphWritten>> {
        self.engine
            .transaction(operation, &(&self.namespace, writes), move |connection, &(namespace, writes)| {
                Box::pin(edges::write(connection, namespace, writes, operation))
            })
            .await
    }
}

store! {
    PostgresGraphStore as store,
    shows: { engine: &store.engine },
    capabilities: store.engine.capabilities(),
    options: [
        EntityCondition, EntityMode, RelationshipCondition, RelationshipMode, NeighborsDirection,
        NeighborsTypes, EntitiesType, EntitiesFilter, RelationshipsType, RelationshipsSource,
        RelationshipsTarget, RelationshipsFilter
    ],
    erase: {
        let mut steps = Steps::default();
        for delete in write::ERASE {
            let step = || {
                store.engine.transaction("graph.erase", &store.namespace, move |connection, namespace| {
                    write::erase_step(connection, namespace, delete)
                })
            };
            steps.run(step).await?;
        }
        Ok(())
    },
}

#[async_trait]
impl GraphStore for PostgresGraphStore {
    async fn upsert_entities(&self, entities: Vec<Entity>) -> Result<UpsertReport> {
        check_entities(&entities)?;
        let writes: Vec<_> = entities.into_iter().map(EntityWrite::replace).collect();
        Ok(UpsertReport::of(&self.write("graph.upsert_entities", &writes).await?))
    }

    async fn write_entities(&self, writes: Vec<EntityWrite>) -> Result<Vec<GraphWritten>> {
        check_entity_writes(&writes)?;
        self.write("graph.write_entities", &writes).await
    }

    async fn upsert_relationships(&self, relationships: Vec<Relationship>) -> Result<UpsertReport> {
        check_relationships(&relationships)?;
        let writes: Vec<_> = relationships.into_iter().map(RelationshipWrite::replace).collect();
        Ok(UpsertReport::of(&self.write_edges("graph.upsert_relationships", &writes).await?))
    }

    async fn write_relationships(&self, writes: Vec<RelationshipWrite>) -> Result<Vec<GraphWritten>> {
        check_relationship_writes(&writes)?;
        self.write_edges("graph.write_relationships", &writes).await
    }

    async fn get_entities(&self, ids: &[EntityId]) -> Result<Vec<Option<Entity>>> {
        const OPERATION: &str = "graph.get_entities";
        check::at_most(OPERATION, "ids", ids.len(), PAGE_ITEMS_MAX)?;
        let names: Vec<&str> = ids.iter().map(EntityId::as_str).collect();
        let found = self
            .engine
            .read(OPERATION, &(&self.namespace, &names), |connection, &(namespace, names)| {
                Box::pin(rows::entities(connection, namespace, names))
            })
            .await?;
        Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
    }

    async fn get_stored_entities(&self, ids: &[EntityId]) -> Result<Vec<Option<StoredEntity>>> {
        const OPERATION: &str = "graph.get_stored_entities";
        check::at_most(OPERATION, "ids", ids.len(), PAGE_ITEMS_MAX)?;
        let names: Vec<&str> = ids.iter().map(EntityId::as_str).collect();
        let found = self
            .engine
            .read(OPERATION, &(&self.namespace, &names), |connection, &(namespace, names)| {
                Box::pin(rows::stored_entities(connection, namespace, names))
            })
            .await?;
        Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
    }

    async fn get_relationships(&self, ids: &[RelationshipId]) -> Result<Vec<Option<Relationship>>> {
        const OPERATION: &str = "graph.get_relationships";
        check::at_most(OPERATION, "ids", ids.len(), PAGE_ITEMS_MAX)?;
        let names: Vec<&str> = ids.iter().map(RelationshipId::as_str).collect();
        let found = self
            .engine
            .read(OPERATION, &(&self.namespace, &names), |connection, &(namespace, names)| {
                Box::pin(rows::relationships(connection, namespace, names))
            })
            .await?;
        Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
    }

    async fn get_stored_relationships(
        &self,
        ids: &[RelationshipId],
    ) -> Result<Vec<Option<StoredRelationship>>> {
        const OPERATION: &str = "graph.get_stored_relationships";
        check::at_most(OPERATION, "ids", ids.len(), PAGE_ITEMS_MAX)?;
        let names: Vec<&str> = ids.iter().map(RelationshipId::as_str).collect();
        let found = self
            .engine
            .read(OPERATION, &(&self.namespace, &names), |connection, &(namespace, names)| {
                Box::pin(rows::stored_relationships(connection, namespace, names))
            })
            .await?;
        Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
    }

    async fn neighbors(&self, entity: &EntityId, query: &NeighborQuery) -> Result<SubGraph> {
        check_neighbors(query)?;
        self.engine
            .read(
                "graph.neighbors",
                &(&self.namespace, entity, query),
                |connection, &(namespace, entity, query)| {
                    Box::pin(walk::neighbors(connection, namespace, entity, query))
                },
            )
            .await
    }

    async fn delete_entity(&self, entity: &EntityId) -> Result<DeletedEntity> {
        self.engine
            .transaction(
                "graph.delete_entity",
                &(&self.namespace, entity),
                |connection, &(namespace, entity)| {
                    Box::pin(write::delete_entity(connection, namespace, entity))
                },
            )
            .await
    }

    async fn delete_relationship(&self, relationship: &RelationshipId) -> Result<bool> {
        self.engine
            .transaction(
                "graph.delete_relationship",
                &(&self.namespace, relationship),
                |connection, &(namespace, relationship)| {
                    Box::pin(write::delete_relationship(connection, namespace, relationship))
                },
            )
            .await
    }

    async fn find_entities(
        &self,
        query: &EntityQuery,
        page: PageRequest<EntityId>,
    ) -> Result<Page<Entity, EntityId>> {
        const OPERATION: &str = "graph.find_entities";
        check_entity_query(query, &page)?;
        if query.filter.is_none() {
            return self
                .engine
                .read(OPERATION, &(&self.namespace, query, &page), |connection, &(namespace, query, page)| {
                    Box::pin(find::find_entities(connection, namespace, query, page))
                })
                .await;
        }
        self.engine
            .snapshot(OPERATION, &(&self.namespace, query, &page), |connection, &(namespace, query, page)| {
                Box::pin(find::find_entities(connection, namespace, query, page))
            })
            .await
    }

    async fn find_relationships(
        &self,
        query: &RelationshipQuery,
        page: PageRequest<RelationshipId>,
    ) -> Result<Page<Relationship, RelationshipId>> {
        const OPERATION: &str = "graph.find_relationships";
        check_relationship_query(query, &page)?;
        if query.filter.is_none() {
            return self
                .engine
                .read(OPERATION, &(&self.namespace, query, &page), |connection, &(namespace, query, page)| {
                    Box::pin(find::find_relationships(connection, namespace, query, page))
                })
                .await;
        }
        self.engine
            .snapshot(OPERATION, &(&self.namespace, query, &page), |connection, &(namespace, query, page)| {
                Box::pin(find::find_relationships(connection, namespace, query, page))
            })
            .await
    }

    async fn count(&self) -> Result<GraphCounts> {
        self.engine
            .read("graph.count", &self.namespace, |connection, namespace| {
                Box::pin(find::count(connection, namespace))
            })
            .await
    }
}
