//! Breadth-first traversal, level by level.
//!
//! A traversal of few hops often finds few entities. So it begins inline, in slices that each expand some
//! entities. A reader thread takes over once the traversal has read, or is likely to read, more than an
//! inline read may.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;

use larder_kernel::{
    Direction, Entity, EntityId, Metadata, Namespace, NeighborQuery, Reached, Relationship, RelationshipId,
    RelationshipType, SubGraph,
};
use rusqlite::{Connection, Row, Statement, params};

use super::rows::{entity, entity_key};
use crate::sqlite::engine::{INLINE_ROWS_MAX, ReadBudget};
use crate::sqlite::failure::{Failure, Fallible, corrupt};
use crate::sqlite::value;

/// The relationships of an entity from an id on, from a covering index.
pub(super) const OUT: &str =
    "SELECT key, target, relationship_type FROM relationships WHERE source = ?1 AND id >= ?2 ORDER BY id";
pub(super) const IN: &str =
    "SELECT key, source, relationship_type FROM relationships WHERE target = ?1 AND id >= ?2 ORDER BY id";
/// All relationships of an entity, with all their columns.
pub(super) const FULL_OUT: &str = "SELECT key, target, id, relationship_type, source, target, properties \
                                   FROM relationships \
     WHERE source = ?1 ORDER BY id";
pub(super) const FULL_IN: &str = "SELECT key, source, id, relationship_type, source, target, properties FROM \
                                  relationships \
     WHERE target = ?1 ORDER BY id";

/// The cost of a relationship in a read's budget: one page each for its row, its other end, and the id of
/// that end.
const STEP_BYTES: i64 = 3 * 4_096;

/// The cost of a lookup that may find nothing.
const LOOK_BYTES: i64 = 4_096;

/// The maximum number of relationships that a traversal may be expected to meet, estimated from its progress,
/// to continue with another slice.
const STEPS_MAX: usize = 256;

const ENTITY: &str = "SELECT id, entity_type, properties FROM entities WHERE key = ?1";

const RELATIONSHIP: &str =
    "SELECT id, relationship_type, source, target, properties FROM relationships WHERE key = ?1";

/// The statements for one direction: one for full relationships, one for the columns that decide about a
/// step.
type DirectionSql = (&'static str, &'static str);

/// A relationship of the traversal, seen from the expanded entity.
struct Step {
    relationship: i64,
    other: i64,
    /// The relationship, if all its columns were read.
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
    /// Reads the columns id, relationship_type, source, target and properties, starting at column `first`.
    fn read(row: &Row<'_>, first: usize, budget: &mut ReadBudget) -> Fallible<Self> {
        budget.take(value::bytes(row, first + 4)?)?;
        Ok(Self {
            id: value::id(row, first)?,
            relationship_type: value::id(row, first + 1)?,
            source: row.get(first + 2)?,
            target: row.get(first + 3)?,
            properties: value::metadata(row, first + 4)?,
        })
    }
}

/// A discovered entity. It is loaded in full while the limit admits every discovered entity. Most traversals
/// never reach the limit, and then each row is read once. The same applies to relationships if all types are
/// requested.
enum Discovered {
    Loaded(Entity),
    IdOnly(EntityId),
}

impl Discovered {
    fn id(&self) -> &EntityId {
        match self {
            Self::Loaded(entity) => &entity.id,
            Self::IdOnly(id) => id,
        }
    }
}

/// The connection and the budget of a slice.
struct Read<'c> {
    connection: &'c Connection,
    budget: &'c mut ReadBudget,
}

impl Read<'_> {
    /// Loads an entity by its row, with the statement [`ENTITY`].
    fn entity(&mut self, statement: &mut Statement<'_>, key: i64) -> Fallible<Entity> {
        let mut rows = statement.query([key])?;
        let row = rows.next()?.ok_or_else(|| corrupt("sqlite.read"))?;
        self.budget.take(value::bytes(row, 2)?)?;
        entity(row)
    }
}

