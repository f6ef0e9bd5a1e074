//! The values that [`GraphStore`](super::GraphStore) takes and returns.

use serde::{Deserialize, Serialize};

use crate::filter::Filter;
use crate::id::{EntityId, EntityType, RelationshipId, RelationshipType};
use crate::limits::PAGE_ITEMS_MAX;
use crate::metadata::Metadata;

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entity {
    /// Its id.
    pub id: EntityId,
    /// Its type.
    pub entity_type: EntityType,
    /// Anything known of it.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub properties: Metadata,
}

impl Entity {
    /// An entity without properties.
    #[must_use]
    pub fn new(id: EntityId, entity_type: EntityType) -> Self {
        Self { id, entity_type, properties: Metadata::new() }
    }

    /// Sets the properties.
    #[must_use]
    pub fn with_properties(mut self, properties: Metadata) -> Self {
        self.properties = properties;
        self
    }
}

/// A directed edge.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Relationship {
    /// Its id.
    pub id: RelationshipId,
    /// Its type.
    pub relationship_type: RelationshipType,
    /// Where it begins.
    pub source: EntityId,
    /// Where it ends.
    pub target: EntityId,
    /// Anything known of it.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub properties: Metadata,
}

impl Relationship {
    /// A relationship without properties.
    #[must_use]
    pub fn new(
        id: RelationshipId,
        relationship_type: RelationshipType,
        source: EntityId,
        target: EntityId,
    ) -> Self {
        Self { id, relationship_type, source, target, properties: Metadata::new() }
    }

    /// Sets the properties.
    #[must_use]
    pub fn with_properties(mut self, properties: Metadata) -> Self {
        self.properties = properties;
        self
    }
}

/// What an upsert did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct UpsertReport {
    /// How many were not there before.
    pub created: u64,
    /// How many were there and were replaced.
    pub replaced: u64,
}

/// Which way relationships are walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Both ways.
    #[default]
    Both,
    /// From source to target.
    Out,
    /// From target to source.
    In,
}

/// How to walk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NeighborQuery {
    /// Most hops, 0 to 32.
    pub depth: u32,
    /// Which way.
    pub direction: Direction,
    /// Which types; empty for all.
    pub relationship_types: Vec<RelationshipType>,
    /// Most entities to return, the start included, 0 to 10,000.
    pub limit: usize,
}

impl NeighborQuery {
    /// Both ways, all types, up to `depth` hops and 10,000 entities.
    #[must_use]
    pub fn depth(depth: u32) -> Self {
        Self { depth, direction: Direction::Both, relationship_types: Vec::new(), limit: PAGE_ITEMS_MAX }
    }

    /// Sets which way.
    #[must_use]
    pub fn with_direction(mut self, direction: Direction) -> Self {
        self.direction = direction;
        self
    }

    /// Sets which types.
    #[must_use]
    pub fn with_types(mut self, types: impl IntoIterator<Item = RelationshipType>) -> Self {
        self.relationship_types = types.into_iter().collect();
        self
    }

    /// Sets how many entities to return.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

impl Default for NeighborQuery {
    fn default() -> Self {
        Self::depth(1)
    }
}

/// An entity that a walk reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reached {
    /// The entity.
    pub entity: Entity,
    /// The length of the shortest walk to it.
    pub hops: u32,
}

/// What a walk reached.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct SubGraph {
    /// The entities, by hops and then by id, the start first.
    pub entities: Vec<Reached>,
    /// The relationships among them that the walk could take, by id.
    pub relationships: Vec<Relationship>,
}

/// What the deletion of an entity did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DeletedEntity {
    /// Whether the entity was there.
    pub existed: bool,
    /// How many relationships went with it.
    pub relationships: u64,
}

/// Which entities to find. The default finds all.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct EntityQuery {
    /// Of this type.
    pub entity_type: Option<EntityType>,
    /// With properties that match.
    pub filter: Option<Filter>,
}

/// Which relationships to find. The default finds all.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct RelationshipQuery {
    /// Of this type.
    pub relationship_type: Option<RelationshipType>,
    /// Beginning here.
    pub source: Option<EntityId>,
    /// Ending here.
    pub target: Option<EntityId>,
    /// With properties that match.
    pub filter: Option<Filter>,
}

/// How much a graph holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct GraphCounts {
    /// How many entities.
    pub entities: u64,
    /// How many relationships.
    pub relationships: u64,
}

/// One row of a Cypher answer: column names to JSON values.
pub type CypherRow = Metadata;
