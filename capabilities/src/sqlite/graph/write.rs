//! The writes, each inside one transaction.

use larder_kernel::{
    DeletedEntity, Entity, EntityId, Error, ErrorKind, Namespace, Relationship, RelationshipId, UpsertReport,
    check,
};
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::entity_key;
use crate::sqlite::failure::Fallible;
use crate::sqlite::value::metadata_text;

/// Writes entities. An existing entity keeps its row, and so its relationships.
pub(super) fn upsert_entities(
    connection: &Connection,
    namespace: &Namespace,
    entities: &[Entity],
) -> Fallible<UpsertReport> {
    let mut update = connection.prepare_cached(
        "UPDATE entities SET entity_type = ?3, properties = ?4 WHERE namespace = ?1 AND id = ?2",
    )?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO entities (namespace, id, entity_type, properties) VALUES (?1, ?2, ?3, ?4)",
    )?;
    let mut report = UpsertReport::default();
    for entity in entities {
        let properties = metadata_text(&entity.properties)?;
        let values = params![namespace.as_str(), entity.id.as_str(), entity.entity_type.as_str(), properties];
        if update.execute(values)? > 0 {
            report.replaced += 1;
        } else {
            insert.execute(values)?;
            report.created += 1;
        }
    }
    Ok(report)
}

/// Writes relationships whose ends exist.
pub(super) fn upsert_relationships(
    connection: &Connection,
    namespace: &Namespace,
    relationships: &[Relationship],
) -> Fallible<UpsertReport> {
    let mut update = connection.prepare_cached(
        "UPDATE relationships SET relationship_type = ?3, source = ?4, target = ?5, properties = ?6
         WHERE namespace = ?1 AND id = ?2",
    )?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO relationships (namespace, id, relationship_type, source, target, properties)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    let mut report = UpsertReport::default();
    for relationship in relationships {
        let properties = metadata_text(&relationship.properties)?;
        let values = params![
            namespace.as_str(),
            relationship.id.as_str(),
            relationship.relationship_type.as_str(),
            end(connection, namespace, &relationship.source, "relationship.source")?,
            end(connection, namespace, &relationship.target, "relationship.target")?,
            properties
        ];
        if update.execute(values)? > 0 {
            report.replaced += 1;
        } else {
            insert.execute(values)?;
            report.created += 1;
        }
    }
    Ok(report)
}

/// Returns the row of the entity at one end of a relationship.
fn end(connection: &Connection, namespace: &Namespace, id: &EntityId, field: &'static str) -> Fallible<i64> {
    entity_key(connection, namespace, id)?.ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            "graph.upsert_relationships",
            "the source or target entity does not exist; write the entities first",
        )
        .with_field(field)
        .into()
    })
}

/// Deletes an entity and its relationships.
pub(super) fn delete_entity(
    connection: &Connection,
    namespace: &Namespace,
    id: &EntityId,
) -> Fallible<DeletedEntity> {
    let Some(key) = entity_key(connection, namespace, id)? else { return Ok(DeletedEntity::default()) };
    // The foreign keys would delete them too, but without a count. A loop counts once.
    let relationships = connection
        .prepare_cached("DELETE FROM relationships WHERE source = ?1 OR target = ?1")?
        .execute([key])?;
    connection.prepare_cached("DELETE FROM entities WHERE key = ?1")?.execute([key])?;
    Ok(DeletedEntity { existed: true, relationships: check::size(relationships) })
}

/// Deletes a relationship and returns true if it existed.
pub(super) fn delete_relationship(
    connection: &Connection,
    namespace: &Namespace,
    id: &RelationshipId,
) -> Fallible<bool> {
    let key: Option<i64> = connection
        .prepare_cached("DELETE FROM relationships WHERE namespace = ?1 AND id = ?2 RETURNING key")?
        .query_row(params![namespace.as_str(), id.as_str()], |row| row.get(0))
        .optional()?;
    Ok(key.is_some())
}

/// Removes the whole graph of the namespace.
pub(super) fn erase(connection: &Connection, namespace: &Namespace) -> Fallible<()> {
    for statement in
        ["DELETE FROM relationships WHERE namespace = ?1", "DELETE FROM entities WHERE namespace = ?1"]
    {
        connection.prepare_cached(statement)?.execute([namespace.as_str()])?;
    }
    Ok(())
}