/// The state of a traversal. It holds entities and relationships as row ids until it builds the result.
pub(super) struct Traversal {
    namespace: Namespace,
    start: EntityId,
    directions: &'static [DirectionSql],
    types: HashSet<String>,
    limit: usize,
    hops_left: u32,
    hops: u32,
    /// The rows of the entities of this level that are still to be expanded.
    frontier: Vec<i64>,
    /// The relationships found in the expanded entities of this level.
    steps: Vec<Step>,
    discovered: HashMap<i64, Discovered>,
    edges_seen: usize,
    expanded: usize,
    /// The number of rows that are still to be read for the result.
    rows_owed: usize,
    /// The ids of the reached entities, by their rows.
    reached: HashMap<i64, EntityId>,
    /// The rows of the reached entities, the entities and their hops, in the order of the result.
    order: Vec<(i64, Discovered, u32)>,
    /// The traversed relationships whose ends are both reached, by their rows.
    edges: HashMap<i64, Option<Edge>>,
}

impl Traversal {
    /// Creates the traversal of `query` from an entity.
    pub(super) fn new(namespace: &Namespace, start: &EntityId, query: &NeighborQuery) -> Self {
        Self {
            namespace: namespace.clone(),
            start: start.clone(),
            directions: match query.direction {
                Direction::Both => &[(FULL_OUT, OUT), (FULL_IN, IN)],
                Direction::Out => &[(FULL_OUT, OUT)],
                Direction::In => &[(FULL_IN, IN)],
            },
            types: query.relationship_types.iter().map(|kind| kind.as_str().to_owned()).collect(),
            limit: query.limit,
            hops_left: query.depth,
            hops: 0,
            frontier: Vec::new(),
            steps: Vec::new(),
            discovered: HashMap::new(),
            edges_seen: 0,
            expanded: 0,
            rows_owed: 0,
            reached: HashMap::new(),
            order: Vec::new(),
            edges: HashMap::new(),
        }
    }

    /// Continues until the result is complete or the slice has read enough.
    pub(super) fn slice(
        &mut self,
        connection: &Connection,
        budget: &mut ReadBudget,
    ) -> Fallible<ControlFlow<SubGraph>> {
        if self.order.is_empty() {
            if self.limit == 0 {
                return Ok(ControlFlow::Break(SubGraph::default()));
            }
            let Some(key) = entity_key(connection, &self.namespace, &self.start)? else {
                return Ok(ControlFlow::Break(SubGraph::default()));
            };
            self.reached.insert(key, self.start.clone());
            self.order.push((key, Discovered::IdOnly(self.start.clone()), 0));
            self.frontier.push(key);
        }
        let mut read = Read { connection, budget };
        while self.hops_left > 0 {
            if !read.budget.is_unlimited() && (self.exceeds_inline() || self.rows_owed > INLINE_ROWS_MAX) {
                return Err(Failure::BudgetExceeded);
            }
            while let Some(from) = self.frontier.pop() {
                for direction in self.directions {
                    self.expand(&mut read, from, direction)?;
                }
                self.expanded += 1;
                if read.budget.ends_slice() {
                    return Ok(ControlFlow::Continue(()));
                }
            }
            self.finish_level();
        }
        self.answer(&mut read).map(ControlFlow::Break)
    }

    /// Returns true if the rest of the traversal is likely to exceed a few slices, estimated from the reads
    /// so far.
    fn exceeds_inline(&self) -> bool {
        let each = self.edges_seen.checked_div(self.expanded).unwrap_or(0);
        let (mut expected, mut leaving) = (0, self.frontier.len());
        for _ in 0..self.hops_left {
            let steps = leaving.saturating_mul(each);
            expected = steps.saturating_add(expected);
            leaving = steps.min(self.remaining());
        }
        expected > STEPS_MAX
    }

    /// Ends a level: the discovered entities become the next frontier, up to the limit.
    fn finish_level(&mut self) {
        self.hops += 1;
        let mut next: Vec<(i64, Discovered)> = std::mem::take(&mut self.discovered).into_iter().collect();
        next.sort_unstable_by(|(_, left), (_, right)| left.id().cmp(right.id()));
        next.truncate(self.remaining());
        self.reached.extend(next.iter().map(|(key, met)| (*key, met.id().clone())));
        for step in self.steps.drain(..) {
            if self.reached.contains_key(&step.other) {
                self.edges.entry(step.relationship).or_insert(step.edge);
            }
        }
        self.frontier = next.iter().map(|(key, _)| *key).collect();
        self.hops_left = if self.frontier.is_empty() { 0 } else { self.hops_left - 1 };
        self.order.extend(next.into_iter().map(|(key, met)| (key, met, self.hops)));
    }

