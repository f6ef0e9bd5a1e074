//! In-memory knowledge graphs, based on petgraph.

mod adjacency;
mod ids;
mod model;
#[cfg(test)]
mod tests;
mod traversal;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use async_trait::async_trait;
use larder_kernel::check::size;
use larder_kernel::storage::graph::{
    check_entities, check_entity_query, check_entity_writes, check_neighbors, check_relationship_query,
    check_relationship_writes, check_relationships,
};
use larder_kernel::storage::vector::check_ids;
use larder_kernel::{
    Capabilities, DeletedEntity, Durability, Entity, EntityId, EntityQuery, EntityWrite, Error, ErrorKind,
    GraphCounts, GraphStore, GraphWritten, Namespace, NeighborQuery, OptionSet, Page, PageRequest,
    Relationship, RelationshipId, RelationshipQuery, RelationshipWrite, RequestOption, Result, Store,
    StoredEntity, StoredRelationship, SubGraph, UpsertReport,
};

pub use self::ids::ReachedIds;
use self::model::Graph;
use self::traversal::Stamps;
use super::MemoryBackend;
use super::backend::default_namespace;
use crate::internal::offload::{self, WAIT_STEPS};

/// The number of steps that one visited entity or relationship counts for.
const VISIT_STEPS: usize = 32;
/// The largest number of relationships that a traversal visits on the caller's thread. A longer traversal
/// restarts on another thread.
const TRAVERSAL_VISITS_MAX: usize = 8 * 1024;
/// The number of stamps that are kept between traversals.
const STAMPS_MAX: usize = 8;
/// The largest number of relationships of one entity that are counted before a read. It is enough to
/// distinguish long work from short.
const VISITS_COUNTED: usize = 16 * 1024;

/// An in-memory [`GraphStore`].
///
/// Reads share the graph, and writes lock it exclusively. Each is one atomic step. Traversals and scans of
/// large graphs run on a thread that may block, and so does any call that has to wait for one.
///
/// ```
/// use larder_agents::storage::InMemoryGraphStore;
/// use larder_kernel::{
///     Entity, EntityId, EntityType, GraphStore, NeighborQuery, Relationship, RelationshipId,
///     RelationshipType,
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
    backend: MemoryBackend,
    namespace: Namespace,
    state: Arc<NamespaceState>,
}

#[derive(Default)]
struct NamespaceState {
    graph: RwLock<Graph>,
    /// The stamps of finished traversals, for reuse.
    stamps: Mutex<Vec<Stamps>>,
}

impl NamespaceState {
    fn read(&self) -> RwLockReadGuard<'_, Graph> {
        self.graph.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Graph> {
        self.graph.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Traverses the current graph and visits at most `most` relationships.
    fn traverse<T>(
        &self,
        traversal: Traversal<T>,
        start: &EntityId,
        query: &NeighborQuery,
        most: usize,
    ) -> Option<T> {
        let pool = || self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stamps = pool().pop().unwrap_or_default();
        let found = traversal(&self.read(), start, query, &mut stamps, most);
        let mut pool = pool();
        if pool.len() < STAMPS_MAX {
            pool.push(stamps);
        }
        found.ok()
    }
}

/// A traversal function: it starts at an entity, follows a query, and has a limit on visited relationships.
type Traversal<T> =
    fn(&Graph, &EntityId, &NeighborQuery, &mut Stamps, usize) -> std::result::Result<T, traversal::TooLong>;

impl InMemoryGraphStore {
    /// Creates a store in a new backend.
    #[must_use]
    pub fn new() -> Self {
        Self::open(&MemoryBackend::new(), default_namespace())
    }

    /// Opens the store of a namespace on a backend.
    #[must_use]
    pub fn open(backend: &MemoryBackend, namespace: Namespace) -> Self {
        Self { state: backend.namespace_state(&namespace), backend: backend.clone(), namespace }
    }

    /// Runs `look` on the graph. Runs it outside the async runtime if it visits many items.
    async fn look<T: Send + 'static>(
        &self,
        operation: &'static str,
        visits: usize,
        look: impl FnOnce(&Graph) -> T + Send + 'static,
    ) -> Result<T> {
        let state = self.state.clone();
        let steps =
            if offload::readers_wait(&state.graph) { WAIT_STEPS } else { visits.saturating_mul(VISIT_STEPS) };
        offload::run(operation, steps, move || Ok(look(&state.read()))).await
    }

