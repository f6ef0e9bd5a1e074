//! The operations on a graph: their random generation.

use larder_kernel::{
    Direction, Entity, EntityId, EntityQuery, EntityType, GraphMode, Metadata, NeighborQuery, PageRequest,
    Relationship, RelationshipId, RelationshipQuery, RelationshipType,
};
use serde_json::json;

use crate::model::rng::{Rng, valid};
use crate::model::shared::{filter, limit, metadata, request};

/// The condition, before the revision is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) enum Condition {
    None,
    Absent,
    /// The entity's revision, or one that was never assigned if the entity is missing.
    Current,
    /// A revision that was never assigned.
    Far,
}

#[derive(Debug, Clone)]
pub(in crate::model) struct Write {
    pub(super) entity: Entity,
    pub(super) condition: Condition,
    pub(super) mode: GraphMode,
}

#[derive(Debug, Clone)]
pub(in crate::model) struct EdgeWrite {
    pub(super) relationship: Relationship,
    pub(super) condition: Condition,
    pub(super) mode: GraphMode,
}

#[derive(Debug, Clone)]
pub(in crate::model) enum Operation {
    Entities(Vec<Entity>),
    Writes(Vec<Write>),
    Relationships(Vec<Relationship>),
    EdgeWrites(Vec<EdgeWrite>),
    GetEntities(Vec<EntityId>),
    GetRelationships(Vec<RelationshipId>),
    Neighbors { entity: EntityId, query: NeighborQuery },
    DeleteEntity(EntityId),
    DeleteRelationship(RelationshipId),
    FindEntities { query: EntityQuery, page: PageRequest<EntityId> },
    FindRelationships { query: RelationshipQuery, page: PageRequest<RelationshipId> },
    Count,
    Erase,
}

pub(super) fn draw(rng: &mut Rng<'_>) -> Operation {
    match rng.weighted(&[9, 10, 2, 2, 8, 2, 2, 4, 4, 2, 1, 8, 6]) {
        1 => Operation::Relationships(relationships(rng)),
        2 => {
            let count = rng.of(&[1_usize, 2, 3, 0]);
            Operation::GetEntities((0..count).map(|_| entity(rng)).collect())
        }
        3 => {
            let count = rng.of(&[1_usize, 2, 3, 0]);
            Operation::GetRelationships((0..count).map(|_| relationship(rng)).collect())
        }
        4 => Operation::Neighbors { entity: entity(rng), query: walk(rng) },
        5 => Operation::DeleteEntity(entity(rng)),
        6 => Operation::DeleteRelationship(relationship(rng)),
        7 => Operation::FindEntities {
            query: EntityQuery::default()
                .with_type((rng.below(3) == 2).then(|| entity_type(rng)))
                .with_filter((rng.below(2) == 1).then(|| filter(rng))),
            page: request(rng, entity),
        },
        8 => Operation::FindRelationships {
            query: RelationshipQuery::default()
                .with_type((rng.below(3) == 2).then(|| relationship_type(rng)))
                .with_source((rng.below(3) == 2).then(|| entity(rng)))
                .with_target((rng.below(3) == 2).then(|| entity(rng)))
                .with_filter((rng.below(3) == 2).then(|| filter(rng))),
            page: request(rng, relationship),
        },
        9 => Operation::Count,
        10 if rng.one_in(4) => Operation::Erase,
        11 => Operation::Writes(writes(rng)),
        12 => Operation::EdgeWrites(edge_writes(rng)),
        _ => Operation::Entities(entities(rng)),
    }
}

fn entity(rng: &mut Rng<'_>) -> EntityId {
    valid(EntityId::new(rng.id()))
}

fn relationship(rng: &mut Rng<'_>) -> RelationshipId {
    valid(RelationshipId::new(rng.id()))
}

fn entity_type(rng: &mut Rng<'_>) -> EntityType {
    let index = rng.below(2);
    valid(EntityType::new(&rng.ids.0[index]))
}

fn relationship_type(rng: &mut Rng<'_>) -> RelationshipType {
    let index = rng.below(2);
    valid(RelationshipType::new(&rng.ids.0[index]))
}

/// Draws properties, sometimes with a nested object, which a merge replaces as a whole.
fn properties(rng: &mut Rng<'_>) -> Metadata {
    if !rng.one_in(6) {
        return metadata(rng);
    }
    Metadata::new()
        .with("k", rng.of(&[json!({ "a": 1 }), json!({ "b": { "c": 2 } }), json!({ "b": { "d": 3 } })]))
}

/// Draws up to four entities, starting from one of the script's ids; sometimes none, or the same twice.
fn entities(rng: &mut Rng<'_>) -> Vec<Entity> {
    let (count, first) = (rng.of(&[1_usize, 2, 4, 3, 2, 4, 3, 0]), rng.below(4));
    let twice = rng.one_in(20);
    let (entity_type, properties) = (entity_type(rng), properties(rng));
    (0..count)
        .map(|number| {
            let name = if twice { first } else { (first + number) % 4 };
            let id = valid(EntityId::new(&rng.ids.0[name]));
            Entity::new(id, entity_type.clone()).with_properties(properties.clone())
        })
        .collect()
}

/// Draws the same entities with conditions and modes.
fn writes(rng: &mut Rng<'_>) -> Vec<Write> {
    let entities = entities(rng);
    let write = |entity| {
        let (condition, mode) = condition(rng);
        Write { entity, condition, mode }
    };
    entities.into_iter().map(write).collect()
}

/// Draws relationships with conditions and modes.
fn edge_writes(rng: &mut Rng<'_>) -> Vec<EdgeWrite> {
    let relationships = relationships(rng);
    let write = |relationship| {
        let (condition, mode) = condition(rng);
        EdgeWrite { relationship, condition, mode }
    };
    relationships.into_iter().map(write).collect()
}

fn condition(rng: &mut Rng<'_>) -> (Condition, GraphMode) {
    let condition = rng.of(&[
        Condition::None,
        Condition::None,
        Condition::None,
        Condition::Current,
        Condition::Current,
        Condition::Absent,
        Condition::Far,
    ]);
    (condition, rng.of(&[GraphMode::Merge, GraphMode::Replace, GraphMode::Merge]))
}

/// Draws one or two relationships; sometimes none, or the same twice.
fn relationships(rng: &mut Rng<'_>) -> Vec<Relationship> {
    let count = rng.of(&[1_usize, 1, 1, 2, 2, 0]);
    let (relationship_type, properties) = (relationship_type(rng), properties(rng));
    (0..count)
        .map(|_| {
            Relationship::new(relationship(rng), relationship_type.clone(), entity(rng), entity(rng))
                .with_properties(properties.clone())
        })
        .collect()
}

fn walk(rng: &mut Rng<'_>) -> NeighborQuery {
    let depth = rng.of(&[1, 2, 3, 0, 32, 4, 33]);
    let direction = rng.of(&[Direction::Both, Direction::Out, Direction::In]);
    let limit = limit(rng);
    let relationship_types = match rng.below(4) {
        0 | 1 => Vec::new(),
        2 => vec![relationship_type(rng)],
        _ => vec![relationship_type(rng), relationship_type(rng)],
    };
    NeighborQuery::depth(depth).with_direction(direction).with_types(relationship_types).with_limit(limit)
}
