//! The writes, each inside one transaction. Rows are locked in the order of their ids, entities before
//! relationships, so that concurrent writes wait for each other without a deadlock.

use std::collections::HashMap;

use larder_kernel::limits::PAGE_ITEMS_MAX;
use larder_kernel::{DeletedEntity, Entity, EntityId, EntityWrite, GraphWritten, RelationshipId};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::rows::{field, record, revision};
use crate::age::agtype;
use crate::age::schema::GraphName;
use crate::postgres::encode;
use crate::postgres::failure::Fallible;
use crate::postgres::graph::upsert::{self, Existing, are_plain, in_order, written};

const OPERATION: &str = "graph.write_entities";

/// The properties of a node or an edge with the next revision. The number is drawn after the row is locked,
/// so the revisions of an item only increase.
macro_rules! revised {
    ($properties:literal) => {
        concat!(
            "ag_catalog.agtype_concat(",
            $properties,
            ", ag_catalog.agtype_build_map('revision'::text, \
             pg_catalog.nextval('larder.entity_revisions'::pg_catalog.regclass)))"
        )
    };
}

pub(super) use revised;

/// Writes entities. An existing entity keeps its node, and so its relationships.
pub(super) async fn write_entities(
    connection: &mut PgConnection,
    graph: &GraphName,
    writes: &[EntityWrite],
) -> Fallible<Vec<GraphWritten>> {
    let entities: Vec<&Entity> = writes.iter().map(|write| &write.entity).collect();
    if are_plain(writes) {
        let rows = insert(connection, graph, &entities, REPLACE).await?;
        return in_order(OPERATION, writes, &written(&rows)?);
    }
    let rows = insert(connection, graph, &entities, HOLD).await?;
    let mut written = written(&rows)?;
    let mut stored = HashMap::new();
    for row in &rows {
        stored.insert(row.try_get::<&str, _>(0)?, agtype::entity(row.try_get(3)?)?.properties);
    }
    let changed = upsert::changed(writes, &written, &stored)?;
    let rows = update(connection, graph, &changed).await?;
    written.extend(upsert::written(&rows)?);
    in_order(OPERATION, writes, &written)
}

/// Replaces the existing entities.
const REPLACE: Existing = (concat!("properties = ", revised!("excluded.properties")), "");
/// Locks the existing entities, leaves them as they are, and returns their properties.
const HOLD: Existing = (r#"properties = "Entity".properties"#, concat!(", ", record!("\"Entity\"")));

/// Inserts the entities that do not exist.
async fn insert(
    connection: &mut PgConnection,
    graph: &GraphName,
    entities: &[&Entity],
    (set, returned): Existing,
) -> Fallible<Vec<PgRow>> {
    // This transaction locked an existing row before it replaced it, which shows in xmax.
    let sql = format!(
        concat!(
            r#"INSERT INTO {name}."Entity" (properties)
               SELECT "#,
            revised!("ag_catalog.agtype_in(pg_catalog.textout(given.record))"),
            r#" FROM unnest($1::text[], $2::text[]) AS given (id, record)
               ORDER BY given.id COLLATE "C"
               ON CONFLICT ((ag_catalog.agtype_object_field_text(properties, 'id')) COLLATE "C")
               DO UPDATE SET {set}
               RETURNING "#,
            field!("\"Entity\"", "id"),
            ", ",
            revision!("\"Entity\""),
            ", xmax = 0{returned}"
        ),
        name = graph.name,
        set = set,
        returned = returned,
    );
    let (ids, records) = columns(entities.iter().copied());
    Ok(sqlx::query(AssertSqlSafe(sql)).bind(ids).bind(records).fetch_all(connection).await?)
}

/// Writes entities whose rows this transaction has locked.
async fn update(
    connection: &mut PgConnection,
    graph: &GraphName,
    entities: &[Entity],
) -> Fallible<Vec<PgRow>> {
    let sql = format!(
        concat!(
            r#"UPDATE {name}."Entity" e SET properties = "#,
            revised!("ag_catalog.agtype_in(pg_catalog.textout(given.record))"),
            " FROM unnest($1::text[], $2::text[]) AS given (id, record) WHERE ",
            field!("e", "id"),
            " = given.id RETURNING ",
            field!("e", "id"),
            ", ",
            revision!("e"),
            ", false"
        ),
        name = graph.name
    );
    let (ids, records) = columns(entities);
    Ok(sqlx::query(AssertSqlSafe(sql)).bind(ids).bind(records).fetch_all(connection).await?)
}

/// Returns the ids of entities and the properties of their nodes.
fn columns<'e>(entities: impl IntoIterator<Item = &'e Entity>) -> (Vec<&'e str>, Vec<String>) {
    entities.into_iter().map(|entity| (entity.id.as_str(), agtype::of_entity(entity))).unzip()
}

