//! Graph traversals in memory, compared with a minimal structure for them: an immutable array of neighbors.

use std::hint::black_box;
use std::time::Instant;

use larder::memory::{InMemoryGraphStore, ReachedIds};
use larder_kernel::{
    Direction, Entity, EntityId, EntityType, GraphStore, NeighborQuery, Relationship, RelationshipId,
    RelationshipType,
};

use super::curve::Plot;
use super::figure::{Figure, Subject, Target, Unit, in_turns};
use super::window::micros_each;
use super::{Outcome, Plan};

/// Relationships that leave each entity.
const DEGREE: usize = 10;
const DEPTH: u32 = 3;
/// Items per write during the filling.
const BATCH: usize = 1_000;

/// Neighbors in one array, and the offset of each entity's neighbors (CSR).
struct Fixed {
    starts: Vec<usize>,
    targets: Vec<u32>,
    /// The number of the last traversal that visited the node.
    stamps: Vec<u32>,
    walk: u32,
}

impl Fixed {
    fn new(targets: Vec<u32>) -> Self {
        let starts: Vec<usize> = (0..=targets.len() / DEGREE).map(|node| node * DEGREE).collect();
        Self { stamps: vec![0; starts.len()], starts, targets, walk: 0 }
    }

    /// Returns the nodes within this number of steps, breadth first.
    fn reach(&mut self, start: usize, depth: u32) -> Outcome<Vec<u32>> {
        self.walk += 1;
        let mut reached = vec![u32::try_from(start)?];
        self.stamps[start] = self.walk;
        let mut ring = 0;
        for _ in 0..depth {
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

/// Random neighbors.
fn targets(nodes: usize) -> Outcome<Vec<u32>> {
    let mut random = larder_kernel::random::Random::new(1);
    (0..nodes * DEGREE).map(|_| Ok(u32::try_from(random.below(nodes))?)).collect()
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

/// The graph that both sides traverse, and the start nodes.
struct Ground {
    store: InMemoryGraphStore,
    ids: Vec<EntityId>,
    walks: u32,
}

impl Ground {
    /// Returns the same starts for both sides, and other starts in each round.
    fn start(&self, round: usize, walk: u32) -> Outcome<usize> {
        Ok((round * 7_919 + usize::try_from(walk)? * 104_729) % self.ids.len())
    }

    fn starts(&self, round: usize) -> impl Iterator<Item = Outcome<usize>> {
        (0..self.walks).map(move |walk| self.start(round, walk))
    }

    async fn reach(&self, start: usize, depth: u32) -> Outcome<ReachedIds> {
        let query = NeighborQuery::depth(depth).with_direction(Direction::Out);
        Ok(self.store.reach(&self.ids[start], &query).await?)
    }

    /// Both sides must reach the same number of nodes.
    async fn check(&self, fixed: &mut Fixed) -> Outcome<()> {
        for start in self.starts(0).take(10) {
            let start = start?;
            let (found, expected) = (self.reach(start, DEPTH).await?, fixed.reach(start, DEPTH)?);
            if found.len() != expected.len() || found.iter().count() != expected.len() {
                return Err(format!("a walk found {} of {} entities", found.len(), expected.len()).into());
            }
        }
        Ok(())
    }

    async fn walked(&self, plan: &Plan, fixed: &mut Fixed) -> Outcome<Vec<(f64, f64)>> {
        in_turns(
            plan,
            async |round| {
                let begun = Instant::now();
                for start in self.starts(round) {
                    black_box(self.reach(start?, DEPTH).await?);
                }
                Ok(micros_each(begun, self.walks))
            },
            async |round| {
                let begun = Instant::now();
                for start in self.starts(round) {
                    black_box(fixed.reach(start?, DEPTH)?);
                }
                Ok(micros_each(begun, self.walks))
            },
        )
        .await
    }

    /// Like `walked`, with a separate string for each id that was reached.
    async fn read(&self, plan: &Plan, fixed: &mut Fixed) -> Outcome<Vec<(f64, f64)>> {
        let texts: Vec<Box<str>> = self.ids.iter().map(|id| id.as_str().into()).collect();
        in_turns(
            plan,
            async |round| {
                let begun = Instant::now();
                for start in self.starts(round) {
                    let reached = self.reach(start?, DEPTH).await?;
                    black_box(reached.iter().map(|(id, _)| id.as_str().to_owned()).collect::<Vec<_>>());
                }
                Ok(micros_each(begun, self.walks))
            },
            async |round| {
                let begun = Instant::now();
                for start in self.starts(round) {
                    let reached = fixed.reach(start?, DEPTH)?;
                    let text = |node: u32| Ok(texts[usize::try_from(node)?].to_string());
                    black_box(reached.into_iter().map(text).collect::<Outcome<Vec<_>>>()?);
                }
                Ok(micros_each(begun, self.walks))
            },
        )
        .await
    }

    /// Measures the cost of a traversal as a function of the visited relationships.
    async fn curve(&self, plan: &Plan, fixed: &mut Fixed) -> Outcome<Vec<(f64, f64)>> {
        let mut points = Vec::new();
        for depth in 1..=4 {
            let walks = plan.size(if depth < 4 { 300 } else { 50 }, 20);
            let mut visited = 0;
            for walk in 0..walks {
                visited += fixed.reach(self.start(0, walk)?, depth - 1)?.len() * DEGREE;
            }
            let begun = Instant::now();
            for walk in 0..walks {
                black_box(self.reach(self.start(0, walk)?, depth).await?);
            }
            points.push((visited as f64 / f64::from(walks), micros_each(begun, walks)));
        }
        Ok(points)
    }
}

/// Measures a traversal of three hops, on a graph that may change between any two traversals.
pub(super) async fn memory(plan: &Plan) -> Outcome<Vec<Figure>> {
    let nodes = usize::try_from(plan.size(100_000, 10_000))?;
    let targets = targets(nodes)?;
    let store = InMemoryGraphStore::new();
    let ids = fill(&store, nodes, &targets).await?;
    let (ground, mut fixed) = (Ground { store, ids, walks: plan.size(500, 100) }, Fixed::new(targets));
    ground.check(&mut fixed).await?;
    let walked = ground.walked(plan, &mut fixed).await?;
    let read = ground.read(plan, &mut fixed).await?;
    plan.draw(Plot::GraphWalk, "in memory, ids only", ground.curve(plan, &mut fixed).await?);
    let subject = |name, what: &str, peer: &str, target| Subject {
        name,
        what: format!(
            "{what} within {DEPTH} hops, {nodes} entities and {} relationships, starting from a user's id",
            nodes * DEGREE
        ),
        peer: format!("an array of neighbors (CSR) with a stamp for each node{peer}"),
        settings: "in memory on both sides".to_owned(),
        unit: Unit::Micros,
        target,
    };
    Ok(vec![
        subject("memory-reach", "the entities", "", Some(Target::AtMost(4.0))).figure(&walked),
        subject("memory-reach-text", "a text for each id", ", and an array of texts", None).figure(&read),
    ])
}
