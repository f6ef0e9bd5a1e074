//! Walking outward, breadth first, level by level.
//!
//! A walk of one hop often meets few: it is begun as a short read, and left to a reader once it has met more than such a
//! read may.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use larder_kernel::{
    Direction, Entity, EntityId, Metadata, Namespace, NeighborQuery, Reached, Relationship, RelationshipId,
    RelationshipType, SubGraph,
};
use rusqlite::{Connection, Row, Statement, params};

use super::rows::{entity, entity_key};
use crate::sqlite::column;
use crate::sqlite::engine::Allowance;
use crate::sqlite::failure::{Fallible, corrupt};

/// The relationships of an entity from an id on, along an index that holds all of this.
pub(super) const OUT: &str =
    "SELECT key, target, relationship_type FROM relationships WHERE source = ?1 AND id >= ?2 ORDER BY id";
pub(super) const IN: &str =
    "SELECT key, source, relationship_type FROM relationships WHERE target = ?1 AND id >= ?2 ORDER BY id";
/// The same from the first one on, each read whole.
pub(super) const WHOLE_OUT: &str = "SELECT key, target, id, relationship_type, source, target, properties FROM relationships \
     WHERE source = ?1 ORDER BY id";
pub(super) const WHOLE_IN: &str = "SELECT key, source, id, relationship_type, source, target, properties FROM relationships \
     WHERE target = ?1 ORDER BY id";

/// What a relationship on the way takes of a read's allowance: a page each for its row, its other end, and the end's id.
const STEP_BYTES: i64 = 3 * 4_096;

const ENTITY: &str = "SELECT id, entity_type, properties FROM entities WHERE key = ?1";

const RELATIONSHIP: &str =
    "SELECT id, relationship_type, source, target, properties FROM relationships WHERE key = ?1";

/// The statements for one direction: of whole relationships, and of what decides about a step.
type Way = (&'static str, &'static str);

/// A relationship met on the way, as seen from the entity that is being left.
struct Step {
    relationship: i64,
    other: i64,
    /// Where it was read whole.
    edge: Option<Edge>,
}

/// A relationship with the rows of its ends.
struct Edge {
    id: RelationshipId,
    relationship_type: RelationshipType,
    source: i64,
    target: i64,
    properties: Metadata,
}

impl Edge {
    /// From the columns id, relationship_type, source, target and properties, the first of which has this number.
    fn read(row: &Row<'_>, first: usize, allowance: &mut Allowance) -> Fallible<Self> {
        allowance.take(column::bytes(row, first + 4)?)?;
        Ok(Self {
            id: column::id(row, first)?,
            relationship_type: column::id(row, first + 1)?,
            source: row.get(first + 2)?,
            target: row.get(first + 3)?,
            properties: column::metadata(row, first + 4)?,
        })
    }
}

