//! The writes, each inside one transaction. Rows are locked in the order of their ids, entities before
//! relationships, so that concurrent writes wait for each other without a deadlock.

use std::collections::HashMap;

use futures_util::future::BoxFuture;
use larder_kernel::limits::PAGE_ITEMS_MAX;
use larder_kernel::{
    DeletedEntity, Entity, EntityId, EntityWrite, GraphWritten, Namespace, RelationshipId, check,
};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::upsert::{self, Existing, are_plain, in_order, written};
use crate::postgres::decode;
use crate::postgres::encode::{self, metadata_text};
use crate::postgres::failure::Fallible;

const OPERATION: &str = "graph.write_entities";

/// Writes entities. An existing entity keeps its key, and so its relationships.
pub(super) async fn write_entities(
    connection: &mut PgConnection,
    namespace: &Namespace,
    writes: &[EntityWrite],
) -> Fallible<Vec<GraphWritten>> {
    let entities: Vec<&Entity> = writes.iter().map(|write| &write.entity).collect();
    if are_plain(writes) {
        let rows = insert(connection, namespace, &entities, REPLACE).await?;
        return in_order(OPERATION, writes, &written(&rows)?);
    }
    let rows = insert(connection, namespace, &entities, HOLD).await?;
    let mut written = written(&rows)?;
    let mut stored = HashMap::new();
    for row in &rows {
        stored.insert(row.try_get::<&str, _>(0)?, decode::metadata(row, 3)?);
    }
    let changed = upsert::changed(writes, &written, &stored)?;
    let rows = update(connection, namespace, &changed).await?;
    written.extend(upsert::written(&rows)?);
    in_order(OPERATION, writes, &written)
}

/// Replaces the existing entities.
const REPLACE: Existing = (
    "entity_type = excluded.entity_type, properties = excluded.properties,
     revision = nextval('larder.entity_revisions')",
    "",
);
/// Locks the existing entities, leaves them as they are, and returns their properties.
const HOLD: Existing = ("revision = entities.revision", ", properties");

/// Inserts the entities that do not exist.
async fn insert(
    connection: &mut PgConnection,
    namespace: &Namespace,
    entities: &[&Entity],
    (set, returned): Existing,
) -> Fallible<Vec<PgRow>> {
    // A new row has the default of `replaced`. The system columns would show it too, but not for a
    // partitioned table.
    let sql = format!(
        r#"INSERT INTO larder.entities (namespace, id, entity_type, properties)
           SELECT $1, given.* FROM unnest($2::text[], $3::text[], $4::text[]) AS given (id, kind, properties)
           ORDER BY given.id COLLATE "C"
           ON CONFLICT (namespace, id) DO UPDATE SET {set}, replaced = true
           RETURNING id, revision, NOT entities.replaced{returned}"#
    );
    let (ids, types, properties) = columns(entities)?;
    Ok(sqlx::query(AssertSqlSafe(sql))
        .bind(namespace.as_str())
        .bind(ids)
        .bind(types)
        .bind(properties)
        .fetch_all(connection)
        .await?)
}

/// Writes entities whose rows this transaction has locked. Without the array of ids, a plan without
/// statistics would compare every entity of the namespace with the whole batch.
async fn update(
    connection: &mut PgConnection,
    namespace: &Namespace,
    entities: &[Entity],
) -> Fallible<Vec<PgRow>> {
    let entities: Vec<&Entity> = entities.iter().collect();
    let (ids, types, properties) = columns(&entities)?;
    Ok(sqlx::query(
        "UPDATE larder.entities e SET entity_type = given.kind, properties = given.properties,
             revision = nextval('larder.entity_revisions')
         FROM unnest($2::text[], $3::text[], $4::text[]) AS given (id, kind, properties)
         WHERE e.namespace = $1 AND e.id = ANY($2) AND e.id = given.id RETURNING e.id, e.revision, false",
    )
    .bind(namespace.as_str())
    .bind(ids)
    .bind(types)
    .bind(properties)
    .fetch_all(connection)
    .await?)
}

