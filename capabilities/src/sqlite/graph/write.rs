//! The writes, each inside one transaction.

use std::borrow::Cow;

use larder_kernel::limits::PAGE_ITEMS_MAX;
use larder_kernel::{
    DeletedEntity, Entity, EntityId, EntityWrite, Error, ErrorKind, GraphWritten, Namespace, OptionSet,
    Relationship, RelationshipId, RelationshipWrite, Revision, check,
};
use rusqlite::{Connection, OptionalExtension, params};

use super::rows::{entity_key, stored_entity, stored_relationship};
use crate::sqlite::failure::Fallible;
use crate::sqlite::value::{count, length, metadata_text};

/// The number of rows that a step of an erasure deletes.
const ERASED_ROWS: usize = 2_000;

/// Writes entities. An existing entity keeps its row, and so its relationships.
pub(super) fn write_entities(
    connection: &Connection,
    namespace: &Namespace,
    writes: &[EntityWrite],
) -> Fallible<Vec<GraphWritten>> {
    let mut update = connection.prepare_cached(
        "UPDATE entities SET entity_type = ?3, revision = ?4, properties = ?5
         WHERE namespace = ?1 AND id = ?2",
    )?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO entities (namespace, id, entity_type, revision, properties) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let mut revision = reserved_revisions(connection, writes.len())?;
    let mut written = Vec::with_capacity(writes.len());
    for write in writes {
        let entity = match write.options() {
            OptionSet::NONE => Cow::Borrowed(&write.entity),
            _ => Cow::Owned(applied(connection, namespace, write)?),
        };
        revision += 1;
        let properties = metadata_text(&entity.properties)?;
        let (id, kind) = (entity.id.as_str(), entity.entity_type.as_str());
        let values = params![namespace.as_str(), id, kind, revision, properties];
        let created = update.execute(values)? == 0;
        if created {
            insert.execute(values)?;
        }
        written.push(GraphWritten::new(Revision::new(count(revision)?), created));
    }
    Ok(written)
}

/// Returns the entity that a write stores, if its condition holds.
fn applied(connection: &Connection, namespace: &Namespace, write: &EntityWrite) -> Fallible<Entity> {
    let stored = stored_entity(connection, namespace, &write.entity.id)?;
    Ok(write.apply(stored.as_ref().map(|stored| (stored.revision, &stored.entity.properties)))?)
}

/// Writes relationships whose ends exist.
pub(super) fn write_relationships(
    connection: &Connection,
    namespace: &Namespace,
    writes: &[RelationshipWrite],
    operation: &'static str,
) -> Fallible<Vec<GraphWritten>> {
    let mut update = connection.prepare_cached(
        "UPDATE relationships
         SET relationship_type = ?3, source = ?4, target = ?5, revision = ?6, properties = ?7
         WHERE namespace = ?1 AND id = ?2",
    )?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO relationships (namespace, id, relationship_type, source, target, revision, properties)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
    )?;
    let mut revision = reserved_revisions(connection, writes.len())?;
    let mut written = Vec::with_capacity(writes.len());
    for write in writes {
        let relationship = match write.options() {
            OptionSet::NONE => Cow::Borrowed(&write.relationship),
            _ => Cow::Owned(applied_relationship(connection, namespace, write)?),
        };
        revision += 1;
        let properties = metadata_text(&relationship.properties)?;
        let values = params![
            namespace.as_str(),
            relationship.id.as_str(),
            relationship.relationship_type.as_str(),
            end(connection, namespace, &relationship.source, operation, "relationship.source")?,
            end(connection, namespace, &relationship.target, operation, "relationship.target")?,
            revision,
            properties
        ];
        let created = update.execute(values)? == 0;
        if created {
            insert.execute(values)?;
        }
        written.push(GraphWritten::new(Revision::new(count(revision)?), created));
    }
    Ok(written)
}

/// Returns the relationship that a write stores, if its condition holds.
fn applied_relationship(
    connection: &Connection,
    namespace: &Namespace,
    write: &RelationshipWrite,
) -> Fallible<Relationship> {
    let stored = stored_relationship(connection, namespace, &write.relationship.id)?;
    let stored = stored.as_ref().map(|stored| (stored.revision, &stored.relationship.properties));
    Ok(write.apply(stored)?)
}

/// Reserves revisions for as many writes, and returns the number before the first.
fn reserved_revisions(connection: &Connection, writes: usize) -> Fallible<i64> {
    Ok(connection
        .prepare_cached(
            "UPDATE entity_revisions SET last_revision = last_revision + ?1 RETURNING last_revision - ?1",
        )?
        .query_row([length(writes)], |row| row.get(0))?)
}

/// Returns the row of the entity at one end of a relationship.
fn end(
    connection: &Connection,
    namespace: &Namespace,
    id: &EntityId,
    operation: &'static str,
    field: &'static str,
) -> Fallible<i64> {
    entity_key(connection, namespace, id)?.ok_or_else(|| {
        Error::new(
            ErrorKind::NotFound,
            operation,
            "the source or target entity does not exist; write the entities first",
        )
        .with_field(field)
        .into()
    })
}

pub(super) const DELETE_OF_ENTITY: &str = "DELETE FROM relationships WHERE key IN
    (SELECT key FROM relationships WHERE source = ?1 OR target = ?1 LIMIT ?2)";

/// Deletes an entity and its relationships, or some of its relationships if they are too many for one call.
pub(super) fn delete_entity(
    connection: &Connection,
    namespace: &Namespace,
    id: &EntityId,
) -> Fallible<DeletedEntity> {
    let Some(key) = entity_key(connection, namespace, id)? else { return Ok(DeletedEntity::default()) };
    // The foreign keys would delete them too, but without a count. A loop counts once.
    let relationships =
        connection.prepare_cached(DELETE_OF_ENTITY)?.execute([key, length(PAGE_ITEMS_MAX)])?;
    let deleted = connection
        .prepare_cached(
            "DELETE FROM entities WHERE key = ?1
                 AND NOT EXISTS (SELECT 1 FROM relationships WHERE source = ?1 OR target = ?1)",
        )?
        .execute([key])?;
    Ok(DeletedEntity::new(true, check::size(relationships)).with_more(deleted == 0))
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

/// The statements of the steps of an erasure. Entities are deleted after the last relationship, because each
/// takes its relationships with it.
pub(super) const ERASE: [&str; 2] = [
    "DELETE FROM relationships WHERE key IN (SELECT key FROM relationships WHERE namespace = ?1 LIMIT ?2)",
    "DELETE FROM entities WHERE key IN (SELECT key FROM entities WHERE namespace = ?1 LIMIT ?2)",
];

/// Runs one step of an erasure, and returns true if more may be left.
pub(super) fn erase_step(
    connection: &Connection,
    namespace: &Namespace,
    delete: &'static str,
) -> Fallible<bool> {
    let deleted =
        connection.prepare_cached(delete)?.execute(params![namespace.as_str(), length(ERASED_ROWS)])?;
    Ok(deleted >= ERASED_ROWS)
}
