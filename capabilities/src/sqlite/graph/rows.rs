//! Conversion of entities, relationships and ids to and from rows.

use larder_kernel::{
    Entity, EntityId, Namespace, Relationship, RelationshipId, Revision, StoredEntity, StoredRelationship,
};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::sqlite::failure::Fallible;
use crate::sqlite::value;

/// Returns the row of an entity.
pub(super) fn entity_key(
    connection: &Connection,
    namespace: &Namespace,
    id: &EntityId,
) -> Fallible<Option<i64>> {
    Ok(connection
        .prepare_cached("SELECT key FROM entities WHERE namespace = ?1 AND id = ?2")?
        .query_row(params![namespace.as_str(), id.as_str()], |row| row.get(0))
        .optional()?)
}

/// Returns an entity from the columns id, entity_type and properties.
pub(super) fn entity(row: &Row<'_>) -> Fallible<Entity> {
    Ok(Entity::new(value::id(row, 0)?, value::id(row, 1)?).with_properties(value::metadata(row, 2)?))
}

/// Returns a relationship from the columns id, relationship_type, the ids of both ends and properties.
pub(super) fn relationship(row: &Row<'_>) -> Fallible<Relationship> {
    Ok(Relationship::new(value::id(row, 0)?, value::id(row, 1)?, value::id(row, 2)?, value::id(row, 3)?)
        .with_properties(value::metadata(row, 4)?))
}

/// Returns the entities with these ids, in their order.
pub(super) fn get_entities(
    connection: &Connection,
    namespace: &Namespace,
    ids: &[EntityId],
) -> Fallible<Vec<Option<Entity>>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, entity_type, properties FROM entities WHERE namespace = ?1 AND id = ?2",
    )?;
    let mut entities = Vec::with_capacity(ids.len());
    for id in ids {
        let mut rows = statement.query(params![namespace.as_str(), id.as_str()])?;
        entities.push(rows.next()?.map(entity).transpose()?);
    }
    Ok(entities)
}

/// Returns an entity with its revision.
pub(super) fn stored_entity(
    connection: &Connection,
    namespace: &Namespace,
    id: &EntityId,
) -> Fallible<Option<StoredEntity>> {
    let mut statement = connection.prepare_cached(
        "SELECT id, entity_type, properties, revision FROM entities WHERE namespace = ?1 AND id = ?2",
    )?;
    let mut rows = statement.query(params![namespace.as_str(), id.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(StoredEntity::new(entity(row)?, Revision::new(value::count(row.get(3)?)?))))
}

/// Returns the relationships with these ids, in their order.
pub(super) fn get_relationships(
    connection: &Connection,
    namespace: &Namespace,
    ids: &[RelationshipId],
) -> Fallible<Vec<Option<Relationship>>> {
    let mut statement = connection.prepare_cached(
        "SELECT r.id, r.relationship_type, s.id, t.id, r.properties FROM relationships r
         JOIN entities s ON s.key = r.source JOIN entities t ON t.key = r.target
         WHERE r.namespace = ?1 AND r.id = ?2",
    )?;
    let mut relationships = Vec::with_capacity(ids.len());
    for id in ids {
        let mut rows = statement.query(params![namespace.as_str(), id.as_str()])?;
        relationships.push(rows.next()?.map(relationship).transpose()?);
    }
    Ok(relationships)
}

/// Returns a relationship with its revision.
pub(super) fn stored_relationship(
    connection: &Connection,
    namespace: &Namespace,
    id: &RelationshipId,
) -> Fallible<Option<StoredRelationship>> {
    let mut statement = connection.prepare_cached(
        "SELECT r.id, r.relationship_type, s.id, t.id, r.properties, r.revision FROM relationships r
         JOIN entities s ON s.key = r.source JOIN entities t ON t.key = r.target
         WHERE r.namespace = ?1 AND r.id = ?2",
    )?;
    let mut rows = statement.query(params![namespace.as_str(), id.as_str()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    Ok(Some(StoredRelationship::new(relationship(row)?, Revision::new(value::count(row.get(5)?)?))))
}