    /// Returns how many more entities the limit allows.
    fn remaining(&self) -> usize {
        self.limit.saturating_sub(self.order.len())
    }

    /// Collects the relationships of an entity in one direction, and the entities that they discover.
    fn expand(&mut self, read: &mut Read<'_>, from: i64, (whole, sparing): &DirectionSql) -> Fallible<()> {
        read.budget.take(LOOK_BYTES)?;
        let remaining = self.remaining();
        let mut first = String::new();
        if self.types.is_empty() && self.discovered.len() < remaining {
            match self.expand_whole(read, from, whole)? {
                Some(left) => first = left,
                None => return Ok(()),
            }
        }
        let mut statement = read.connection.prepare_cached(sparing)?;
        let mut whole = read.connection.prepare_cached(ENTITY)?;
        let mut name = read.connection.prepare_cached("SELECT id FROM entities WHERE key = ?1")?;
        let mut rows = statement.query(params![from, first])?;
        while let Some(row) = rows.next()? {
            read.budget.take(STEP_BYTES)?;
            self.edges_seen += 1;
            if !self.types.is_empty() {
                let kind = row.get_ref(2)?.as_str().map_err(|_| corrupt("sqlite.read"))?;
                if !self.types.contains(kind) {
                    continue;
                }
            }
            let step = Step { relationship: row.get(0)?, other: row.get(1)?, edge: None };
            if !self.reached.contains_key(&step.other) {
                if remaining == 0 {
                    continue;
                }
                let all_fit = self.discovered.len() < remaining;
                if let Entry::Vacant(place) = self.discovered.entry(step.other) {
                    place.insert(if all_fit {
                        Discovered::Loaded(read.entity(&mut whole, step.other)?)
                    } else {
                        let mut rows = name.query([step.other])?;
                        let row = rows.next()?.ok_or_else(|| corrupt("sqlite.read"))?;
                        self.rows_owed += 1;
                        Discovered::IdOnly(value::id(row, 0)?)
                    });
                }
            }
            self.rows_owed += 1;
            self.steps.push(step);
        }
        Ok(())
    }

    /// As `expand`, but loads all rows in full, until it would discover one entity more than the limit
    /// admits. It then returns the id of the first remaining relationship: rows that may be cut off are not
    /// worth loading.
    fn expand_whole(&mut self, read: &mut Read<'_>, from: i64, sql: &str) -> Fallible<Option<String>> {
        let remaining = self.remaining();
        let mut statement = read.connection.prepare_cached(sql)?;
        let mut whole = read.connection.prepare_cached(ENTITY)?;
        let mut rows = statement.query([from])?;
        while let Some(row) = rows.next()? {
            read.budget.take(STEP_BYTES)?;
            let other = row.get(1)?;
            if !self.reached.contains_key(&other) && !self.discovered.contains_key(&other) {
                if self.discovered.len() == remaining {
                    return Ok(Some(row.get(2)?));
                }
                self.discovered.insert(other, Discovered::Loaded(read.entity(&mut whole, other)?));
            }
            self.edges_seen += 1;
            let relationship = row.get(0)?;
            // If the relationship was discovered from its other end, it is already loaded.
            let edge = (!self.edges.contains_key(&relationship))
                .then(|| Edge::read(row, 2, read.budget))
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
                Discovered::Loaded(entity) => entity,
                Discovered::IdOnly(_) => read.entity(&mut statement, key)?,
            };
            entities.push(Reached { entity, hops });
        }
        let mut relationships = self.relationships(read)?;
        relationships.sort_unstable_by(|left, right| left.id.cmp(&right.id));
        Ok(SubGraph { entities, relationships })
    }

    fn relationships(&mut self, read: &mut Read<'_>) -> Fallible<Vec<Relationship>> {
        let mut statement = read.connection.prepare_cached(RELATIONSHIP)?;
        let mut relationships = Vec::with_capacity(self.edges.len());
        for (key, edge) in std::mem::take(&mut self.edges) {
            let edge = match edge {
                Some(edge) => edge,
                None => {
                    let mut rows = statement.query([key])?;
                    Edge::read(rows.next()?.ok_or_else(|| corrupt("sqlite.read"))?, 0, read.budget)?
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
