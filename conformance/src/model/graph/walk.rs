//! Traversal from an entity.

use std::collections::BTreeMap;

use larder_kernel::storage::graph::check_neighbors;
use larder_kernel::{Direction, EntityId, GraphStore, NeighborQuery, Reached, Relationship, SubGraph};

use super::Graph;
use crate::model::compare::{Checked, same};
use crate::model::recorder::{Recorder, id, json};

impl Graph {
    pub(super) async fn neighbors(
        &mut self,
        store: &dyn GraphStore,
        (entity, query): (&EntityId, &NeighborQuery),
        recorder: &mut Recorder,
    ) -> Checked {
        let clause = match (query.depth, query.limit) {
            (_, 0) => "GRAPH-030",
            (0, _) => "GRAPH-022",
            (_, 1..10_000) => "GRAPH-027",
            _ => "GRAPH-021",
        };
        recorder.call(clause, |_| format!("neighbors({}, &{})", id(entity), json(query)));
        let expected = check_neighbors(query).map(|()| self.walk(entity, query)).map_err(Into::into);
        same(recorder, clause, &store.neighbors(entity, query).await, &expected)
    }

    fn walk(&self, start: &EntityId, query: &NeighborQuery) -> SubGraph {
        let hops = self.hops(start, query);
        let mut order: Vec<(u32, &EntityId)> = hops.iter().map(|(entity, hops)| (*hops, *entity)).collect();
        order.sort_unstable();
        order.truncate(query.limit);
        let within = |entity: &EntityId| order.iter().any(|(_, there)| *there == entity);
        let taken = |one: &&Relationship| {
            let from = |end: &EntityId| hops.get(end).is_some_and(|hops| *hops < query.depth);
            let (out, into) = (from(&one.source), from(&one.target));
            let walked = match query.direction {
                Direction::Both => out || into,
                Direction::Out => out,
                Direction::In => into,
            };
            wanted(one, query) && walked && within(&one.source) && within(&one.target)
        };
        let reached = |(hops, entity): &(u32, &EntityId)| {
            self.entities.get(*entity).map(|entity| Reached::new(entity.clone(), *hops))
        };
        SubGraph::new(
            order.iter().filter_map(reached).collect(),
            self.relationships.values().filter(taken).cloned().collect(),
        )
    }

    /// Returns the entities within the depth, with the length of the shortest path to each.
    fn hops(&self, start: &EntityId, query: &NeighborQuery) -> BTreeMap<&EntityId, u32> {
        let mut hops = BTreeMap::new();
        if let Some((start, _)) = self.entities.get_key_value(start) {
            hops.insert(start, 0);
        }
        for depth in 1..=query.depth {
            let at_edge: Vec<&EntityId> =
                hops.iter().filter(|(_, hops)| **hops == depth - 1).map(|(entity, _)| *entity).collect();
            for one in self.relationships.values().filter(|one| wanted(one, query)) {
                let steps = match query.direction {
                    Direction::Both => vec![(&one.source, &one.target), (&one.target, &one.source)],
                    Direction::Out => vec![(&one.source, &one.target)],
                    Direction::In => vec![(&one.target, &one.source)],
                };
                for (from, to) in steps {
                    if at_edge.contains(&from) {
                        hops.entry(to).or_insert(depth);
                    }
                }
            }
        }
        hops
    }
}

fn wanted(one: &Relationship, query: &NeighborQuery) -> bool {
    query.relationship_types.is_empty() || query.relationship_types.contains(&one.relationship_type)
}
