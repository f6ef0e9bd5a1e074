//! Entities and relationships in an AGE graph: nodes and edges, written and traversed through the graph's
//! tables.

mod edges;
mod find;
mod rows;
pub(super) mod verify;
mod walk;
mod write;

use async_trait::async_trait;
use larder_kernel::limits::PAGE_ITEMS_MAX;
use larder_kernel::storage::graph::{
    check_cypher, check_entities, check_entity_query, check_entity_writes, check_neighbors,
    check_relationship_query, check_relationship_writes, check_relationships,
};
use larder_kernel::{
    CypherCapable, CypherRow, DeletedEntity, Entity, EntityId, EntityQuery, EntityWrite, Error, ErrorKind,
    GraphCounts, GraphStore, GraphWritten, Metadata, Namespace, NeighborQuery, Outcome, Page, PageRequest,
    Relationship, RelationshipId, RelationshipQuery, RelationshipWrite, Result, StoredEntity,
    StoredRelationship, SubGraph, UpsertReport, check,
};

use super::schema::{self, GraphName, is_absent, or_empty};
use super::{agtype, cypher, query};
use crate::postgres::engine::Engine;

/// The maximum number of attempts of a call whose graph another client erases before the call can use it.
const MAKINGS_MAX: u32 = 10;

/// A [`GraphStore`] in AGE that also runs openCypher queries, created by [`Age::graph`](super::Age::graph).
#[derive(Clone)]
pub struct AgeGraphStore {
    engine: Engine,
    namespace: Namespace,
    graph: GraphName,
}

impl AgeGraphStore {
    pub(super) fn new(engine: Engine, namespace: Namespace) -> Self {
        let graph = GraphName::of(&namespace);
        Self { engine, namespace, graph }
    }

    async fn make_graph(&self, operation: &'static str) -> Result<()> {
        self.engine
            .transaction(operation, &(&self.namespace, &self.graph), |connection, &(namespace, graph)| {
                Box::pin(schema::make_graph(connection, namespace, graph))
            })
            .await
    }

    async fn write(&self, operation: &'static str, writes: &[EntityWrite]) -> Result<Vec<GraphWritten>> {
        for _ in 0..MAKINGS_MAX {
            let written = self
                .engine
                .transaction(operation, &(&self.graph, writes), |connection, &(graph, writes)| {
                    Box::pin(async move {
                        match write::write_entities(connection, graph, writes).await {
                            Err(failure) if is_absent(&failure) => Ok(None),
                            written => written.map(Some),
                        }
                    })
                })
                .await?;
            if let Some(written) = written {
                return Ok(written);
            }
            self.make_graph(operation).await?;
        }
        Err(erased_again_and_again(operation))
    }

    async fn write_edges(
        &self,
        operation: &'static str,
        writes: &[RelationshipWrite],
    ) -> Result<Vec<GraphWritten>> {
        self.engine
            .transaction(operation, &(&self.graph, writes), move |connection, &(graph, writes)| {
                Box::pin(edges::write(connection, graph, writes, operation))
            })
            .await
    }
}

fn erased_again_and_again(operation: &'static str) -> Error {
    Error::new(
        ErrorKind::Timeout,
        operation,
        "the namespace was erased during every attempt; try again later",
    )
    .with_outcome(Outcome::NotApplied)
}

store! {
    AgeGraphStore as store,
    shows: { engine: &store.engine },
    capabilities: super::capabilities(&store.engine),
    options: [
        EntityCondition, EntityMode, RelationshipCondition, RelationshipMode, NeighborsDirection,
        NeighborsTypes, EntitiesType, EntitiesFilter, RelationshipsType, RelationshipsSource,
        RelationshipsTarget, RelationshipsFilter
    ],
    erase: store.engine
        .transaction("graph.erase", &(&store.namespace, &store.graph), |connection, &(namespace, graph)| {
            Box::pin(schema::drop_graph(connection, namespace, graph))
        })
        .await,
}

