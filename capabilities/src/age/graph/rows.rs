//! The graph's tables: naming and reading their rows.

use std::collections::HashMap;

use larder_kernel::{
    Entity, EntityId, Relationship, RelationshipId, Revision, StoredEntity, StoredRelationship,
};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use crate::age::agtype;
use crate::age::schema::GraphName;
use crate::postgres::decode;
use crate::postgres::failure::Fallible;

/// A text property of the row with this alias, in the order of bytes, as in the indexes.
macro_rules! field {
    ($alias:literal, $field:literal) => {
        concat!(
            "(ag_catalog.agtype_object_field_text(",
            $alias,
            ".properties, '",
            $field,
            "') COLLATE \"C\")"
        )
    };
}
/// The properties of such a row as text. AGE's cast to text would reject a map.
macro_rules! record {
    ($alias:literal) => {
        concat!("pg_catalog.textin(ag_catalog.agtype_out(", $alias, ".properties))")
    };
}
/// The revision of such a row; 0 for a node or an edge that was written without one.
macro_rules! revision {
    ($alias:literal) => {
        concat!(
            "coalesce(ag_catalog.agtype_object_field_text(",
            $alias,
            ".properties, 'revision')::pg_catalog.int8, 0)"
        )
    };
}
pub(super) use {field, record, revision};

/// Returns an entity from the column of its properties.
pub(super) fn entity(row: &PgRow) -> Fallible<Entity> {
    agtype::entity(row.try_get(0)?)
}

/// Returns a relationship from the column of its properties.
pub(super) fn relationship(row: &PgRow) -> Fallible<Relationship> {
    agtype::relationship(row.try_get(0)?)
}

/// Returns the existing entities among these ids.
pub(super) async fn entities(
    connection: &mut PgConnection,
    graph: &GraphName,
    ids: &[&str],
) -> Fallible<HashMap<EntityId, Entity>> {
    let sql = format!(
        concat!("SELECT ", record!("e"), r#" FROM {}."Entity" e WHERE "#, field!("e", "id"), " = ANY($1)"),
        graph.name
    );
    let rows = sqlx::query(AssertSqlSafe(sql)).bind(ids).fetch_all(connection).await?;
    rows.iter().map(|row| entity(row).map(|entity| (entity.id.clone(), entity))).collect()
}

/// Returns the existing entities among these ids, with their revisions.
pub(super) async fn stored_entities(
    connection: &mut PgConnection,
    graph: &GraphName,
    ids: &[&str],
) -> Fallible<HashMap<EntityId, StoredEntity>> {
    let sql = format!(
        concat!(
            "SELECT ",
            record!("e"),
            ", ",
            revision!("e"),
            r#" FROM {}."Entity" e WHERE "#,
            field!("e", "id"),
            " = ANY($1)"
        ),
        graph.name
    );
    let rows = sqlx::query(AssertSqlSafe(sql)).bind(ids).fetch_all(connection).await?;
    let stored = |row: &PgRow| -> Fallible<_> {
        let (entity, revision) = (entity(row)?, Revision::new(decode::unsigned(row, 1)?));
        Ok((entity.id.clone(), StoredEntity::new(entity, revision)))
    };
    rows.iter().map(stored).collect()
}

/// Returns the existing relationships among these ids.
pub(super) async fn relationships(
    connection: &mut PgConnection,
    graph: &GraphName,
    ids: &[&str],
) -> Fallible<HashMap<RelationshipId, Relationship>> {
    let sql = format!(
        concat!(
            "SELECT ",
            record!("r"),
            r#" FROM {}."Relationship" r WHERE "#,
            field!("r", "id"),
            " = ANY($1)"
        ),
        graph.name
    );
    let rows = sqlx::query(AssertSqlSafe(sql)).bind(ids).fetch_all(connection).await?;
    rows.iter().map(|row| relationship(row).map(|found| (found.id.clone(), found))).collect()
}

/// Returns the existing relationships among these ids, with their revisions.
pub(super) async fn stored_relationships(
    connection: &mut PgConnection,
    graph: &GraphName,
    ids: &[&str],
) -> Fallible<HashMap<RelationshipId, StoredRelationship>> {
    let sql = format!(
        concat!(
            "SELECT ",
            record!("r"),
            ", ",
            revision!("r"),
            r#" FROM {}."Relationship" r WHERE "#,
            field!("r", "id"),
            " = ANY($1)"
        ),
        graph.name
    );
    let rows = sqlx::query(AssertSqlSafe(sql)).bind(ids).fetch_all(connection).await?;
    let stored = |row: &PgRow| -> Fallible<_> {
        let (found, revision) = (relationship(row)?, Revision::new(decode::unsigned(row, 1)?));
        Ok((found.id.clone(), StoredRelationship::new(found, revision)))
    };
    rows.iter().map(stored).collect()
}
