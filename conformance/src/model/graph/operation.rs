//! The operations on a graph: how they are drawn.

use larder_kernel::{
    Direction, Entity, EntityId, EntityQuery, EntityType, NeighborQuery, PageRequest, Relationship,
    RelationshipId, RelationshipQuery, RelationshipType,
};

use crate::model::dice::{Dice, valid};
use crate::model::shared::{filter, limit, metadata, request};

#[derive(Debug, Clone)]
pub(in crate::model) enum Operation {
    Entities(Vec<Entity>),
    Relationships(Vec<Relationship>),
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

pub(super) fn draw(dice: &mut Dice<'_>) -> Operation {
    match dice.weighted(&[9, 10, 2, 2, 8, 2, 2, 4, 4, 2, 1]) {
        1 => Operation::Relationships(relationships(dice)),
        2 => {
            let count = dice.of(&[1_usize, 2, 3, 0]);
            Operation::GetEntities((0..count).map(|_| entity(dice)).collect())
        }
        3 => {
            let count = dice.of(&[1_usize, 2, 3, 0]);
            Operation::GetRelationships((0..count).map(|_| relationship(dice)).collect())
        }
        4 => Operation::Neighbors { entity: entity(dice), query: walk(dice) },
        5 => Operation::DeleteEntity(entity(dice)),
        6 => Operation::DeleteRelationship(relationship(dice)),
        7 => Operation::FindEntities {
            query: EntityQuery {
                entity_type: (dice.below(3) == 2).then(|| entity_type(dice)),
                filter: (dice.below(2) == 1).then(|| filter(dice)),
            },
            page: request(dice, entity),
        },
        8 => Operation::FindRelationships {
            query: RelationshipQuery {
                relationship_type: (dice.below(3) == 2).then(|| relationship_type(dice)),
                source: (dice.below(3) == 2).then(|| entity(dice)),
                target: (dice.below(3) == 2).then(|| entity(dice)),
                filter: (dice.below(3) == 2).then(|| filter(dice)),
            },
            page: request(dice, relationship),
        },
        9 => Operation::Count,
        10 if dice.one_in(4) => Operation::Erase,
        _ => Operation::Entities(entities(dice)),
    }
}

fn entity(dice: &mut Dice<'_>) -> EntityId {
    valid(EntityId::new(dice.id()))
}

fn relationship(dice: &mut Dice<'_>) -> RelationshipId {
    valid(RelationshipId::new(dice.id()))
}

fn entity_type(dice: &mut Dice<'_>) -> EntityType {
    let index = dice.below(2);
    valid(EntityType::new(&dice.ids.0[index]))
}

fn relationship_type(dice: &mut Dice<'_>) -> RelationshipType {
    let index = dice.below(2);
    valid(RelationshipType::new(&dice.ids.0[index]))
}

/// Up to four entities from one of the script's ids on; none, and the same twice, now and then.
fn entities(dice: &mut Dice<'_>) -> Vec<Entity> {
    let (count, first) = (dice.of(&[1_usize, 2, 4, 3, 2, 4, 3, 0]), dice.below(4));
    let twice = dice.one_in(20);
    let (entity_type, properties) = (entity_type(dice), metadata(dice));
    (0..count)
        .map(|number| {
            let name = if twice { first } else { (first + number) % 4 };
            let id = valid(EntityId::new(&dice.ids.0[name]));
            Entity { id, entity_type: entity_type.clone(), properties: properties.clone() }
        })
        .collect()
}

/// One or two relationships; none, and the same twice, now and then.
fn relationships(dice: &mut Dice<'_>) -> Vec<Relationship> {
    let count = dice.of(&[1_usize, 1, 1, 2, 2, 0]);
    let (relationship_type, properties) = (relationship_type(dice), metadata(dice));
    (0..count)
        .map(|_| Relationship {
            id: relationship(dice),
            relationship_type: relationship_type.clone(),
            source: entity(dice),
            target: entity(dice),
            properties: properties.clone(),
        })
        .collect()
}

fn walk(dice: &mut Dice<'_>) -> NeighborQuery {
    let depth = dice.of(&[1, 2, 3, 0, 32, 4, 33]);
    let direction = dice.of(&[Direction::Both, Direction::Out, Direction::In]);
    let limit = limit(dice);
    let relationship_types = match dice.below(4) {
        0 | 1 => Vec::new(),
        2 => vec![relationship_type(dice)],
        _ => vec![relationship_type(dice), relationship_type(dice)],
    };
    NeighborQuery { depth, direction, relationship_types, limit }
}
