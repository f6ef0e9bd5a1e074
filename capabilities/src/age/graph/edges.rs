//! The writes of relationships, inside one transaction. Their ends are locked first, and then the
//! relationships in the order of their ids.

use std::collections::HashMap;

use larder_kernel::{GraphWritten, Relationship, RelationshipWrite};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use super::rows::{field, record, revision};
use super::write::revised;
use crate::age::agtype;
use crate::age::schema::{GraphName, or_empty};
use crate::postgres::failure::Fallible;
use crate::postgres::graph::upsert::{self, Existing, are_plain, check_ends, ends, in_order, written};

/// Writes relationships whose ends exist and stay until the transaction ends.
pub(super) async fn write(
    connection: &mut PgConnection,
    graph: &GraphName,
    writes: &[RelationshipWrite],
    operation: &'static str,
) -> Fallible<Vec<GraphWritten>> {
    let relationships: Vec<&Relationship> = writes.iter().map(|write| &write.relationship).collect();
    // If the graph does not exist, no end exists.
    let found = or_empty(hold_ends(connection, graph, &relationships).await)?;
    check_ends(operation, &relationships, &found)?;
    if are_plain(writes) {
        let rows = insert(connection, graph, &relationships, REPLACE).await?;
        return in_order(operation, writes, &written(&rows)?);
    }
    let rows = insert(connection, graph, &relationships, HOLD).await?;
    let mut written = written(&rows)?;
    let mut stored = HashMap::new();
    for row in &rows {
        stored.insert(row.try_get::<&str, _>(0)?, agtype::relationship(row.try_get(3)?)?.properties);
    }
    let changed = upsert::changed(writes, &written, &stored)?;
    let changed: Vec<&Relationship> = changed.iter().collect();
    let rows = update(connection, graph, &changed).await?;
    written.extend(upsert::written(&rows)?);
    in_order(operation, writes, &written)
}

/// Replaces the existing relationships.
const REPLACE: Existing = (
    concat!(
        "start_id = excluded.start_id, end_id = excluded.end_id, properties = ",
        revised!("excluded.properties")
    ),
    "",
);
/// Locks the existing relationships, leaves them as they are, and returns their properties.
const HOLD: Existing =
    (r#"properties = "Relationship".properties"#, concat!(", ", record!("\"Relationship\"")));

/// Inserts the relationships that do not exist.
async fn insert(
    connection: &mut PgConnection,
    graph: &GraphName,
    relationships: &[&Relationship],
    (set, returned): Existing,
) -> Fallible<Vec<PgRow>> {
    // This transaction locked an existing row before it replaced it, which shows in xmax.
    let sql = format!(
        concat!(
            r#"INSERT INTO {graph}."Relationship" (start_id, end_id, properties)
               SELECT s.id, t.id, "#,
            revised!("ag_catalog.agtype_in(pg_catalog.textout(given.record))"),
            r#" FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
                   AS given (id, source, target, record)
               JOIN {graph}."Entity" s ON "#,
            field!("s", "id"),
            r#" = given.source JOIN {graph}."Entity" t ON "#,
            field!("t", "id"),
            r#" = given.target
               ORDER BY given.id COLLATE "C"
               ON CONFLICT ((ag_catalog.agtype_object_field_text(properties, 'id')) COLLATE "C")
               DO UPDATE SET {set}
               RETURNING "#,
            field!("\"Relationship\"", "id"),
            ", ",
            revision!("\"Relationship\""),
            ", xmax = 0{returned}"
        ),
        graph = graph.name,
        set = set,
        returned = returned,
    );
    rows(connection, relationships, sql).await
}

/// Writes relationships whose rows this transaction has locked.
async fn update(
    connection: &mut PgConnection,
    graph: &GraphName,
    relationships: &[&Relationship],
) -> Fallible<Vec<PgRow>> {
    let sql = format!(
        concat!(
            r#"UPDATE {graph}."Relationship" r SET start_id = s.id, end_id = t.id, properties = "#,
            revised!("ag_catalog.agtype_in(pg_catalog.textout(given.record))"),
            r#" FROM unnest($1::text[], $2::text[], $3::text[], $4::text[])
                   AS given (id, source, target, record)
               JOIN {graph}."Entity" s ON "#,
            field!("s", "id"),
            r#" = given.source JOIN {graph}."Entity" t ON "#,
            field!("t", "id"),
            " = given.target WHERE ",
            field!("r", "id"),
            " = given.id RETURNING ",
            field!("r", "id"),
            ", ",
            revision!("r"),
            ", false"
        ),
        graph = graph.name
    );
    rows(connection, relationships, sql).await
}

async fn rows(
    connection: &mut PgConnection,
    relationships: &[&Relationship],
    sql: String,
) -> Fallible<Vec<PgRow>> {
    let part = |part: fn(&Relationship) -> &str| -> Vec<&str> {
        relationships.iter().map(|relationship| part(relationship)).collect()
    };
    let records: Vec<String> =
        relationships.iter().map(|relationship| agtype::of_relationship(relationship)).collect();
    Ok(sqlx::query(AssertSqlSafe(sql))
        .bind(part(|relationship| relationship.id.as_str()))
        .bind(part(|relationship| relationship.source.as_str()))
        .bind(part(|relationship| relationship.target.as_str()))
        .bind(records)
        .fetch_all(connection)
        .await?)
}

/// Protects the entities at the ends from deletion, and returns the existing ones.
async fn hold_ends(
    connection: &mut PgConnection,
    graph: &GraphName,
    relationships: &[&Relationship],
) -> Fallible<Vec<PgRow>> {
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
    Ok(sqlx::query(AssertSqlSafe(sql)).bind(ends(relationships)).fetch_all(connection).await?)
}
