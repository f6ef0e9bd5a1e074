//! Knowledge graphs in memory, on petgraph.

mod model;
#[cfg(test)]
mod tests;
mod walk;

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use async_trait::async_trait;
use larder_kernel::check::size;
use larder_kernel::storage::graph::{
    check_entities, check_entity_query, check_neighbors, check_relationship_query, check_relationships,
};
use larder_kernel::storage::vector::check_ids;
use larder_kernel::{
    Capabilities, DeletedEntity, Durability, Entity, EntityId, EntityQuery, GraphCounts, GraphStore,
    Namespace, NeighborQuery, Page, PageRequest, Relationship, RelationshipId, RelationshipQuery, Result,
    Store, SubGraph, UpsertReport,
};

use self::model::Graph;
use super::MemoryPlace;
use super::offload;
use super::place::default_namespace;

/// Steps that one visited entity or relationship counts for.
const VISIT_STEPS: usize = 32;
/// Relationships of one entity that are counted before a read: enough to tell long work from short.
const VISITS_COUNTED: usize = 16 * 1024;

/// A [`GraphStore`] in memory.
///
/// Reads share the graph and writes have it alone; each is one step. Walks and scans of large graphs run on a thread
/// that may block.
///
/// ```
/// use larder_agents::storage::InMemoryGraphStore;
/// use larder_kernel::{
///     Entity, EntityId, EntityType, GraphStore, NeighborQuery, Relationship, RelationshipId, RelationshipType,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let store = InMemoryGraphStore::new();
/// let (ada, london) = (EntityId::new("ada")?, EntityId::new("london")?);
/// let entities = vec![
///     Entity::new(ada.clone(), EntityType::new("person")?),
///     Entity::new(london.clone(), EntityType::new("place")?),
/// ];
/// store.upsert_entities(entities).await?;
/// let lives_in = RelationshipType::new("lives_in")?;
/// let relationship = Relationship::new(RelationshipId::new("r1")?, lives_in, ada.clone(), london);
/// store.upsert_relationships(vec![relationship]).await?;
///
/// let around = store.neighbors(&ada, &NeighborQuery::depth(1)).await?;
/// assert_eq!(around.entities[1].entity.id.as_str(), "london");
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct InMemoryGraphStore {
    place: MemoryPlace,
    namespace: Namespace,
    space: Arc<Space>,
}

#[derive(Default)]
struct Space {
    graph: RwLock<Graph>,
}

impl Space {
    fn read(&self) -> RwLockReadGuard<'_, Graph> {
        self.graph.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Graph> {
        self.graph.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl InMemoryGraphStore {
    /// A store in a place of its own.
    #[must_use]
    pub fn new() -> Self {
        Self::open(&MemoryPlace::new(), default_namespace())
    }

    /// The store of a namespace at a place.
    #[must_use]
    pub fn open(place: &MemoryPlace, namespace: Namespace) -> Self {
        Self { space: place.space(&namespace), place: place.clone(), namespace }
    }

    /// Runs `look` on the graph: away from the runtime where it visits many items.
    async fn look<T: Send + 'static>(
        &self,
        operation: &'static str,
        visits: usize,
        look: impl FnOnce(&Graph) -> T + Send + 'static,
    ) -> Result<T> {
        let space = self.space.clone();
        offload::run(operation, visits.saturating_mul(VISIT_STEPS), move || Ok(look(&space.read()))).await
    }
}

impl Default for InMemoryGraphStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for InMemoryGraphStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InMemoryGraphStore").finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for InMemoryGraphStore {
    fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities::new(Durability::None)
    }

    async fn erase(&self) -> Result<()> {
        let gone = std::mem::take(&mut *self.space.write());
        self.place.release(gone.bytes());
        Ok(())
    }
}

#[async_trait]
impl GraphStore for InMemoryGraphStore {
    async fn upsert_entities(&self, entities: Vec<Entity>) -> Result<UpsertReport> {
        check_entities(&entities)?;
        self.space.write().upsert_entities(&self.place, entities)
    }

    async fn upsert_relationships(&self, relationships: Vec<Relationship>) -> Result<UpsertReport> {
        check_relationships(&relationships)?;
        self.space.write().upsert_relationships(&self.place, relationships)
    }

    async fn get_entities(&self, ids: &[EntityId]) -> Result<Vec<Option<Entity>>> {
        check_ids("graph.get_entities", ids)?;
        let graph = self.space.read();
        Ok(ids.iter().map(|id| graph.entity(id).map(|entity| entity.as_ref().clone())).collect())
    }

    async fn get_relationships(&self, ids: &[RelationshipId]) -> Result<Vec<Option<Relationship>>> {
        check_ids("graph.get_relationships", ids)?;
        let graph = self.space.read();
        let read = |id| graph.relationship(id).map(|relationship| relationship.as_ref().clone());
        Ok(ids.iter().map(read).collect())
    }

    async fn neighbors(&self, entity: &EntityId, query: &NeighborQuery) -> Result<SubGraph> {
        check_neighbors(query)?;
        let visits = match query.depth {
            0 => 1,
            1 => self.space.read().degree(entity, VISITS_COUNTED),
            _ => self.space.read().relationships.len(),
        };
        let (entity, query) = (entity.clone(), query.clone());
        self.look("graph.neighbors", visits, move |graph| walk::neighbors(graph, &entity, &query)).await
    }

    async fn delete_entity(&self, entity: &EntityId) -> Result<DeletedEntity> {
        Ok(self.space.write().delete_entity(&self.place, entity))
    }

    async fn delete_relationship(&self, relationship: &RelationshipId) -> Result<bool> {
        Ok(self.space.write().delete_relationship(&self.place, relationship))
    }

    async fn find_entities(
        &self,
        query: &EntityQuery,
        page: PageRequest<EntityId>,
    ) -> Result<Page<Entity, EntityId>> {
        check_entity_query(query, &page)?;
        let visits = self.space.read().entities_to_visit(query);
        let (query, PageRequest { after, limit }) = (query.clone(), page);
        let find = move |graph: &Graph| graph.find_entities(&query, after.as_ref(), limit + 1);
        let items = self.look("graph.find_entities", visits, find).await?;
        Ok(Page::from_surplus(items, limit, |entity: &Entity| entity.id.clone()))
    }

    async fn find_relationships(
        &self,
        query: &RelationshipQuery,
        page: PageRequest<RelationshipId>,
    ) -> Result<Page<Relationship, RelationshipId>> {
        check_relationship_query(query, &page)?;
        let visits = match query.source.as_ref().or(query.target.as_ref()) {
            Some(end) => self.space.read().degree(end, VISITS_COUNTED),
            None => self.space.read().relationships.len(),
        };
        let (query, PageRequest { after, limit }) = (query.clone(), page);
        let find = move |graph: &Graph| graph.find_relationships(&query, after.as_ref(), limit + 1);
        let items = self.look("graph.find_relationships", visits, find).await?;
        Ok(Page::from_surplus(items, limit, |relationship: &Relationship| relationship.id.clone()))
    }

    async fn count(&self) -> Result<GraphCounts> {
        let graph = self.space.read();
        Ok(GraphCounts {
            entities: size(graph.entities.len()),
            relationships: size(graph.relationships.len()),
        })
    }
}
