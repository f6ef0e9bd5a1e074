//! The graph's tables: how their rows are named and read.

use std::collections::HashMap;

use larder_kernel::{Entity, EntityId, Relationship, RelationshipId};
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgConnection, Row};

use crate::age::agtype;
use crate::age::schema::GraphName;
use crate::postgres::failure::Fallible;

/// A text among the properties of the row that an alias stands for, in the order of bytes, as the indexes have it.
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
/// The properties of such a row as text. AGE's own cast to text would refuse a map.
macro_rules! record {
    ($alias:literal) => {
        concat!("pg_catalog.textin(ag_catalog.agtype_out(", $alias, ".properties))")
    };
}
pub(super) use {field, record};

/// An entity from the column of its properties.
pub(super) fn entity(row: &PgRow) -> Fallible<Entity> {
    agtype::entity(row.try_get(0)?)
}

/// A relationship from the column of its properties.
pub(super) fn relationship(row: &PgRow) -> Fallible<Relationship> {
    agtype::relationship(row.try_get(0)?)
}

/// The entities of these ids that are there.
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

/// The relationships of these ids that are there.
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