/// An entity that was met, whole where the limit lets in all that were met so far: most walks cut nothing off, and then
/// each row is read once. So are relationships, where all of an entity's are asked for.
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
    ways: &'static [Way],
    types: HashSet<&'c str>,
    limit: usize,
    /// The ids of the entities reached, by their rows.
    reached: HashMap<i64, EntityId>,
    /// The rows of the entities reached, the entities and their hops, in the answer's order.
    order: Vec<(i64, Met, u32)>,
    /// The relationships walked whose both ends are reached, by their rows.
    walked: HashMap<i64, Option<Edge>>,
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
        ways: match query.direction {
            Direction::Both => &[(WHOLE_OUT, OUT), (WHOLE_IN, IN)],
            Direction::Out => &[(WHOLE_OUT, OUT)],
            Direction::In => &[(WHOLE_IN, IN)],
        },
        types: query.relationship_types.iter().map(RelationshipType::as_str).collect(),
        limit: query.limit,
        reached: HashMap::from([(key, start.clone())]),
        order: vec![(key, Met::Named(start.clone()), 0)],
        walked: HashMap::new(),
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
            for way in self.ways {
                self.steps_from(from, way, &mut steps, &mut met)?;
            }
        }
        let mut next: Vec<(i64, Met)> = met.into_iter().collect();
        next.sort_unstable_by(|(_, left), (_, right)| left.id().cmp(right.id()));
        next.truncate(self.room());
        self.reached.extend(next.iter().map(|(key, met)| (*key, met.id().clone())));
        for step in steps {
            if self.reached.contains_key(&step.other) {
                self.walked.entry(step.relationship).or_insert(step.edge);
            }
        }
        let level = next.iter().map(|(key, _)| *key).collect();
        self.order.extend(next.into_iter().map(|(key, met)| (key, met, hops)));
        Ok(level)
    }

    /// How many more entities the limit lets in.
    fn room(&self) -> usize {
        self.limit.saturating_sub(self.order.len())
    }

    /// Collects what there is at an entity in one direction: every step, and the entities met for the first time.
    fn steps_from(
        &mut self,
        from: i64,
        (whole, sparing): &Way,
        steps: &mut Vec<Step>,
        met: &mut HashMap<i64, Met>,
    ) -> Fallible<()> {
        let room = self.room();
        let mut first = String::new();
        if self.types.is_empty() && met.len() < room {
            match self.whole_steps_from(from, whole, steps, met)? {
                Some(left) => first = left,
                None => return Ok(()),
            }
        }
        let mut statement = self.connection.prepare_cached(sparing)?;
        let mut whole = self.connection.prepare_cached(ENTITY)?;
        let mut name = self.connection.prepare_cached("SELECT id FROM entities WHERE key = ?1")?;
        let mut rows = statement.query(params![from, first])?;
        while let Some(row) = rows.next()? {
            self.allowance.take(STEP_BYTES)?;
            if !self.types.is_empty() {
                let kind = row.get_ref(2)?.as_str().map_err(|_| corrupt("sqlite.read"))?;
                if !self.types.contains(kind) {
                    continue;
                }
            }
            let step = Step { relationship: row.get(0)?, other: row.get(1)?, edge: None };
            if !self.reached.contains_key(&step.other) {
                if room == 0 {
                    continue;
                }
                let all_fit = met.len() < room;
                if let Entry::Vacant(place) = met.entry(step.other) {
                    place.insert(if all_fit {
                        Met::Whole(self.entity(&mut whole, step.other)?)
                    } else {
                        let mut rows = name.query([step.other])?;
                        let row = rows.next()?.ok_or_else(|| corrupt("sqlite.read"))?;
                        Met::Named(column::id(row, 0)?)
                    });
                }
            }
            steps.push(step);
        }
        Ok(())
    }

    /// As above with all that is read whole, until one entity more is met than the limit lets in: then it gives the id of
    /// the first relationship that is left. What may be cut off is not worth reading whole.
    fn whole_steps_from(
        &mut self,
        from: i64,
        sql: &str,
        steps: &mut Vec<Step>,
        met: &mut HashMap<i64, Met>,
    ) -> Fallible<Option<String>> {
        let room = self.room();
        let mut statement = self.connection.prepare_cached(sql)?;
        let mut whole = self.connection.prepare_cached(ENTITY)?;
        let mut rows = statement.query([from])?;
        while let Some(row) = rows.next()? {
            self.allowance.take(STEP_BYTES)?;
            let other = row.get(1)?;
            if !self.reached.contains_key(&other) && !met.contains_key(&other) {
                if met.len() == room {
                    return Ok(Some(row.get(2)?));
                }
                met.insert(other, Met::Whole(self.entity(&mut whole, other)?));
            }
            let relationship = row.get(0)?;
            // Met from its other end before, it was read then.
            let edge = (!self.walked.contains_key(&relationship))
                .then(|| Edge::read(row, 2, self.allowance))
                .transpose()?;
            steps.push(Step { relationship, other, edge });
        }
        Ok(None)
    }

    /// Reads an entity by its row, with the statement [`ENTITY`].
    fn entity(&mut self, statement: &mut Statement<'_>, key: i64) -> Fallible<Entity> {
        let mut rows = statement.query([key])?;
        let row = rows.next()?.ok_or_else(|| corrupt("sqlite.read"))?;
        self.allowance.take(column::bytes(row, 2)?)?;
        entity(row)
    }

    fn into_answer(mut self) -> Fallible<SubGraph> {
        let mut statement = self.connection.prepare_cached(ENTITY)?;
        let mut entities = Vec::with_capacity(self.order.len());
        for (key, met, hops) in std::mem::take(&mut self.order) {
            let entity = match met {
                Met::Whole(entity) => entity,
                Met::Named(_) => self.entity(&mut statement, key)?,
            };
            entities.push(Reached { entity, hops });
        }
        let mut relationships = self.relationships()?;
        relationships.sort_unstable_by(|left, right| left.id.cmp(&right.id));
        Ok(SubGraph { entities, relationships })
    }

    fn relationships(&mut self) -> Fallible<Vec<Relationship>> {
        let mut statement = self.connection.prepare_cached(RELATIONSHIP)?;
        let mut relationships = Vec::with_capacity(self.walked.len());
        for (key, edge) in std::mem::take(&mut self.walked) {
            let edge = match edge {
                Some(edge) => edge,
                None => {
                    let mut rows = statement.query([key])?;
                    Edge::read(rows.next()?.ok_or_else(|| corrupt("sqlite.read"))?, 0, self.allowance)?
                }
            };
            let end = |key| -> Fallible<EntityId> {
                Ok(self.reached.get(&key).cloned().ok_or_else(|| corrupt("sqlite.read"))?)
            };
            relationships.push(Relationship {
                id: edge.id,
                relationship_type: edge.relationship_type,
                source: end(edge.source)?,
                target: end(edge.target)?,
                properties: edge.properties,
            });
        }
        Ok(relationships)
    }
}
