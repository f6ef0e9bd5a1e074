//! The graph of a namespace: petgraph for the edges, maps for the ids and types.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::ops::Bound;
use std::sync::Arc;

use larder_kernel::check::size;
use larder_kernel::limits::PAGE_ITEMS_MAX;
use larder_kernel::{
    DeletedEntity, Entity, EntityId, EntityQuery, EntityType, EntityWrite, Error, ErrorKind, GraphWritten,
    OptionSet, Relationship, RelationshipId, RelationshipQuery, RelationshipType, RelationshipWrite, Result,
    Revision,
};
use petgraph::Direction as Way;
use petgraph::graph::{EdgeIndex, NodeIndex};
use petgraph::stable_graph::StableDiGraph;
use petgraph::visit::EdgeRef as _;

use super::adjacency::Adjacency;
use super::ids::Ids;
use crate::storage::MemoryBackend;

/// The quota share of one entity or relationship, apart from its ids, type and properties.
const RECORD_BYTES: u64 = 256;
/// The largest number of entities, and of relationships. petgraph numbers them in 32 bits and reserves the
/// last number.
const ITEMS_MAX: usize = u32::MAX as usize - 1;

/// The ids of an index, grouped by type.
type ByType<T, K> = HashMap<T, BTreeSet<K>>;

#[derive(Debug, Default)]
pub(super) struct Graph {
    pub(super) graph: StableDiGraph<Arc<Entity>, Arc<Relationship>>,
    pub(super) entities: BTreeMap<EntityId, NodeIndex>,
    pub(super) relationships: BTreeMap<RelationshipId, EdgeIndex>,
    /// The entities at the other ends of each entity's relationships, outgoing and incoming, and the
    /// entities' ids. Traversals read these by the entities' numbers, because petgraph's edges are scattered
    /// over memory.
    pub(super) adjacency: [Adjacency; 2],
    pub(super) ids: Ids,
    /// The revisions of the entities, by their numbers.
    revisions: Vec<u64>,
    /// The revisions of the relationships, by their numbers.
    edge_revisions: Vec<u64>,
    /// The greatest revision so far. An erasure keeps it.
    last_revision: u64,
    entities_by_type: ByType<EntityType, EntityId>,
    relationships_by_type: ByType<RelationshipType, RelationshipId>,
    bytes: u64,
}

fn add<T: Hash + Eq + Clone, K: Ord + Clone>(index: &mut ByType<T, K>, of_type: &T, id: &K) {
    index.entry(of_type.clone()).or_default().insert(id.clone());
}

fn remove<T: Hash + Eq, K: Ord>(index: &mut ByType<T, K>, of_type: &T, id: &K) {
    if let Some(ids) = index.get_mut(of_type) {
        ids.remove(id);
        if ids.is_empty() {
            index.remove(of_type);
        }
    }
}

fn entity_bytes(entity: &Entity) -> u64 {
    let text = entity.id.as_str().len() + entity.entity_type.as_str().len();
    RECORD_BYTES + size(text + entity.properties.size_bytes())
}

fn relationship_bytes(relationship: &Relationship) -> u64 {
    let Relationship { id, relationship_type, source, target, properties, .. } = relationship;
    let ids = id.as_str().len() + source.as_str().len() + target.as_str().len();
    RECORD_BYTES + size(ids + relationship_type.as_str().len() + properties.size_bytes())
}

fn full(operation: &'static str, held: usize, added: u64) -> Result<()> {
    if size(held).saturating_add(added) <= size(ITEMS_MAX) {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::ResourceExhausted,
        operation,
        "the graph has used all of its internal numbers; copy it to a new namespace",
    )
    .with_limit(size(held).saturating_add(added), size(ITEMS_MAX)))
}