/// Returns the ids, types and properties of entities.
fn columns<'e>(entities: &[&'e Entity]) -> Fallible<(Vec<&'e str>, Vec<&'e str>, Vec<String>)> {
    Ok((
        entities.iter().map(|entity| entity.id.as_str()).collect(),
        entities.iter().map(|entity| entity.entity_type.as_str()).collect(),
        entities.iter().map(|entity| metadata_text(&entity.properties)).collect::<Fallible<_>>()?,
    ))
}

/// Deletes an entity and its relationships, or some of its relationships if they are too many for one call.
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
    // The foreign keys would delete them too, but without a count. A loop counts once. The arrays are read
    // once; a plan without statistics would read a subquery again for each row. The inner one reads the first
    // rows of two indexes, however many follow.
    let gone = sqlx::query(
        "DELETE FROM larder.relationships WHERE namespace = $1 AND id = ANY(ARRAY(
             SELECT id FROM larder.relationships
             WHERE namespace = $1 AND (source = $2 OR target = $2) AND id = ANY(ARRAY(
                 (SELECT id FROM larder.relationships WHERE namespace = $1 AND source = $2
                  ORDER BY id LIMIT $3)
                 UNION
                 (SELECT id FROM larder.relationships WHERE namespace = $1 AND target = $2
                  ORDER BY id LIMIT $3)
                 ORDER BY id LIMIT $3))
             ORDER BY id FOR UPDATE))",
    )
    .bind(namespace.as_str())
    .bind(id.as_str())
    .bind(encode::length(PAGE_ITEMS_MAX))
    .execute(&mut *connection)
    .await?;
    let deleted = sqlx::query(
        "DELETE FROM larder.entities WHERE namespace = $1 AND id = $2 AND NOT EXISTS (
             SELECT 1 FROM larder.relationships WHERE namespace = $1 AND source = $2) AND NOT EXISTS (
             SELECT 1 FROM larder.relationships WHERE namespace = $1 AND target = $2)",
    )
    .bind(namespace.as_str())
    .bind(id.as_str())
    .execute(connection)
    .await?;
    Ok(DeletedEntity::new(true, gone.rows_affected()).with_more(deleted.rows_affected() == 0))
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

/// The number of rows that a step of an erasure deletes.
const ERASED_ROWS: usize = 5_000;

/// The statements of the steps of an erasure. Entities are deleted after the last relationship, because each
/// takes its relationships with it. No step locks relationships before entities, because every other write
/// locks entities first.
pub(super) const ERASE: [&str; 2] = [
    "DELETE FROM larder.relationships WHERE namespace = $1 AND id = ANY(ARRAY(
         SELECT id FROM larder.relationships WHERE namespace = $1 ORDER BY id LIMIT $2 FOR UPDATE))",
    "DELETE FROM larder.entities WHERE namespace = $1 AND id = ANY(ARRAY(
         SELECT id FROM larder.entities WHERE namespace = $1 ORDER BY id LIMIT $2 FOR UPDATE))",
];

/// Runs one step of an erasure, and returns true if more may be left.
///
/// A session keeps the plans of the foreign keys. A plan that was made while the table was small reads all of
/// it for each deleted entity, so each step discards the plans.
pub(super) fn erase_step<'c>(
    connection: &'c mut PgConnection,
    namespace: &'c Namespace,
    delete: &'static str,
) -> BoxFuture<'c, Fallible<bool>> {
    Box::pin(async move {
        sqlx::raw_sql("DISCARD PLANS").execute(&mut *connection).await?;
        let deleted = sqlx::query(delete)
            .bind(namespace.as_str())
            .bind(encode::length(ERASED_ROWS))
            .execute(connection)
            .await?;
        Ok(deleted.rows_affected() >= check::size(ERASED_ROWS))
    })
}