#[async_trait]
impl GraphStore for AgeGraphStore {
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
            .read(OPERATION, &(&self.graph, &names), |connection, &(graph, names)| {
                Box::pin(async move { or_empty(rows::entities(connection, graph, names).await) })
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
            .read(OPERATION, &(&self.graph, &names), |connection, &(graph, names)| {
                Box::pin(async move { or_empty(rows::stored_entities(connection, graph, names).await) })
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
            .read(OPERATION, &(&self.graph, &names), |connection, &(graph, names)| {
                Box::pin(async move { or_empty(rows::relationships(connection, graph, names).await) })
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
            .read(OPERATION, &(&self.graph, &names), |connection, &(graph, names)| {
                Box::pin(async move { or_empty(rows::stored_relationships(connection, graph, names).await) })
            })
            .await?;
        Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
    }

    async fn neighbors(&self, entity: &EntityId, query: &NeighborQuery) -> Result<SubGraph> {
        check_neighbors(query)?;
        self.engine
            .snapshot(
                "graph.neighbors",
                &(&self.graph, entity, query),
                |connection, &(graph, entity, query)| {
                    Box::pin(async move { or_empty(walk::neighbors(connection, graph, entity, query).await) })
                },
            )
            .await
    }

    async fn delete_entity(&self, entity: &EntityId) -> Result<DeletedEntity> {
        self.engine
            .transaction("graph.delete_entity", &(&self.graph, entity), |connection, &(graph, entity)| {
                Box::pin(async move { or_empty(write::delete_entity(connection, graph, entity).await) })
            })
            .await
    }

    async fn delete_relationship(&self, relationship: &RelationshipId) -> Result<bool> {
        self.engine
            .transaction(
                "graph.delete_relationship",
                &(&self.graph, relationship),
                |connection, &(graph, relationship)| {
                    Box::pin(async move {
                        or_empty(write::delete_relationship(connection, graph, relationship).await)
                    })
                },
            )
            .await
    }

    async fn find_entities(
        &self,
        query: &EntityQuery,
        page: PageRequest<EntityId>,
    ) -> Result<Page<Entity, EntityId>> {
        check_entity_query(query, &page)?;
        let found = self
            .engine
            .snapshot(
                "graph.find_entities",
                &(&self.graph, query, &page),
                |connection, &(graph, query, page)| {
                    Box::pin(async move {
                        or_empty(find::find_entities(connection, graph, query, page).await.map(Some))
                    })
                },
            )
            .await?;
        Ok(found.unwrap_or_else(Page::empty))
    }

    async fn find_relationships(
        &self,
        query: &RelationshipQuery,
        page: PageRequest<RelationshipId>,
    ) -> Result<Page<Relationship, RelationshipId>> {
        check_relationship_query(query, &page)?;
        let found = self
            .engine
            .snapshot(
                "graph.find_relationships",
                &(&self.graph, query, &page),
                |connection, &(graph, query, page)| {
                    Box::pin(async move {
                        or_empty(find::find_relationships(connection, graph, query, page).await.map(Some))
                    })
                },
            )
            .await?;
        Ok(found.unwrap_or_else(Page::empty))
    }

    async fn count(&self) -> Result<GraphCounts> {
        self.engine
            .read("graph.count", &self.graph, |connection, graph| {
                Box::pin(async move { or_empty(find::count(connection, graph).await) })
            })
            .await
    }

    fn as_cypher(&self) -> Option<&dyn CypherCapable> {
        Some(self)
    }
}

#[async_trait]
impl CypherCapable for AgeGraphStore {
    async fn cypher(&self, query: &str, parameters: Metadata) -> Result<Vec<CypherRow>> {
        check_cypher(query, &parameters)?;
        let read = query::read(query)?;
        let parameters = agtype::of_metadata(&parameters);
        let call = cypher::Call { graph: &self.graph, text: query, query: &read, parameters: &parameters };
        for _ in 0..MAKINGS_MAX {
            let rows = self
                .engine
                .snapshot(cypher::OPERATION, &call, |connection, call| {
                    Box::pin(cypher::run(connection, call))
                })
                .await?;
            if let Some(rows) = rows {
                return Ok(rows);
            }
            // AGE can only query an existing graph.
            self.make_graph(cypher::OPERATION).await?;
        }
        Err(erased_again_and_again(cypher::OPERATION))
    }
}
