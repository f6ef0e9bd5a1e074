//! Walking outward, breadth first, level by level.
//!
//! A walk of one hop often meets few: it is begun as a short read, and left to a reader once it has met more than such a
//! read may.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use larder_kernel::{
    Direction, Entity, EntityId, Namespace, NeighborQuery, Reached, Relationship, RelationshipId,
    RelationshipType, SubGraph,
};
use rusqlite::Connection;

use super::rows::{entity, entity_key};
use crate::sqlite::column;
use crate::sqlite::engine::Allowance;
use crate::sqlite::failure::{Fallible, corrupt};

pub(super) const OUT: &str = "SELECT key, target, relationship_type FROM relationships WHERE source = ?1";
pub(super) const IN: &str = "SELECT key, source, relationship_type FROM relationships WHERE target = ?1";

/// What a relationship on the way takes of a read's allowance: a page each for its row, its other end, and the end's id.
const STEP_BYTES: i64 = 3 * 4_096;

const ENTITY: &str = "SELECT id, entity_type, properties FROM entities WHERE key = ?1";

/// A relationship met on the way, as seen from the entity that is being left.
struct Step {
    relationship: i64,
    other: i64,
}

/// An entity that was met, whole where the limit lets in all that were met so far: most walks cut nothing off, and then
/// each row is read once.
enum Met {
    Whole(Entity),
    Named(EntityId),
}

impl Met {
    fn id(&self) -> &EntityId {
        match self {
            Self::Whole(entity) => &entity.id,
            Self::Named(id) => id,
        }
    }
}

/// The walk's state. Rows stand for entities and relationships until the answer is put together.
struct Walk<'c> {
    connection: &'c Connection,
    allowance: &'c mut Allowance,
    statements: &'static [&'static str],
    types: HashSet<&'c str>,
    limit: usize,
    /// The ids of the entities reached, by their rows.
    reached: HashMap<i64, EntityId>,
    /// The rows of the entities reached, the entities and their hops, in the answer's order.
    order: Vec<(i64, Met, u32)>,
    /// The relationships walked whose both ends are reached.
    walked: HashSet<i64>,
}

/// What `query` reaches from an entity.
pub(super) fn neighbors(
    connection: &Connection,
    namespace: &Namespace,
    start: &EntityId,
    query: &NeighborQuery,
    allowance: &mut Allowance,
) -> Fallible<SubGraph> {
    if query.limit == 0 {
        return Ok(SubGraph::default());
    }
    let Some(key) = entity_key(connection, namespace, start)? else { return Ok(SubGraph::default()) };
    let mut walk = Walk {
        connection,
        allowance,
        statements: match query.direction {
            Direction::Both => &[OUT, IN],
            Direction::Out => &[OUT],
            Direction::In => &[IN],
        },
        types: query.relationship_types.iter().map(RelationshipType::as_str).collect(),
        limit: query.limit,
        reached: HashMap::from([(key, start.clone())]),
        order: vec![(key, Met::Named(start.clone()), 0)],
        walked: HashSet::new(),
    };
    let mut level = vec![key];
    for hops in 1..=query.depth {
        level = walk.leave(&level, hops)?;
        if level.is_empty() {
            break;
        }
    }
    walk.into_answer()
}

