//! Walks of the graph in memory beside the least that could make them: an array of neighbours that nobody can change.

use std::hint::black_box;
use std::time::Instant;

use larder_agents::storage::InMemoryGraphStore;
use larder_kernel::{
    Direction, Entity, EntityId, EntityType, GraphStore, NeighborQuery, Relationship, RelationshipId,
    RelationshipType,
};

use super::figure::{Figure, Subject, Target, Unit, in_turns};
use super::history::micros_each;
use super::{Outcome, Plan};

/// Relationships that leave each entity.
const DEGREE: usize = 10;
const DEPTH: u32 = 3;
/// Items of a write of the filling.
const BATCH: usize = 1_000;

/// Neighbours one after the other, and where those of each begin (CSR).
struct Fixed {
    starts: Vec<usize>,
    targets: Vec<u32>,
    /// The walk that last came by.
    stamps: Vec<u32>,
    walk: u32,
}

impl Fixed {
    fn new(targets: Vec<u32>) -> Self {
        let starts: Vec<usize> = (0..=targets.len() / DEGREE).map(|node| node * DEGREE).collect();
        Self { stamps: vec![0; starts.len()], starts, targets, walk: 0 }
    }

    /// The nodes that are reached, breadth first.
    fn reach(&mut self, start: u32) -> Outcome<Vec<u32>> {
        self.walk += 1;
        let mut reached = vec![start];
        self.stamps[usize::try_from(start)?] = self.walk;
        let mut ring = 0;
        for _ in 0..DEPTH {
            let end = reached.len();
            for at in ring..end {
                let node = usize::try_from(reached[at])?;
                for target in &self.targets[self.starts[node]..self.starts[node + 1]] {
                    let stamp = &mut self.stamps[usize::try_from(*target)?];
                    if *stamp != self.walk {
                        *stamp = self.walk;
                        reached.push(*target);
                    }
                }
            }
            ring = end;
        }
        Ok(reached)
    }
}

/// Neighbours without a pattern.
fn targets(nodes: usize) -> Outcome<Vec<u32>> {
    let mut number: u64 = 0x9E37_79B9_7F4A_7C15;
    (0..nodes * DEGREE)
        .map(|_| {
            number ^= number << 13;
            number ^= number >> 7;
            number ^= number << 17;
            Ok(u32::try_from(usize::try_from(number >> 33)? % nodes)?)
        })
        .collect()
}

fn id(node: usize) -> larder_kernel::Result<EntityId> {
    EntityId::new(format!("entity-{node}"))
}

async fn fill(store: &InMemoryGraphStore, nodes: usize, targets: &[u32]) -> Outcome<Vec<EntityId>> {
    let (thing, knows) = (EntityType::new("thing")?, RelationshipType::new("knows")?);
    let ids: Vec<EntityId> = (0..nodes).map(id).collect::<Result<_, _>>()?;
    for batch in ids.chunks(BATCH) {
        store
            .upsert_entities(batch.iter().map(|id| Entity::new(id.clone(), thing.clone())).collect())
            .await?;
    }
    let numbered: Vec<(usize, &u32)> = targets.iter().enumerate().collect();
    for batch in numbered.chunks(BATCH) {
        let relationships = batch.iter().map(|(number, target)| {
            let (source, target) = (ids[number / DEGREE].clone(), ids[usize::try_from(**target)?].clone());
            let id = RelationshipId::new(format!("relationship-{number}"))?;
            Ok(Relationship::new(id, knows.clone(), source, target))
        });
        store.upsert_relationships(relationships.collect::<Outcome<_>>()?).await?;
    }
    Ok(ids)
}

/// The ids within three hops, on a graph that may change between any two walks.
pub(super) async fn memory(plan: &Plan) -> Outcome<Vec<Figure>> {
    let nodes = usize::try_from(plan.size(100_000, 10_000))?;
    let walks = plan.size(500, 100);
    let targets = targets(nodes)?;
    let store = InMemoryGraphStore::new();
    let ids = fill(&store, nodes, &targets).await?;
    let mut fixed = Fixed::new(targets);
    let query = NeighborQuery::depth(DEPTH).with_direction(Direction::Out);
    // The same starts on both sides, others in each round.
    let start = |round: usize, walk: u32| -> Outcome<usize> {
        Ok((round * 7_919 + usize::try_from(walk)? * 104_729) % nodes)
    };
    for walk in 0..10 {
        let start = start(0, walk)?;
        let (found, expected) =
            (store.reach(&ids[start], &query).await?, fixed.reach(u32::try_from(start)?)?);
        if found.len() != expected.len() {
            return Err(format!("a walk found {} of {} entities", found.len(), expected.len()).into());
        }
    }
    let rounds = in_turns(
        plan,
        async |round| {
            let begun = Instant::now();
            for walk in 0..walks {
                black_box(store.reach(&ids[start(round, walk)?], &query).await?);
            }
            Ok(micros_each(begun, walks))
        },
        async |round| {
            let begun = Instant::now();
            for walk in 0..walks {
                black_box(fixed.reach(u32::try_from(start(round, walk)?)?)?);
            }
            Ok(micros_each(begun, walks))
        },
    )
    .await?;
    let subject = Subject {
        name: "memory-reach",
        what: format!(
            "ids within {DEPTH} hops, {nodes} entities and {} relationships, by the ids of users",
            nodes * DEGREE
        ),
        peer: "an array of neighbours (CSR) with a stamp for each node, by numbers".to_owned(),
        settings: "in memory on both sides".to_owned(),
        unit: Unit::Micros,
        target: Some(Target::AtMost(4.0)),
    };
    Ok(vec![subject.figure(&rounds)])
}
