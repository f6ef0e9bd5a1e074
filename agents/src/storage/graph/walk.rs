//! Walking outward from an entity, breadth first.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use larder_kernel::{Direction, EntityId, NeighborQuery, Reached, Relationship, RelationshipType, SubGraph};
use petgraph::Direction as Way;
use petgraph::graph::NodeIndex;
use petgraph::visit::EdgeRef;

use super::model::Graph;

/// The rules of one walk.
struct Walk<'a> {
    graph: &'a Graph,
    ways: &'static [Way],
    types: HashSet<&'a RelationshipType>,
}

impl<'a> Walk<'a> {
    /// The relationships that can be taken from an entity, each with the entity at its other end. A loop may come
    /// twice.
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

    /// The first `limit` entities by hops and then by id, each with its hops.
    ///
    /// Whole rings are walked: an entity that the limit cuts off never shortens the way to another, because the next
    /// ring is walked only while there is room.
    fn reach(&self, start: NodeIndex, depth: u32, limit: usize) -> Vec<(NodeIndex, u32)> {
        let mut seen = HashSet::from([start]);
        let mut reached = Vec::new();
        let mut ring = vec![start];
        let mut hops = 0;
        while !ring.is_empty() {
            ring.sort_unstable_by_key(|node| self.id(*node));
            reached.extend(ring.iter().take(limit - reached.len()).map(|node| (*node, hops)));
            if hops == depth || reached.len() == limit {
                break;
            }
            let onward = ring.iter().flat_map(|node| self.steps(*node)).map(|(node, _)| node);
            ring = onward.filter(|node| seen.insert(*node)).collect();
            hops += 1;
        }
        reached
    }

    fn id(&self, node: NodeIndex) -> Option<&'a EntityId> {
        self.graph.graph.node_weight(node).map(|entity| &entity.id)
    }
}

/// What the walk from `start` reaches, and the relationships that it can take among it.
pub(super) fn neighbors(graph: &Graph, start: &EntityId, query: &NeighborQuery) -> SubGraph {
    let Some(start) = graph.entities.get(start).copied().filter(|_| query.limit > 0) else {
        return SubGraph::default();
    };
    let ways: &[Way] = match query.direction {
        Direction::Both => &[Way::Outgoing, Way::Incoming],
        Direction::Out => &[Way::Outgoing],
        Direction::In => &[Way::Incoming],
    };
    let walk = Walk { graph, ways, types: query.relationship_types.iter().collect() };
    let reached = walk.reach(start, query.depth, query.limit);
    let hops: HashMap<NodeIndex, u32> = reached.iter().copied().collect();
    let mut taken = BTreeMap::new();
    for (node, _) in reached.iter().filter(|(_, hops)| *hops < query.depth) {
        let among = walk.steps(*node).filter(|(other, _)| hops.contains_key(other));
        taken.extend(among.map(|(_, relationship)| (&relationship.id, relationship)));
    }
    let entity = |(node, hops): &(NodeIndex, u32)| {
        let entity = graph.graph.node_weight(*node)?.as_ref().clone();
        Some(Reached { entity, hops: *hops })
    };
    SubGraph {
        entities: reached.iter().filter_map(entity).collect(),
        relationships: taken.into_values().map(|relationship| relationship.as_ref().clone()).collect(),
    }
}
