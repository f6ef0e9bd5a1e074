//! The traversal as the contract defines it, over a graph in lists.

use std::collections::BTreeMap;

use larder_kernel::{Direction, Entity, EntityId, NeighborQuery, Reached, Relationship, SubGraph};

/// Returns the required result of `neighbors`.
pub(super) fn neighbors(
    entities: &[Entity],
    relationships: &[Relationship],
    start: &EntityId,
    query: &NeighborQuery,
) -> SubGraph {
    let mut hops: BTreeMap<&EntityId, u32> = BTreeMap::new();
    if let Some(start) = entities.iter().find(|entity| entity.id == *start) {
        hops.insert(&start.id, 0);
    }
    let walked: Vec<_> = relationships
        .iter()
        .filter(|one| {
            query.relationship_types.is_empty() || query.relationship_types.contains(&one.relationship_type)
        })
        .collect();
    // Each round follows every relationship once more, so the round of the first visit is the shortest
    // distance.
    for round in 0..query.depth {
        let edge_of_walk = hops.clone();
        for one in &walked {
            for (from, to) in ways(one, query.direction) {
                if edge_of_walk.get(from) == Some(&round) {
                    hops.entry(to).or_insert(round + 1);
                }
            }
        }
    }
    let mut order: Vec<(u32, &EntityId)> = hops.iter().map(|(id, hops)| (*hops, *id)).collect();
    order.sort();
    order.truncate(query.limit);
    let kept: BTreeMap<&EntityId, u32> = order.iter().map(|(hops, id)| (*id, *hops)).collect();
    let mut taken: Vec<Relationship> = walked
        .into_iter()
        .filter(|one| kept.contains_key(&one.source) && kept.contains_key(&one.target))
        .filter(|one| ways(one, query.direction).iter().any(|(from, _)| kept[*from] < query.depth))
        .cloned()
        .collect();
    taken.sort_by(|left, right| left.id.cmp(&right.id));
    let reached = |(hops, id): (u32, &EntityId)| {
        let entity = entities.iter().find(|entity| entity.id == *id)?.clone();
        Some(Reached::new(entity, hops))
    };
    SubGraph::new(order.into_iter().filter_map(reached).collect(), taken)
}

/// Returns the directions in which a traversal follows a relationship.
fn ways(one: &Relationship, direction: Direction) -> Vec<(&EntityId, &EntityId)> {
    let (out, back) = ((&one.source, &one.target), (&one.target, &one.source));
    match direction {
        Direction::Out => vec![out],
        Direction::In => vec![back],
        Direction::Both => vec![out, back],
    }
}
