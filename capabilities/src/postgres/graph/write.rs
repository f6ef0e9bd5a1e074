//! The writes, each inside one transaction. Rows are locked in the order of their ids, entities before
//! relationships, so that concurrent writes wait for each other without a deadlock.

use larder_kernel::{DeletedEntity, Entity, EntityId, Namespace, Relationship, RelationshipId, UpsertReport};
use sqlx::PgConnection;

use super::upsert::{check_ends, ends, report};
use crate::postgres::encode::metadata_text;
use crate::postgres::failure::Fallible;

/// Writes entities. An existing entity keeps its key, and so its relationships.
pub(super) async fn upsert_entities(
    connection: &mut PgConnection,
    namespace: &Namespace,
    entities: &[Entity],
) -> Fallible<UpsertReport> {
    let ids: Vec<&str> = entities.iter().map(|entity| entity.id.as_str()).collect();
    let types: Vec<&str> = entities.iter().map(|entity| entity.entity_type.as_str()).collect();
    let properties =
        entities.iter().map(|entity| metadata_text(&entity.properties)).collect::<Fallible<Vec<String>>>()?;
    // A new row has the default of `replaced`. The system columns would show it too, but not for a
    // partitioned table.
    let rows = sqlx::query(
        r#"INSERT INTO larder.entities (namespace, id, entity_type, properties)
           SELECT $1, given.* FROM unnest($2::text[], $3::text[], $4::text[]) AS given (id, kind, properties)
           ORDER BY given.id COLLATE "C"
           ON CONFLICT (namespace, id)
           DO UPDATE SET entity_type = excluded.entity_type, properties = excluded.properties, replaced = true
           RETURNING NOT entities.replaced AS created"#,
    )
    .bind(namespace.as_str())
    .bind(ids)
    .bind(types)
    .bind(properties)
    .fetch_all(connection)
    .await?;
    report(&rows)
}

/// Writes relationships whose ends exist and stay until the transaction ends.
pub(super) async fn upsert_relationships(
    connection: &mut PgConnection,
    namespace: &Namespace,
    relationships: &[Relationship],
) -> Fallible<UpsertReport> {
    hold_ends(connection, namespace, relationships).await?;
    let part = |part: fn(&Relationship) -> &str| -> Vec<&str> { relationships.iter().map(part).collect() };
    let properties = relationships
        .iter()
        .map(|relationship| metadata_text(&relationship.properties))
        .collect::<Fallible<Vec<String>>>()?;
    let rows = sqlx::query(
        r#"INSERT INTO larder.relationships (namespace, id, relationship_type, source, target, properties)
           SELECT $1, given.* FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
               AS given (id, kind, source, target, properties)
           ORDER BY given.id COLLATE "C"
           ON CONFLICT (namespace, id) DO UPDATE SET relationship_type = excluded.relationship_type,
               source = excluded.source, target = excluded.target, properties = excluded.properties,
               replaced = true
           RETURNING NOT relationships.replaced AS created"#,
    )
    .bind(namespace.as_str())
    .bind(part(|relationship| relationship.id.as_str()))
    .bind(part(|relationship| relationship.relationship_type.as_str()))
    .bind(part(|relationship| relationship.source.as_str()))
    .bind(part(|relationship| relationship.target.as_str()))
    .bind(properties)
    .fetch_all(connection)
    .await?;
    report(&rows)
}

/// Protects the entities at the ends from deletion, and rejects relationships with a missing end.
async fn hold_ends(
    connection: &mut PgConnection,
    namespace: &Namespace,
    relationships: &[Relationship],
) -> Fallible<()> {
    let rows = sqlx::query(
        "SELECT id FROM larder.entities WHERE namespace = $1 AND id = ANY($2) ORDER BY id FOR KEY SHARE",
    )
    .bind(namespace.as_str())
    .bind(ends(relationships))
    .fetch_all(connection)
    .await?;
    check_ends(relationships, &rows)
}

/// Deletes an entity and its relationships.
pub(super) async fn delete_entity(
    connection: &mut PgConnection,
    namespace: &Namespace,
    id: &EntityId,
) -> Fallible<DeletedEntity> {
    let found = sqlx::query("SELECT 1 FROM larder.entities WHERE namespace = $1 AND id = $2 FOR UPDATE")
        .bind(namespace.as_str())
        .bind(id.as_str())
        .fetch_optional(&mut *connection)
        .await?;
    if found.is_none() {
        return Ok(DeletedEntity::default());
    }
    // The foreign keys would delete them too, but without a count. A loop counts once.
    let gone = sqlx::query(
        "DELETE FROM larder.relationships WHERE namespace = $1 AND id IN (
             SELECT id FROM larder.relationships WHERE namespace = $1 AND (source = $2 OR target = $2)
             ORDER BY id FOR UPDATE)",
    )
    .bind(namespace.as_str())
    .bind(id.as_str())
    .execute(&mut *connection)
    .await?;
    sqlx::query("DELETE FROM larder.entities WHERE namespace = $1 AND id = $2")
        .bind(namespace.as_str())
        .bind(id.as_str())
        .execute(connection)
        .await?;
    Ok(DeletedEntity { existed: true, relationships: gone.rows_affected() })
}

/// Deletes a relationship and returns true if it existed.
pub(super) async fn delete_relationship(
    connection: &mut PgConnection,
    namespace: &Namespace,
    id: &RelationshipId,
) -> Fallible<bool> {
    let gone = sqlx::query("DELETE FROM larder.relationships WHERE namespace = $1 AND id = $2")
        .bind(namespace.as_str())
        .bind(id.as_str())
        .execute(connection)
        .await?;
    Ok(gone.rows_affected() > 0)
}

/// Removes the whole graph of the namespace.
pub(super) async fn erase(connection: &mut PgConnection, namespace: &Namespace) -> Fallible<()> {
    // Entities are locked first, as in every other write; their relationships are deleted with them.
    sqlx::query("SELECT 1 FROM larder.entities WHERE namespace = $1 ORDER BY id FOR UPDATE")
        .bind(namespace.as_str())
        .execute(&mut *connection)
        .await?;
    for statement in [
        "DELETE FROM larder.relationships WHERE namespace = $1",
        "DELETE FROM larder.entities WHERE namespace = $1",
    ] {
        sqlx::query(statement).bind(namespace.as_str()).execute(&mut *connection).await?;
    }
    Ok(())
}
