//! Argument and result types of [`GraphStore`](super::GraphStore).

use serde::{Deserialize, Serialize};

use crate::filter::Filter;
use crate::id::{EntityId, EntityType, RelationshipId, RelationshipType};
use crate::limits::PAGE_ITEMS_MAX;
use crate::metadata::Metadata;
use crate::storage::options::{OptionSet, RequestOption};

/// A node.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Entity {
    /// The id.
    pub id: EntityId,
    /// The type.
    pub entity_type: EntityType,
    /// The properties.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub properties: Metadata,
}

impl Entity {
    /// Creates an entity without properties.
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
#[non_exhaustive]
pub struct Relationship {
    /// The id.
    pub id: RelationshipId,
    /// The type.
    pub relationship_type: RelationshipType,
    /// The entity at which the relationship begins.
    pub source: EntityId,
    /// The entity at which the relationship ends.
    pub target: EntityId,
    /// The properties.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub properties: Metadata,
}

impl Relationship {
    /// Creates a relationship without properties.
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

/// The result of an upsert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UpsertReport {
    /// The number of created items.
    pub created: u64,
    /// The number of replaced items.
    pub replaced: u64,
}

impl UpsertReport {
    /// Creates the result of an upsert.
    #[must_use]
    pub fn new(created: u64, replaced: u64) -> Self {
        Self { created, replaced }
    }
}

/// The direction in which a traversal follows relationships.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// Both directions.
    #[default]
    Both,
    /// From source to target.
    Out,
    /// From target to source.
    In,
}

/// The options of a traversal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct NeighborQuery {
    /// The maximum number of hops, 0 to 32.
    pub depth: u32,
    /// The direction of the traversal.
    pub direction: Direction,
    /// The relationship types to follow; empty for all types.
    pub relationship_types: Vec<RelationshipType>,
    /// The maximum number of entities to return, the start included, 0 to 10,000.
    pub limit: usize,
}

impl NeighborQuery {
    /// Creates a query in both directions over all types, up to `depth` hops and 10,000 entities.
    #[must_use]
    pub fn depth(depth: u32) -> Self {
        Self { depth, direction: Direction::Both, relationship_types: Vec::new(), limit: PAGE_ITEMS_MAX }
    }

    /// Sets the direction.
    #[must_use]
    pub fn with_direction(mut self, direction: Direction) -> Self {
        self.direction = direction;
        self
    }

    /// Sets the relationship types to follow.
    #[must_use]
    pub fn with_types(mut self, types: impl IntoIterator<Item = RelationshipType>) -> Self {
        self.relationship_types = types.into_iter().collect();
        self
    }

    /// Sets the maximum number of entities to return.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Returns the options that are set.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        // Names every field, so that a new field is a compile error here.
        let Self { depth: _, direction, relationship_types, limit: _ } = self;
        OptionSet::NONE
            .with_if(*direction != Direction::Both, RequestOption::NeighborsDirection)
            .with_if(!relationship_types.is_empty(), RequestOption::NeighborsTypes)
    }
}

impl Default for NeighborQuery {
    fn default() -> Self {
        Self::depth(1)
    }
}

/// An entity that a traversal reached.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reached {
    /// The entity.
    pub entity: Entity,
    /// The length of the shortest path to the entity.
    pub hops: u32,
}

impl Reached {
    /// Creates an entity that is `hops` relationships away from the start.
    #[must_use]
    pub fn new(entity: Entity, hops: u32) -> Self {
        Self { entity, hops }
    }
}

/// The result of a traversal.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SubGraph {
    /// The entities, by hops and then by id, with the start first.
    pub entities: Vec<Reached>,
    /// The relationships between these entities that the traversal could follow, by id.
    pub relationships: Vec<Relationship>,
}

impl SubGraph {
    /// Creates the result of a traversal.
    #[must_use]
    pub fn new(entities: Vec<Reached>, relationships: Vec<Relationship>) -> Self {
        Self { entities, relationships }
    }
}

