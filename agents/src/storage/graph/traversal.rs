//! Breadth-first traversal from an entity.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use larder_kernel::{Direction, EntityId, NeighborQuery, Reached, Relationship, RelationshipType, SubGraph};
use petgraph::Direction as Way;
use petgraph::graph::NodeIndex;
use petgraph::visit::{EdgeRef, NodeIndexable};

use super::ids::ReachedIds;
use super::model::Graph;

/// The last traversal that saw each entity, by the entity's number. A new traversal need not clear the marks
/// of the previous one.
#[derive(Default)]
pub(super) struct Stamps {
    of: Vec<u32>,
    traversal: u32,
}

impl Stamps {
    /// Begins a traversal among `entities` entities.
    fn begin(&mut self, entities: usize) {
        if self.traversal == u32::MAX {
            *self = Self::default();
        }
        self.traversal += 1;
        if self.of.len() < entities {
            self.of.resize(entities, 0);
        }
    }

    /// Returns `true` if this traversal sees the entity for the first time.
    fn is_new(&mut self, node: NodeIndex) -> bool {
        let traversal = self.traversal;
        self.of.get_mut(node.index()).is_some_and(|stamp| std::mem::replace(stamp, traversal) != traversal)
    }
}

/// The rules of one traversal.
struct Traversal<'a> {
    graph: &'a Graph,
    ways: &'static [Way],
    types: HashSet<&'a RelationshipType>,
    depth: u32,
    limit: usize,
}

/// The error of a traversal that would visit more relationships than its limit.
pub(super) struct TooLong;

impl<'a> Traversal<'a> {
    fn new(graph: &'a Graph, query: &'a NeighborQuery) -> Self {
        Self {
            graph,
            ways: match query.direction {
                Direction::Both => &[Way::Outgoing, Way::Incoming],
                Direction::Out => &[Way::Outgoing],
                Direction::In => &[Way::Incoming],
            },
            types: query.relationship_types.iter().collect(),
            depth: query.depth,
            limit: query.limit,
        }
    }

    /// Returns the relationships that can be followed from an entity, each with the entity at its other end.
    /// A loop may occur twice.
    fn steps(&self, from: NodeIndex) -> impl Iterator<Item = (NodeIndex, &'a Arc<Relationship>)> {
        self.ways
            .iter()
            .flat_map(move |way| {
                self.graph.graph.edges_directed(from, *way).map(move |edge| match way {
                    Way::Outgoing => (edge.target(), edge.weight()),
                    Way::Incoming => (edge.source(), edge.weight()),
                })
            })
            .filter(|(_, edge)| self.types.is_empty() || self.types.contains(&edge.relationship_type))
    }

    /// Returns the first `limit` entities by hops and then by id, each with its hops. Entities with the same
    /// hops are in any order, unless `sorted` is set.
    ///
    /// The traversal completes each ring. An entity that the limit cuts off never shortens the path to
    /// another, because the next ring is traversed only while the limit is not reached.
    fn reach(
        &self,
        start: NodeIndex,
        sorted: bool,
        stamps: &mut Stamps,
        mut visits_max: usize,
    ) -> Result<Vec<(NodeIndex, u32)>, TooLong> {
        stamps.begin(self.graph.graph.node_bound());
        stamps.is_new(start);
        let mut reached = vec![(start, 0)];
        let mut ring = 0;
        for hops in 1..=self.depth {
            let end = reached.len();
            for at in ring..end {
                let (from, _) = reached[at];
                let mut visit = |node| {
                    if stamps.is_new(node) {
                        reached.push((node, hops));
                    }
                };
                if self.types.is_empty() {
                    for neighbors in self.ways.iter().map(|way| self.graph.adjacency[way.index()].of(from)) {
                        visits_max = visits_max.checked_sub(neighbors.len()).ok_or(TooLong)?;
                        neighbors.iter().copied().for_each(&mut visit);
                    }
                } else {
                    for (node, _) in self.steps(from) {
                        visits_max = visits_max.checked_sub(1).ok_or(TooLong)?;
                        visit(node);
                    }
                }
            }
            if sorted || reached.len() > self.limit {
                reached[end..].sort_unstable_by_key(|(node, _)| self.id(*node));
            }
            reached.truncate(self.limit);
            if reached.len() == end || reached.len() == self.limit {
                break;
            }
            ring = end;
        }
        Ok(reached)
    }

    fn id(&self, node: NodeIndex) -> Option<&'a EntityId> {
        self.graph.ids.get(node)
    }
}

/// Returns the ids that the traversal from `start` reaches, nearest first, each with its hops.
pub(super) fn reach(
    graph: &Graph,
    start: &EntityId,
    query: &NeighborQuery,
    stamps: &mut Stamps,
    visits_max: usize,
) -> Result<ReachedIds, TooLong> {
    let Some(start) = graph.entities.get(start).copied().filter(|_| query.limit > 0) else {
        return Ok(ReachedIds::default());
    };
    let reached = Traversal::new(graph, query).reach(start, false, stamps, visits_max)?;
    Ok(ReachedIds::new(graph.ids.clone(), reached))
}

/// Returns the entities that the traversal from `start` reaches, and the relationships among them that it can
/// follow.
pub(super) fn neighbors(
    graph: &Graph,
    start: &EntityId,
    query: &NeighborQuery,
    stamps: &mut Stamps,
    visits_max: usize,
) -> Result<SubGraph, TooLong> {
    let Some(start) = graph.entities.get(start).copied().filter(|_| query.limit > 0) else {
        return Ok(SubGraph::default());
    };
    let traversal = Traversal::new(graph, query);
    let reached = traversal.reach(start, true, stamps, visits_max)?;
    let hops: HashMap<NodeIndex, u32> = reached.iter().copied().collect();
    let mut taken = BTreeMap::new();
    for (node, _) in reached.iter().filter(|(_, hops)| *hops < query.depth) {
        let among = traversal.steps(*node).filter(|(other, _)| hops.contains_key(other));
        taken.extend(among.map(|(_, relationship)| (&relationship.id, relationship)));
    }
    let entity = |(node, hops): &(NodeIndex, u32)| {
        let entity = graph.graph.node_weight(*node)?.as_ref().clone();
        Some(Reached::new(entity, *hops))
    };
    Ok(SubGraph::new(
        reached.iter().filter_map(entity).collect(),
        taken.into_values().map(|relationship| relationship.as_ref().clone()).collect(),
    ))
}