    /// Runs `change` on the graph. Runs it outside the async runtime if it visits many items, or if a long
    /// traversal is running.
    async fn change<T: Send + 'static>(
        &self,
        operation: &'static str,
        visits: usize,
        change: impl FnOnce(&mut Graph, &MemoryBackend) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let (state, backend) = (self.state.clone(), self.backend.clone());
        let steps =
            if offload::writers_wait(&state.graph) { WAIT_STEPS } else { visits.saturating_mul(VISIT_STEPS) };
        offload::run(operation, steps, move || change(&mut state.write(), &backend)).await
    }
}

impl InMemoryGraphStore {
    /// Returns the ids of the entities that [`neighbors`](GraphStore::neighbors) returns, each with its hops,
    /// nearest first. Ids with the same hops are in any order. The call copies no entity, no relationship and
    /// no id. Its cost is proportional to the relationships that it visits.
    ///
    /// # Errors
    /// As [`GraphStore::neighbors`].
    pub async fn reach(&self, entity: &EntityId, query: &NeighborQuery) -> Result<ReachedIds> {
        self.traverse("graph.reach", traversal::reach, entity, query).await
    }

    async fn write(&self, operation: &'static str, writes: Vec<EntityWrite>) -> Result<Vec<GraphWritten>> {
        let visits = writes.len();
        let write = move |graph: &mut Graph, backend: &MemoryBackend| {
            graph.write_entities(operation, backend, writes)
        };
        self.change(operation, visits, write).await
    }

    async fn write_edges(
        &self,
        operation: &'static str,
        writes: Vec<RelationshipWrite>,
    ) -> Result<Vec<GraphWritten>> {
        let visits = writes.len();
        let write = move |graph: &mut Graph, backend: &MemoryBackend| {
            graph.write_relationships(operation, backend, writes)
        };
        self.change(operation, visits, write).await
    }

    /// Traverses on the caller's thread if the traversal is short, otherwise on one that may block.
    async fn traverse<T: Send + 'static>(
        &self,
        operation: &'static str,
        traversal: Traversal<T>,
        entity: &EntityId,
        query: &NeighborQuery,
    ) -> Result<T> {
        check_neighbors(query)?;
        // A caller that makes only short traversals must still let other tasks of its thread run.
        tokio::task::coop::consume_budget().await;
        if !offload::readers_wait(&self.state.graph)
            && let Some(found) = self.state.traverse(traversal, entity, query, TRAVERSAL_VISITS_MAX)
        {
            return Ok(found);
        }
        let (state, entity, query) = (self.state.clone(), entity.clone(), query.clone());
        let all = move || {
            state.traverse(traversal, &entity, &query, usize::MAX).ok_or_else(|| {
                Error::new(
                    ErrorKind::Unexpected,
                    operation,
                    "internal error: unlimited traversal hit a limit",
                )
            })
        };
        offload::run(operation, WAIT_STEPS, all).await
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

    fn options(&self) -> OptionSet {
        OptionSet::of(&[
            RequestOption::EntityCondition,
            RequestOption::EntityMode,
            RequestOption::RelationshipCondition,
            RequestOption::RelationshipMode,
            RequestOption::NeighborsDirection,
            RequestOption::NeighborsTypes,
            RequestOption::EntitiesType,
            RequestOption::EntitiesFilter,
            RequestOption::RelationshipsType,
            RequestOption::RelationshipsSource,
            RequestOption::RelationshipsTarget,
            RequestOption::RelationshipsFilter,
        ])
    }

    async fn erase(&self) -> Result<()> {
        let erase = |graph: &mut Graph, backend: &MemoryBackend| {
            backend.release(graph.bytes());
            *graph = graph.erased();
            Ok(())
        };
        let visits =
            self.look("graph.erase", 0, |graph| graph.entities.len() + graph.relationships.len()).await?;
        self.change("graph.erase", visits, erase).await
    }
}

