//! The writes, each inside one transaction. Rows are locked in the order of their ids, entities before relationships, so
//! that writes that meet wait for each other and never in a circle.

use std::collections::HashSet;

use larder_kernel::{
    DeletedEntity, Entity, EntityId, Error, ErrorKind, Relationship, RelationshipId, UpsertReport,
};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::rows::field;
use crate::age::agtype;
use crate::age::schema::{GraphName, or_empty};
use crate::postgres::failure::Fallible;

/// Writes entities. One that is there keeps its node, and so its relationships.
pub(super) async fn upsert_entities(
    connection: &mut PgConnection,
    graph: &GraphName,
    entities: &[Entity],
) -> Fallible<UpsertReport> {
    let ids: Vec<&str> = entities.iter().map(|entity| entity.id.as_str()).collect();
    let records: Vec<String> = entities.iter().map(agtype::of_entity).collect();
    // A row that was there has been locked by this transaction before it was replaced, which shows in xmax.
    let sql = format!(
        r#"INSERT INTO {}."Entity" (properties)
           SELECT ag_catalog.agtype_in(pg_catalog.textout(given.record))
           FROM unnest($1::text[], $2::text[]) AS given (id, record)
           ORDER BY given.id COLLATE "C"
           ON CONFLICT ((ag_catalog.agtype_object_field_text(properties, 'id')) COLLATE "C")
           DO UPDATE SET properties = excluded.properties
           RETURNING (xmax = 0) AS created"#,
        graph.name
    );
    let rows = sqlx::query(AssertSqlSafe(sql)).bind(ids).bind(records).fetch_all(connection).await?;
    report(&rows)
}

fn report(rows: &[PgRow]) -> Fallible<UpsertReport> {
    let mut report = UpsertReport::default();
    for row in rows {
        if row.try_get(0)? {
            report.created += 1;
        } else {
            report.replaced += 1;
        }
    }
    Ok(report)
}

/// Writes relationships whose ends are there and stay there until the transaction ends.
pub(super) async fn upsert_relationships(
    connection: &mut PgConnection,
    graph: &GraphName,
    relationships: &[Relationship],
) -> Fallible<UpsertReport> {
    // Of a graph that is not there no end is.
    let held = or_empty(hold_ends(connection, graph, relationships).await)?;
    for relationship in relationships {
        for (end, field) in
            [(&relationship.source, "relationship.source"), (&relationship.target, "relationship.target")]
        {
            if !held.contains(end.as_str()) {
                return Err(missing_end(field).into());
            }
        }
    }
    let part = |part: fn(&Relationship) -> &str| -> Vec<&str> { relationships.iter().map(part).collect() };
    let records: Vec<String> = relationships.iter().map(agtype::of_relationship).collect();
    let sql = format!(
        concat!(
            r#"INSERT INTO {graph}."Relationship" (start_id, end_id, properties)
               SELECT s.id, t.id, ag_catalog.agtype_in(pg_catalog.textout(given.record))
               FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS given (id, source, target, record)
               JOIN {graph}."Entity" s ON "#,
            field!("s", "id"),
            r#" = given.source JOIN {graph}."Entity" t ON "#,
            field!("t", "id"),
            r#" = given.target
               ORDER BY given.id COLLATE "C"
               ON CONFLICT ((ag_catalog.agtype_object_field_text(properties, 'id')) COLLATE "C")
               DO UPDATE SET start_id = excluded.start_id, end_id = excluded.end_id, properties = excluded.properties
               RETURNING (xmax = 0) AS created"#
        ),
        graph = graph.name
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(part(|relationship| relationship.id.as_str()))
        .bind(part(|relationship| relationship.source.as_str()))
        .bind(part(|relationship| relationship.target.as_str()))
        .bind(records)
        .fetch_all(connection)
        .await?;
    report(&rows)
}

/// Keeps the entities at the ends from being deleted, and gives back those that are there.
async fn hold_ends(
    connection: &mut PgConnection,
    graph: &GraphName,
    relationships: &[Relationship],
) -> Fallible<HashSet<String>> {
    let ends: HashSet<&str> = relationships
        .iter()
        .flat_map(|relationship| [relationship.source.as_str(), relationship.target.as_str()])
        .collect();
    let sql = format!(
        concat!(
            "SELECT ",
            field!("e", "id"),
            r#" FROM {}."Entity" e WHERE "#,
            field!("e", "id"),
            " = ANY($1) ORDER BY 1 FOR KEY SHARE"
        ),
        graph.name
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(ends.into_iter().collect::<Vec<&str>>())
        .fetch_all(connection)
        .await?;
    Ok(rows.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?)
}

fn missing_end(field: &'static str) -> Error {
    Error::new(
        ErrorKind::NotFound,
        "graph.upsert_relationships",
        "an end of the relationship is no entity of the graph",
    )
    .with_field(field)
}

/// Deletes an entity and what touches it.
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
    // Found by the ends of the edges, which is what Cypher goes by too. A loop goes once.
    let sql = format!(
        concat!(
            r#"WITH node AS MATERIALIZED (SELECT e.id FROM {graph}."Entity" e WHERE "#,
            field!("e", "id"),
            " = $1), touching AS MATERIALIZED (SELECT ",
            field!("r", "id"),
            r#" AS id FROM {graph}."Relationship" r
                   WHERE r.start_id OPERATOR(ag_catalog.=) (SELECT id FROM node)
                      OR r.end_id OPERATOR(ag_catalog.=) (SELECT id FROM node)
                   ORDER BY 1 FOR UPDATE)
               DELETE FROM {graph}."Relationship" r WHERE "#,
            field!("r", "id"),
            " = ANY(ARRAY(SELECT id FROM touching))"
        ),
        graph = graph.name
    );
    let gone = sqlx::query(AssertSqlSafe(sql)).bind(id.as_str()).execute(&mut *connection).await?;
    let sql = format!(concat!(r#"DELETE FROM {}."Entity" e WHERE "#, field!("e", "id"), " = $1"), graph.name);
    sqlx::query(AssertSqlSafe(sql)).bind(id.as_str()).execute(connection).await?;
    Ok(DeletedEntity { existed: true, relationships: gone.rows_affected() })
}

/// Deletes a relationship and says whether it was there.
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