/// The result of deleting an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
#[must_use = "an entity with more than 10,000 relationships needs more than one call"]
pub struct DeletedEntity {
    /// `true` if the entity existed.
    pub existed: bool,
    /// The number of relationships that the call deleted.
    pub relationships: u64,
    /// `true` if the entity has more relationships and therefore still exists.
    #[serde(default)]
    pub more: bool,
}

impl DeletedEntity {
    /// Creates the result of a deletion.
    pub fn new(existed: bool, relationships: u64) -> Self {
        Self { existed, relationships, more: false }
    }

    /// Sets whether the entity has more relationships and therefore still exists.
    pub fn with_more(mut self, more: bool) -> Self {
        self.more = more;
        self
    }
}

/// The entities to find. The default finds all.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EntityQuery {
    /// Finds only entities of this type.
    pub entity_type: Option<EntityType>,
    /// Finds only entities whose properties match.
    pub filter: Option<Filter>,
}

impl EntityQuery {
    /// Finds only entities of this type.
    #[must_use]
    pub fn with_type(mut self, entity_type: impl Into<Option<EntityType>>) -> Self {
        self.entity_type = entity_type.into();
        self
    }

    /// Finds only entities whose properties match.
    #[must_use]
    pub fn with_filter(mut self, filter: impl Into<Option<Filter>>) -> Self {
        self.filter = filter.into();
        self
    }

    /// Returns the options that are set.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        // Names every field, so that a new field is a compile error here.
        let Self { entity_type, filter } = self;
        OptionSet::NONE
            .with_if(entity_type.is_some(), RequestOption::EntitiesType)
            .with_if(filter.is_some(), RequestOption::EntitiesFilter)
    }
}

/// The relationships to find. The default finds all.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RelationshipQuery {
    /// Finds only relationships of this type.
    pub relationship_type: Option<RelationshipType>,
    /// Finds only relationships that begin at this entity.
    pub source: Option<EntityId>,
    /// Finds only relationships that end at this entity.
    pub target: Option<EntityId>,
    /// Finds only relationships whose properties match.
    pub filter: Option<Filter>,
}

impl RelationshipQuery {
    /// Finds only relationships of this type.
    #[must_use]
    pub fn with_type(mut self, relationship_type: impl Into<Option<RelationshipType>>) -> Self {
        self.relationship_type = relationship_type.into();
        self
    }

    /// Finds only relationships that begin at this entity.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Option<EntityId>>) -> Self {
        self.source = source.into();
        self
    }

    /// Finds only relationships that end at this entity.
    #[must_use]
    pub fn with_target(mut self, target: impl Into<Option<EntityId>>) -> Self {
        self.target = target.into();
        self
    }

    /// Finds only relationships whose properties match.
    #[must_use]
    pub fn with_filter(mut self, filter: impl Into<Option<Filter>>) -> Self {
        self.filter = filter.into();
        self
    }

    /// Returns the options that are set.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        // Names every field, so that a new field is a compile error here.
        let Self { relationship_type, source, target, filter } = self;
        OptionSet::NONE
            .with_if(relationship_type.is_some(), RequestOption::RelationshipsType)
            .with_if(source.is_some(), RequestOption::RelationshipsSource)
            .with_if(target.is_some(), RequestOption::RelationshipsTarget)
            .with_if(filter.is_some(), RequestOption::RelationshipsFilter)
    }
}

/// The number of items in a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct GraphCounts {
    /// The number of entities.
    pub entities: u64,
    /// The number of relationships.
    pub relationships: u64,
}

impl GraphCounts {
    /// Creates the number of items in a graph.
    #[must_use]
    pub fn new(entities: u64, relationships: u64) -> Self {
        Self { entities, relationships }
    }
}

/// One row of a Cypher result: column names with JSON values.
pub type CypherRow = Metadata;