#[async_trait]
impl GraphStore for InMemoryGraphStore {
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
        check_ids(OPERATION, ids)?;
        let wanted = ids.to_vec();
        let get = move |graph: &Graph| {
            wanted.iter().map(|id| graph.entity(id).map(|entity| entity.as_ref().clone())).collect()
        };
        self.look(OPERATION, ids.len(), get).await
    }

    async fn get_stored_entities(&self, ids: &[EntityId]) -> Result<Vec<Option<StoredEntity>>> {
        const OPERATION: &str = "graph.get_stored_entities";
        check_ids(OPERATION, ids)?;
        let wanted = ids.to_vec();
        let get = move |graph: &Graph| {
            let stored =
                |(revision, entity): (_, &Arc<Entity>)| StoredEntity::new(entity.as_ref().clone(), revision);
            wanted.iter().map(|id| graph.stored_entity(id).map(stored)).collect()
        };
        self.look(OPERATION, ids.len(), get).await
    }

    async fn get_relationships(&self, ids: &[RelationshipId]) -> Result<Vec<Option<Relationship>>> {
        const OPERATION: &str = "graph.get_relationships";
        check_ids(OPERATION, ids)?;
        let wanted = ids.to_vec();
        let get = move |graph: &Graph| {
            let read = |id| graph.relationship(id).map(|relationship| relationship.as_ref().clone());
            wanted.iter().map(read).collect()
        };
        self.look(OPERATION, ids.len(), get).await
    }

    async fn get_stored_relationships(
        &self,
        ids: &[RelationshipId],
    ) -> Result<Vec<Option<StoredRelationship>>> {
        const OPERATION: &str = "graph.get_stored_relationships";
        check_ids(OPERATION, ids)?;
        let wanted = ids.to_vec();
        let get = move |graph: &Graph| {
            let stored = |(revision, found): (_, &Arc<Relationship>)| {
                StoredRelationship::new(found.as_ref().clone(), revision)
            };
            wanted.iter().map(|id| graph.stored_relationship(id).map(stored)).collect()
        };
        self.look(OPERATION, ids.len(), get).await
    }

    async fn neighbors(&self, entity: &EntityId, query: &NeighborQuery) -> Result<SubGraph> {
        self.traverse("graph.neighbors", traversal::neighbors, entity, query).await
    }

    async fn delete_entity(&self, entity: &EntityId) -> Result<DeletedEntity> {
        const OPERATION: &str = "graph.delete_entity";
        let id = entity.clone();
        let visits = self.look(OPERATION, 0, move |graph| graph.degree(&id, VISITS_COUNTED)).await?;
        let id = entity.clone();
        self.change(OPERATION, visits, move |graph, backend| Ok(graph.delete_entity(backend, &id))).await
    }

    async fn delete_relationship(&self, relationship: &RelationshipId) -> Result<bool> {
        let id = relationship.clone();
        let delete =
            move |graph: &mut Graph, backend: &MemoryBackend| Ok(graph.delete_relationship(backend, &id));
        self.change("graph.delete_relationship", 1, delete).await
    }

    async fn find_entities(
        &self,
        query: &EntityQuery,
        page: PageRequest<EntityId>,
    ) -> Result<Page<Entity, EntityId>> {
        check_entity_query(query, &page)?;
        const OPERATION: &str = "graph.find_entities";
        let wanted = query.clone();
        let visits = self.look(OPERATION, 0, move |graph| graph.entities_to_visit(&wanted)).await?;
        let (query, PageRequest { after, limit, .. }) = (query.clone(), page);
        let find = move |graph: &Graph| graph.find_entities(&query, after.as_ref(), limit + 1);
        let items = self.look(OPERATION, visits, find).await?;
        Ok(Page::from_surplus(items, limit, |entity: &Entity| entity.id.clone()))
    }

    async fn find_relationships(
        &self,
        query: &RelationshipQuery,
        page: PageRequest<RelationshipId>,
    ) -> Result<Page<Relationship, RelationshipId>> {
        check_relationship_query(query, &page)?;
        const OPERATION: &str = "graph.find_relationships";
        let end = query.source.as_ref().or(query.target.as_ref()).cloned();
        let visits = move |graph: &Graph| match end {
            Some(end) => graph.degree(&end, VISITS_COUNTED),
            None => graph.relationships.len(),
        };
        let visits = self.look(OPERATION, 0, visits).await?;
        let (query, PageRequest { after, limit, .. }) = (query.clone(), page);
        let find = move |graph: &Graph| graph.find_relationships(&query, after.as_ref(), limit + 1);
        let items = self.look(OPERATION, visits, find).await?;
        Ok(Page::from_surplus(items, limit, |relationship: &Relationship| relationship.id.clone()))
    }

    async fn count(&self) -> Result<GraphCounts> {
        let count =
            |graph: &Graph| GraphCounts::new(size(graph.entities.len()), size(graph.relationships.len()));
        self.look("graph.count", 0, count).await
    }
}
