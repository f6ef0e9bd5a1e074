//! Conversion of rows to entities and relationships.

use std::collections::HashMap;

use larder_kernel::{
    Entity, EntityId, Namespace, Relationship, RelationshipId, Revision, StoredEntity, StoredRelationship,
};
use sqlx::PgConnection;
use sqlx::postgres::PgRow;

use crate::postgres::decode;
use crate::postgres::failure::Fallible;

/// Returns an entity from the columns id, entity_type and properties.
pub(super) fn entity(row: &PgRow) -> Fallible<Entity> {
    Ok(Entity::new(decode::id(row, 0)?, decode::id(row, 1)?).with_properties(decode::metadata(row, 2)?))
}

/// Returns an entity from the columns id and entity_type and, after two others, properties.
pub(super) fn reached(row: &PgRow) -> Fallible<Entity> {
    Ok(Entity::new(decode::id(row, 0)?, decode::id(row, 1)?).with_properties(decode::metadata(row, 4)?))
}

/// Returns a relationship from the columns id, relationship_type, source, target and properties.
pub(super) fn relationship(row: &PgRow) -> Fallible<Relationship> {
    Ok(Relationship::new(decode::id(row, 0)?, decode::id(row, 1)?, decode::id(row, 2)?, decode::id(row, 3)?)
        .with_properties(decode::metadata(row, 4)?))
}

/// Returns the existing entities among these ids.
pub(super) async fn entities(
    connection: &mut PgConnection,
    namespace: &Namespace,
    ids: &[&str],
) -> Fallible<HashMap<EntityId, Entity>> {
    let rows = sqlx::query(
        "SELECT id, entity_type, properties FROM larder.entities WHERE namespace = $1 AND id = ANY($2)",
    )
    .bind(namespace.as_str())
    .bind(ids)
    .fetch_all(connection)
    .await?;
    rows.iter().map(|row| entity(row).map(|entity| (entity.id.clone(), entity))).collect()
}

/// Returns the existing entities among these ids, with their revisions.
pub(super) async fn stored_entities(
    connection: &mut PgConnection,
    namespace: &Namespace,
    ids: &[&str],
) -> Fallible<HashMap<EntityId, StoredEntity>> {
    let rows = sqlx::query(
        "SELECT id, entity_type, properties, revision FROM larder.entities
         WHERE namespace = $1 AND id = ANY($2)",
    )
    .bind(namespace.as_str())
    .bind(ids)
    .fetch_all(connection)
    .await?;
    let stored = |row: &PgRow| -> Fallible<_> {
        let revision = Revision::new(decode::unsigned(row, 3)?);
        let entity = entity(row)?;
        Ok((entity.id.clone(), StoredEntity::new(entity, revision)))
    };
    rows.iter().map(stored).collect()
}

/// Returns the existing relationships among these ids.
pub(super) async fn relationships(
    connection: &mut PgConnection,
    namespace: &Namespace,
    ids: &[&str],
) -> Fallible<HashMap<RelationshipId, Relationship>> {
    let rows = sqlx::query(
        "SELECT id, relationship_type, source, target, properties FROM larder.relationships
         WHERE namespace = $1 AND id = ANY($2)",
    )
    .bind(namespace.as_str())
    .bind(ids)
    .fetch_all(connection)
    .await?;
    rows.iter().map(|row| relationship(row).map(|found| (found.id.clone(), found))).collect()
}

/// Returns the existing relationships among these ids, with their revisions.
pub(super) async fn stored_relationships(
    connection: &mut PgConnection,
    namespace: &Namespace,
    ids: &[&str],
) -> Fallible<HashMap<RelationshipId, StoredRelationship>> {
    let rows = sqlx::query(
        "SELECT id, relationship_type, source, target, properties, revision FROM larder.relationships
         WHERE namespace = $1 AND id = ANY($2)",
    )
    .bind(namespace.as_str())
    .bind(ids)
    .fetch_all(connection)
    .await?;
    let stored = |row: &PgRow| -> Fallible<_> {
        let revision = Revision::new(decode::unsigned(row, 5)?);
        let found = relationship(row)?;
        Ok((found.id.clone(), StoredRelationship::new(found, revision)))
    };
    rows.iter().map(stored).collect()
}
