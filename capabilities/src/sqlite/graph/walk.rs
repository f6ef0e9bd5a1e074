//! Walking outward, breadth first, level by level.
//!
//! A walk of few hops often meets few: it is begun in slices, each some entities that are left, and given to a reader once it
//! has met, or is going to meet, more than such a read may.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use larder_kernel::{
    Direction, Entity, EntityId, Metadata, Namespace, NeighborQuery, Reached, Relationship, RelationshipId,
    RelationshipType, SubGraph,
};
use rusqlite::{Connection, Row, Statement, params};

use super::rows::{entity, entity_key};
use crate::sqlite::column;
use crate::sqlite::engine::{Allowance, SHORT_ROWS_MAX};
use crate::sqlite::failure::{Failure, Fallible, corrupt};

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

/// What it takes to look whether anything is there.
const LOOK_BYTES: i64 = 4_096;

/// How many relationships a walk may be going to meet, by what it met so far, to be worth another slice.
const STEPS_MAX: usize = 256;

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

/// What a slice of a walk reads with.
struct Read<'c> {
    connection: &'c Connection,
    allowance: &'c mut Allowance,
}

impl Read<'_> {
    /// An entity by its row, with the statement [`ENTITY`].
    fn entity(&mut self, statement: &mut Statement<'_>, key: i64) -> Fallible<Entity> {
        let mut rows = statement.query([key])?;
        let row = rows.next()?.ok_or_else(|| corrupt("sqlite.read"))?;
        self.allowance.take(column::bytes(row, 2)?)?;
        entity(row)
    }
}

/// The walk's state. Rows stand for entities and relationships until the answer is put together.
pub(super) struct Walk {
    namespace: Namespace,
    start: EntityId,
    ways: &'static [Way],
    types: HashSet<String>,
    limit: usize,
    /// How many hops are still to be made, and how many were.
    ahead: u32,
    hops: u32,
    /// The rows of the entities of this level that are still to be left.
    level: Vec<i64>,
    /// What was met in leaving the others.
    steps: Vec<Step>,
    met: HashMap<i64, Met>,
    /// How many relationships were met, and how many entities left.
    stepped: usize,
    left: usize,
    /// How many rows the answer still has to be read from.
    owed: usize,
    /// The ids of the entities reached, by their rows.
    reached: HashMap<i64, EntityId>,
    /// The rows of the entities reached, the entities and their hops, in the answer's order.
    order: Vec<(i64, Met, u32)>,
    /// The relationships walked whose both ends are reached, by their rows.
    walked: HashMap<i64, Option<Edge>>,
}

impl Walk {
    /// What `query` reaches from an entity.
    pub(super) fn new(namespace: &Namespace, start: &EntityId, query: &NeighborQuery) -> Self {
        Self {
            namespace: namespace.clone(),
            start: start.clone(),
            ways: match query.direction {
                Direction::Both => &[(WHOLE_OUT, OUT), (WHOLE_IN, IN)],
                Direction::Out => &[(WHOLE_OUT, OUT)],
                Direction::In => &[(WHOLE_IN, IN)],
            },
            types: query.relationship_types.iter().map(|kind| kind.as_str().to_owned()).collect(),
            limit: query.limit,
            ahead: query.depth,
            hops: 0,
            level: Vec::new(),
            steps: Vec::new(),
            met: HashMap::new(),
            stepped: 0,
            left: 0,
            owed: 0,
            reached: HashMap::new(),
            order: Vec::new(),
            walked: HashMap::new(),
        }
    }

    /// Goes on until the answer is there, or what was read is enough for a slice.
    pub(super) fn slice(
        &mut self,
        connection: &Connection,
        allowance: &mut Allowance,
    ) -> Fallible<ControlFlow<SubGraph>> {
        if self.order.is_empty() {
            if self.limit == 0 {
                return Ok(ControlFlow::Break(SubGraph::default()));
            }
            let Some(key) = entity_key(connection, &self.namespace, &self.start)? else {
                return Ok(ControlFlow::Break(SubGraph::default()));
            };
            self.reached.insert(key, self.start.clone());
            self.order.push((key, Met::Named(self.start.clone()), 0));
            self.level.push(key);
        }
        let mut read = Read { connection, allowance };
        while self.ahead > 0 {
            if !read.allowance.is_unlimited() && (self.goes_far() || self.owed > SHORT_ROWS_MAX) {
                return Err(Failure::Long);
            }
            while let Some(from) = self.level.pop() {
                for way in self.ways {
                    self.steps_from(&mut read, from, way)?;
                }
                self.left += 1;
                if read.allowance.ends_slice() {
                    return Ok(ControlFlow::Continue(()));
                }
            }
            self.arrive();
        }
        self.answer(&mut read).map(ControlFlow::Break)
    }

    /// Whether what lies ahead is likely to be more than a few slices, if it is like what was met so far.
    fn goes_far(&self) -> bool {
        let each = self.stepped.checked_div(self.left).unwrap_or(0);
        let (mut expected, mut leaving) = (0, self.level.len());
        for _ in 0..self.ahead {
            let steps = leaving.saturating_mul(each);
            expected = steps.saturating_add(expected);
            leaving = steps.min(self.room());
        }
        expected > STEPS_MAX
    }