impl Walk<'_> {
    /// Leaves each entity of a level and gives back the next level, as far as the limit lets it in.
    fn leave(&mut self, level: &[i64], hops: u32) -> Fallible<Vec<i64>> {
        let mut steps = Vec::new();
        let mut met = HashMap::new();
        for &from in level {
            for sql in self.statements {
                self.steps_from(from, sql, &mut steps, &mut met)?;
            }
        }
        let mut next: Vec<(i64, Met)> = met.into_iter().collect();
        next.sort_unstable_by(|(_, left), (_, right)| left.id().cmp(right.id()));
        next.truncate(self.room());
        self.reached.extend(next.iter().map(|(key, met)| (*key, met.id().clone())));
        let kept = steps.iter().filter(|step| self.reached.contains_key(&step.other));
        self.walked.extend(kept.map(|step| step.relationship));
        let level = next.iter().map(|(key, _)| *key).collect();
        self.order.extend(next.into_iter().map(|(key, met)| (key, met, hops)));
        Ok(level)
    }

    /// How many more entities the limit lets in.
    fn room(&self) -> usize {
        self.limit.saturating_sub(self.order.len())
    }

    /// Collects what one statement finds at an entity: every step, and the entities met for the first time.
    fn steps_from(
        &mut self,
        from: i64,
        sql: &str,
        steps: &mut Vec<Step>,
        met: &mut HashMap<i64, Met>,
    ) -> Fallible<()> {
        let room = self.room();
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut whole = self.connection.prepare_cached(ENTITY)?;
        let mut name = self.connection.prepare_cached("SELECT id FROM entities WHERE key = ?1")?;
        let mut rows = statement.query([from])?;
        while let Some(row) = rows.next()? {
            self.allowance.take(STEP_BYTES)?;
            if !self.types.is_empty() {
                let kind = row.get_ref(2)?.as_str().map_err(|_| corrupt("sqlite.read"))?;
                if !self.types.contains(kind) {
                    continue;
                }
            }
            let step = Step { relationship: row.get(0)?, other: row.get(1)? };
            if !self.reached.contains_key(&step.other) {
                if room == 0 {
                    continue;
                }
                let all_fit = met.len() < room;
                if let Entry::Vacant(place) = met.entry(step.other) {
                    let mut rows = if all_fit { &mut whole } else { &mut name }.query([step.other])?;
                    let row = rows.next()?.ok_or_else(|| corrupt("sqlite.read"))?;
                    place.insert(if all_fit {
                        self.allowance.take(column::bytes(row, 2)?)?;
                        Met::Whole(entity(row)?)
                    } else {
                        Met::Named(column::id(row, 0)?)
                    });
                }
            }
            steps.push(step);
        }
        Ok(())
    }

    fn into_answer(mut self) -> Fallible<SubGraph> {
        let mut statement = self.connection.prepare_cached(ENTITY)?;
        let mut entities = Vec::with_capacity(self.order.len());
        for (key, met, hops) in std::mem::take(&mut self.order) {
            if let Met::Whole(entity) = met {
                entities.push(Reached { entity, hops });
                continue;
            }
            let mut rows = statement.query([key])?;
            let row = rows.next()?.ok_or_else(|| corrupt("sqlite.read"))?;
            self.allowance.take(column::bytes(row, 2)?)?;
            entities.push(Reached { entity: entity(row)?, hops });
        }
        let mut relationships = self.relationships()?;
        relationships.sort_unstable_by(|left, right| left.id.cmp(&right.id));
        Ok(SubGraph { entities, relationships })
    }

    fn relationships(&mut self) -> Fallible<Vec<Relationship>> {
        let mut statement = self.connection.prepare_cached(
            "SELECT id, relationship_type, source, target, properties FROM relationships WHERE key = ?1",
        )?;
        let mut relationships = Vec::with_capacity(self.walked.len());
        for key in &self.walked {
            let mut rows = statement.query([key])?;
            let row = rows.next()?.ok_or_else(|| corrupt("sqlite.read"))?;
            self.allowance.take(column::bytes(row, 4)?)?;
            let end = |column| -> Fallible<EntityId> {
                let key: i64 = row.get(column)?;
                Ok(self.reached.get(&key).cloned().ok_or_else(|| corrupt("sqlite.read"))?)
            };
            relationships.push(Relationship {
                id: column::id::<RelationshipId>(row, 0)?,
                relationship_type: column::id(row, 1)?,
                source: end(2)?,
                target: end(3)?,
                properties: column::metadata(row, 4)?,
            });
        }
        Ok(relationships)
    }
}