impl Graph {
    /// Returns the quota share of the graph, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn entity(&self, id: &EntityId) -> Option<&Arc<Entity>> {
        self.entities.get(id).and_then(|node| self.graph.node_weight(*node))
    }

    pub(super) fn relationship(&self, id: &RelationshipId) -> Option<&Arc<Relationship>> {
        self.relationships.get(id).and_then(|edge| self.graph.edge_weight(*edge))
    }

    /// Reserves `needed` bytes instead of `freed` ones, or fails before any change.
    fn adjust_quota(
        &mut self,
        operation: &'static str,
        backend: &MemoryBackend,
        freed: u64,
        needed: u64,
    ) -> Result<()> {
        if needed > freed {
            backend.try_reserve(operation, needed - freed)?;
        } else {
            backend.release(freed - needed);
        }
        self.bytes = self.bytes + needed - freed;
        Ok(())
    }

    /// Returns the state of the graph after an erasure.
    pub(super) fn erased(&self) -> Self {
        Self { last_revision: self.last_revision, ..Self::default() }
    }

    pub(super) fn stored_entity(&self, id: &EntityId) -> Option<(Revision, &Arc<Entity>)> {
        let node = *self.entities.get(id)?;
        let revision = self.revisions.get(node.index()).copied().unwrap_or(0);
        Some((Revision::new(revision), self.graph.node_weight(node)?))
    }

    pub(super) fn write_entities(
        &mut self,
        operation: &'static str,
        backend: &MemoryBackend,
        writes: Vec<EntityWrite>,
    ) -> Result<Vec<GraphWritten>> {
        let (mut freed, mut needed, mut created) = (0, 0, 0);
        let mut entities = Vec::with_capacity(writes.len());
        for write in writes {
            let stored = self.stored_entity(&write.entity.id);
            let entity = match write.options() {
                OptionSet::NONE => write.entity,
                _ => write.apply(stored.map(|(revision, entity)| (revision, &entity.properties)))?,
            };
            needed += entity_bytes(&entity);
            match stored {
                Some((_, there)) => freed += entity_bytes(there),
                None => created += 1,
            }
            entities.push(entity);
        }
        full(operation, self.entities.len(), created)?;
        self.adjust_quota(operation, backend, freed, needed)?;
        Ok(entities.into_iter().map(|entity| self.write_entity(entity)).collect())
    }

    fn write_entity(&mut self, entity: Entity) -> GraphWritten {
        add(&mut self.entities_by_type, &entity.entity_type, &entity.id);
        self.last_revision += 1;
        let (revision, entity) = (self.last_revision, Arc::new(entity));
        let known = self.entities.get(&entity.id).copied();
        let node = known.unwrap_or_else(|| self.graph.add_node(entity.clone()));
        if known.is_none() {
            self.ids.set(node, Some(entity.id.clone()));
            self.entities.insert(entity.id.clone(), node);
        } else if let Some(weight) = self.graph.node_weight_mut(node) {
            let old = std::mem::replace(weight, entity.clone());
            if old.entity_type != entity.entity_type {
                remove(&mut self.entities_by_type, &old.entity_type, &old.id);
            }
        }
        if self.revisions.len() <= node.index() {
            self.revisions.resize(node.index() + 1, 0);
        }
        self.revisions[node.index()] = revision;
        GraphWritten::new(Revision::new(revision), known.is_none())
    }

    pub(super) fn stored_relationship(&self, id: &RelationshipId) -> Option<(Revision, &Arc<Relationship>)> {
        let edge = *self.relationships.get(id)?;
        let revision = self.edge_revisions.get(edge.index()).copied().unwrap_or(0);
        Some((Revision::new(revision), self.graph.edge_weight(edge)?))
    }

    pub(super) fn write_relationships(
        &mut self,
        operation: &'static str,
        backend: &MemoryBackend,
        writes: Vec<RelationshipWrite>,
    ) -> Result<Vec<GraphWritten>> {
        let (mut freed, mut needed, mut created) = (0, 0, 0);
        let mut ready = Vec::with_capacity(writes.len());
        for write in writes {
            let stored = self.stored_relationship(&write.relationship.id);
            let relationship = match write.options() {
                OptionSet::NONE => write.relationship,
                _ => write.apply(stored.map(|(revision, there)| (revision, &there.properties)))?,
            };
            let source = self.end(operation, "relationship.source", &relationship.source)?;
            let target = self.end(operation, "relationship.target", &relationship.target)?;
            needed += relationship_bytes(&relationship);
            match stored {
                Some((_, there)) => freed += relationship_bytes(there),
                None => created += 1,
            }
            ready.push((source, target, relationship));
        }
        full(operation, self.relationships.len(), created)?;
        self.adjust_quota(operation, backend, freed, needed)?;
        let write = |(source, target, relationship)| self.write_relationship(source, target, relationship);
        Ok(ready.into_iter().map(write).collect())
    }

    fn write_relationship(
        &mut self,
        source: NodeIndex,
        target: NodeIndex,
        relationship: Relationship,
    ) -> GraphWritten {
        let known = self.relationships.get(&relationship.id).copied();
        let kept = known.filter(|edge| self.graph.edge_endpoints(*edge) == Some((source, target)));
        let relationship = Arc::new(relationship);
        // If the ends are the same, the edge is updated in place, because removing an edge scans the lists of
        // its ends.
        let edge = if let Some((edge, weight)) =
            kept.and_then(|edge| Some((edge, self.graph.edge_weight_mut(edge)?)))
        {
            let old = std::mem::replace(weight, relationship.clone());
            remove(&mut self.relationships_by_type, &old.relationship_type, &old.id);
            edge
        } else {
            self.unlink(&relationship.id);
            let edge = self.graph.add_edge(source, target, relationship.clone());
            self.adjacency[Way::Outgoing.index()].add(source, target);
            self.adjacency[Way::Incoming.index()].add(target, source);
            self.relationships.insert(relationship.id.clone(), edge);
            edge
        };
        add(&mut self.relationships_by_type, &relationship.relationship_type, &relationship.id);
        self.last_revision += 1;
        if self.edge_revisions.len() <= edge.index() {
            self.edge_revisions.resize(edge.index() + 1, 0);
        }
        self.edge_revisions[edge.index()] = self.last_revision;
        GraphWritten::new(Revision::new(self.last_revision), known.is_none())
    }

    fn end(&self, operation: &'static str, field: &'static str, id: &EntityId) -> Result<NodeIndex> {
        self.entities.get(id).copied().ok_or_else(|| {
            Error::new(ErrorKind::NotFound, operation, "the entity does not exist; check the id")
                .with_field(field)
        })
    }

    /// Removes a relationship from the graph and its maps. The quota does not change.
    fn unlink(&mut self, id: &RelationshipId) -> Option<Arc<Relationship>> {
        let edge = self.relationships.remove(id)?;
        let (source, target) = self.graph.edge_endpoints(edge)?;
        let relationship = self.graph.remove_edge(edge)?;
        self.adjacency[Way::Outgoing.index()].remove_one(source, target);
        self.adjacency[Way::Incoming.index()].remove_one(target, source);
        remove(&mut self.relationships_by_type, &relationship.relationship_type, id);
        Some(relationship)
    }

    pub(super) fn delete_relationship(&mut self, backend: &MemoryBackend, id: &RelationshipId) -> bool {
        let Some(gone) = self.unlink(id) else { return false };
        self.give_back(backend, relationship_bytes(&gone));
        true
    }

    pub(super) fn delete_entity(&mut self, backend: &MemoryBackend, id: &EntityId) -> DeletedEntity {
        let Some(&node) = self.entities.get(id) else { return DeletedEntity::default() };
        // A loop is both an outgoing and an incoming edge, and counts once.
        let arriving = self.graph.edges_directed(node, Way::Incoming).filter(|edge| edge.source() != node);
        let edges = self.graph.edges_directed(node, Way::Outgoing).chain(arriving).take(PAGE_ITEMS_MAX + 1);
        let mut touching: Vec<RelationshipId> = edges.map(|edge| edge.weight().id.clone()).collect();
        if touching.len() > PAGE_ITEMS_MAX {
            touching.truncate(PAGE_ITEMS_MAX);
            // The newest are the first in the lists, where removing them is fast.
            let gone: u64 =
                touching.iter().filter_map(|id| self.unlink(id)).map(|one| relationship_bytes(&one)).sum();
            self.give_back(backend, gone);
            return DeletedEntity::new(true, size(touching.len())).with_more(true);
        }
        self.entities.remove(id);
        // petgraph removes the edges together with their node, each from the front of the node's list.
        // Removing them in the order of ids would search the whole list for each.
        let mut freed = 0;
        for id in &touching {
            let edge = self.relationships.remove(id).and_then(|edge| self.graph.edge_weight(edge));
            let Some(relationship) = edge.cloned() else { continue };
            remove(&mut self.relationships_by_type, &relationship.relationship_type, id);
            freed += relationship_bytes(&relationship);
        }
        self.ids.set(node, None);
        for way in [Way::Outgoing, Way::Incoming] {
            for other in self.adjacency[way.index()].take(node) {
                self.adjacency[way.opposite().index()].remove_all(other, node);
            }
        }
        if let Some(entity) = self.graph.remove_node(node) {
            remove(&mut self.entities_by_type, &entity.entity_type, id);
            freed += entity_bytes(&entity);
        }
        self.give_back(backend, freed);
        DeletedEntity::new(true, size(touching.len()))
    }

    fn give_back(&mut self, backend: &MemoryBackend, bytes: u64) {
        self.bytes -= bytes;
        backend.release(bytes);
    }

    /// Counts the relationships of an entity, up to `most`.
    pub(super) fn degree(&self, id: &EntityId, most: usize) -> usize {
        let Some(node) = self.entities.get(id) else { return 0 };
        let edges = |way| self.graph.edges_directed(*node, way);
        edges(Way::Outgoing).chain(edges(Way::Incoming)).take(most).count()
    }

    /// Returns the number of entities that a query has to examine.
    pub(super) fn entities_to_visit(&self, query: &EntityQuery) -> usize {
        match &query.entity_type {
            Some(entity_type) => self.entities_by_type.get(entity_type).map_or(0, BTreeSet::len),
            None => self.entities.len(),
        }
    }

    /// Returns up to `count` entities after an id that match the query, in the byte order of ids.
    pub(super) fn find_entities(
        &self,
        query: &EntityQuery,
        after: Option<&EntityId>,
        count: usize,
    ) -> Vec<Entity> {
        let start = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let fits = |entity: &&Arc<Entity>| {
            query.filter.as_ref().is_none_or(|filter| filter.matches(&entity.properties))
        };
        let found: Box<dyn Iterator<Item = &Arc<Entity>>> = match &query.entity_type {
            Some(entity_type) => Box::new(
                self.entities_by_type
                    .get(entity_type)
                    .into_iter()
                    .flat_map(move |ids| ids.range::<EntityId, _>(start))
                    .filter_map(|id| self.entity(id)),
            ),
            None => Box::new(
                self.entities
                    .range::<EntityId, _>(start)
                    .filter_map(|(_, node)| self.graph.node_weight(*node)),
            ),
        };
        found.filter(fits).take(count).map(|entity| entity.as_ref().clone()).collect()
    }

    /// Returns up to `count` relationships after an id that match the query, in the byte order of ids.
    pub(super) fn find_relationships(
        &self,
        query: &RelationshipQuery,
        after: Option<&RelationshipId>,
        count: usize,
    ) -> Vec<Relationship> {
        let start = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        let fits = |relationship: &&Arc<Relationship>| {
            query.relationship_type.as_ref().is_none_or(|wanted| *wanted == relationship.relationship_type)
                && query.source.as_ref().is_none_or(|wanted| *wanted == relationship.source)
                && query.target.as_ref().is_none_or(|wanted| *wanted == relationship.target)
                && query.filter.as_ref().is_none_or(|filter| filter.matches(&relationship.properties))
        };
        let found: Box<dyn Iterator<Item = &Arc<Relationship>>> = match (query, &query.relationship_type) {
            (RelationshipQuery { source: Some(source), .. }, _) => {
                Box::new(self.touching(source, Way::Outgoing, after).into_iter())
            }
            (RelationshipQuery { target: Some(target), .. }, _) => {
                Box::new(self.touching(target, Way::Incoming, after).into_iter())
            }
            (_, Some(relationship_type)) => Box::new(
                self.relationships_by_type
                    .get(relationship_type)
                    .into_iter()
                    .flat_map(move |ids| ids.range::<RelationshipId, _>(start))
                    .filter_map(|id| self.relationship(id)),
            ),
            (_, None) => Box::new(
                self.relationships
                    .range::<RelationshipId, _>(start)
                    .filter_map(|(_, edge)| self.graph.edge_weight(*edge)),
            ),
        };
        found.filter(fits).take(count).map(|relationship| relationship.as_ref().clone()).collect()
    }

    /// Returns the relationships at one end of an entity after an id, in the byte order of ids.
    fn touching(
        &self,
        entity: &EntityId,
        way: Way,
        after: Option<&RelationshipId>,
    ) -> Vec<&Arc<Relationship>> {
        let Some(node) = self.entities.get(entity) else { return Vec::new() };
        let edges = self.graph.edges_directed(*node, way).map(|edge| edge.weight());
        let mut found: Vec<_> = edges.filter(|edge| after.is_none_or(|after| edge.id > *after)).collect();
        found.sort_unstable_by(|left, right| left.id.cmp(&right.id));
        found
    }
}