    /// Once all of a level are left: makes those met the next one, as far as the limit lets them in.
    fn arrive(&mut self) {
        self.hops += 1;
        let mut next: Vec<(i64, Met)> = std::mem::take(&mut self.met).into_iter().collect();
        next.sort_unstable_by(|(_, left), (_, right)| left.id().cmp(right.id()));
        next.truncate(self.room());
        self.reached.extend(next.iter().map(|(key, met)| (*key, met.id().clone())));
        for step in self.steps.drain(..) {
            if self.reached.contains_key(&step.other) {
                self.walked.entry(step.relationship).or_insert(step.edge);
            }
        }
        self.level = next.iter().map(|(key, _)| *key).collect();
        self.ahead = if self.level.is_empty() { 0 } else { self.ahead - 1 };
        self.order.extend(next.into_iter().map(|(key, met)| (key, met, self.hops)));
    }

    /// How many more entities the limit lets in.
    fn room(&self) -> usize {
        self.limit.saturating_sub(self.order.len())
    }

    /// Collects what there is at an entity in one direction: every step, and the entities met for the first time.
    fn steps_from(&mut self, read: &mut Read<'_>, from: i64, (whole, sparing): &Way) -> Fallible<()> {
        read.allowance.take(LOOK_BYTES)?;
        let room = self.room();
        let mut first = String::new();
        if self.types.is_empty() && self.met.len() < room {
            match self.whole_steps_from(read, from, whole)? {
                Some(left) => first = left,
                None => return Ok(()),
            }
        }
        let mut statement = read.connection.prepare_cached(sparing)?;
        let mut whole = read.connection.prepare_cached(ENTITY)?;
        let mut name = read.connection.prepare_cached("SELECT id FROM entities WHERE key = ?1")?;
        let mut rows = statement.query(params![from, first])?;
        while let Some(row) = rows.next()? {
            read.allowance.take(STEP_BYTES)?;
            self.stepped += 1;
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
                let all_fit = self.met.len() < room;
                if let Entry::Vacant(place) = self.met.entry(step.other) {
                    place.insert(if all_fit {
                        Met::Whole(read.entity(&mut whole, step.other)?)
                    } else {
                        let mut rows = name.query([step.other])?;
                        let row = rows.next()?.ok_or_else(|| corrupt("sqlite.read"))?;
                        self.owed += 1;
                        Met::Named(column::id(row, 0)?)
                    });
                }
            }
            self.owed += 1;
            self.steps.push(step);
        }
        Ok(())
    }

    /// As above with all that is read whole, until one entity more is met than the limit lets in: then it gives the id of
    /// the first relationship that is left. What may be cut off is not worth reading whole.
    fn whole_steps_from(&mut self, read: &mut Read<'_>, from: i64, sql: &str) -> Fallible<Option<String>> {
        let room = self.room();
        let mut statement = read.connection.prepare_cached(sql)?;
        let mut whole = read.connection.prepare_cached(ENTITY)?;
        let mut rows = statement.query([from])?;
        while let Some(row) = rows.next()? {
            read.allowance.take(STEP_BYTES)?;
            let other = row.get(1)?;
            if !self.reached.contains_key(&other) && !self.met.contains_key(&other) {
                if self.met.len() == room {
                    return Ok(Some(row.get(2)?));
                }
                self.met.insert(other, Met::Whole(read.entity(&mut whole, other)?));
            }
            self.stepped += 1;
            let relationship = row.get(0)?;
            // Met from its other end before, it was read then.
            let edge = (!self.walked.contains_key(&relationship))
                .then(|| Edge::read(row, 2, read.allowance))
                .transpose()?;
            self.steps.push(Step { relationship, other, edge });
        }
        Ok(None)
    }

    fn answer(&mut self, read: &mut Read<'_>) -> Fallible<SubGraph> {
        let mut statement = read.connection.prepare_cached(ENTITY)?;
        let mut entities = Vec::with_capacity(self.order.len());
        for (key, met, hops) in std::mem::take(&mut self.order) {
            let entity = match met {
                Met::Whole(entity) => entity,
                Met::Named(_) => read.entity(&mut statement, key)?,
            };
            entities.push(Reached { entity, hops });
        }
        let mut relationships = self.relationships(read)?;
        relationships.sort_unstable_by(|left, right| left.id.cmp(&right.id));
        Ok(SubGraph { entities, relationships })
    }

    fn relationships(&mut self, read: &mut Read<'_>) -> Fallible<Vec<Relationship>> {
        let mut statement = read.connection.prepare_cached(RELATIONSHIP)?;
        let mut relationships = Vec::with_capacity(self.walked.len());
        for (key, edge) in std::mem::take(&mut self.walked) {
            let edge = match edge {
                Some(edge) => edge,
                None => {
                    let mut rows = statement.query([key])?;
                    Edge::read(rows.next()?.ok_or_else(|| corrupt("sqlite.read"))?, 0, read.allowance)?
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