/// Deletes an entity and its relationships, or some of its relationships if they are too many for one call.
pub(super) async fn delete_entity(
    connection: &mut PgConnection,
    graph: &GraphName,
    id: &EntityId,
) -> Fallible<DeletedEntity> {
    let sql = format!(
        concat!(r#"SELECT 1 FROM {}."Entity" e WHERE "#, field!("e", "id"), " = $1 FOR UPDATE"),
        graph.name
    );
    let found = sqlx::query(AssertSqlSafe(sql)).bind(id.as_str()).fetch_optional(&mut *connection).await?;
    if found.is_none() {
        return Ok(DeletedEntity::default());
    }
    // The edges are found by their ends, as in Cypher. A loop counts once.
    let sql = format!(
        concat!(
            r#"WITH node AS MATERIALIZED (SELECT e.id FROM {graph}."Entity" e WHERE "#,
            field!("e", "id"),
            " = $1), candidate AS MATERIALIZED (SELECT ",
            field!("r", "id"),
            r#" AS id FROM {graph}."Relationship" r
                   WHERE r.start_id OPERATOR(ag_catalog.=) (SELECT id FROM node)
                      OR r.end_id OPERATOR(ag_catalog.=) (SELECT id FROM node)
                   LIMIT $2),
               touching AS MATERIALIZED (SELECT "#,
            field!("r", "id"),
            r#" AS id FROM {graph}."Relationship" r WHERE "#,
            field!("r", "id"),
            r#" = ANY(ARRAY(SELECT id FROM candidate))
                   AND (r.start_id OPERATOR(ag_catalog.=) (SELECT id FROM node)
                     OR r.end_id OPERATOR(ag_catalog.=) (SELECT id FROM node))
                   ORDER BY 1 FOR UPDATE)
               DELETE FROM {graph}."Relationship" r WHERE "#,
            field!("r", "id"),
            " = ANY(ARRAY(SELECT id FROM touching))"
        ),
        graph = graph.name
    );
    let gone = sqlx::query(AssertSqlSafe(sql))
        .bind(id.as_str())
        .bind(encode::length(PAGE_ITEMS_MAX))
        .execute(&mut *connection)
        .await?;
    let sql = format!(
        concat!(
            r#"DELETE FROM {graph}."Entity" e WHERE "#,
            field!("e", "id"),
            r#" = $1 AND NOT EXISTS (SELECT 1 FROM {graph}."Relationship" r
                   WHERE r.start_id OPERATOR(ag_catalog.=) e.id OR r.end_id OPERATOR(ag_catalog.=) e.id)"#
        ),
        graph = graph.name
    );
    let deleted = sqlx::query(AssertSqlSafe(sql)).bind(id.as_str()).execute(connection).await?;
    Ok(DeletedEntity::new(true, gone.rows_affected()).with_more(deleted.rows_affected() == 0))
}

/// Deletes a relationship and returns true if it existed.
pub(super) async fn delete_relationship(
    connection: &mut PgConnection,
    graph: &GraphName,
    id: &RelationshipId,
) -> Fallible<bool> {
    let sql =
        format!(concat!(r#"DELETE FROM {}."Relationship" r WHERE "#, field!("r", "id"), " = $1"), graph.name);
    let gone = sqlx::query(AssertSqlSafe(sql)).bind(id.as_str()).execute(connection).await?;
    Ok(gone.rows_affected() > 0)
}
