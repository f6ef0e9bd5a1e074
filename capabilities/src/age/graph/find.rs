//! Finding by type, ends and properties, and counting.

use larder_kernel::{
    Entity, EntityId, EntityQuery, GraphCounts, Page, PageRequest, Relationship, RelationshipId,
    RelationshipQuery,
};
use sqlx::{AssertSqlSafe, PgConnection};

use super::rows::{entity, field, record, relationship};
use crate::age::schema::GraphName;
use crate::postgres::decode;
use crate::postgres::failure::Fallible;
use crate::postgres::graph::page::page;

/// Returns one page of entities.
pub(super) async fn find_entities(
    connection: &mut PgConnection,
    graph: &GraphName,
    query: &EntityQuery,
    request: &PageRequest<EntityId>,
) -> Fallible<Page<Entity, EntityId>> {
    let of_type = query.entity_type.as_ref().map_or("", |_| concat!(" AND ", field!("e", "type"), " = $3"));
    let sql = format!(
        concat!(
            "SELECT ",
            record!("e"),
            r#" FROM {}."Entity" e WHERE "#,
            field!("e", "id"),
            " > $1{} ORDER BY ",
            field!("e", "id"),
            " LIMIT $2"
        ),
        graph.name, of_type
    );
    let statement = |after: &str, rows: i64| {
        let found = sqlx::query(AssertSqlSafe(sql.clone())).bind(after.to_owned()).bind(rows);
        query.entity_type.iter().fold(found, |found, kind| found.bind(kind.as_str().to_owned()))
    };
    page(connection, request, query.filter.as_ref(), statement, entity).await
}

/// Returns the statement for the given parts of the query, which are parameters from 3 on.
fn relationships_sql(graph: &GraphName, query: &RelationshipQuery) -> String {
    let mut conditions = String::new();
    let mut number = 2;
    let mut also = |given: bool, before: &str, after: &str| {
        if given {
            number += 1;
            conditions.push_str(&format!(" AND {before}${number}{after}"));
        }
    };
    let end = |column: &str| {
        format!(
            concat!(
                r#"r.{} OPERATOR(ag_catalog.=) (SELECT e.id FROM {}."Entity" e WHERE "#,
                field!("e", "id"),
                " = "
            ),
            column, graph.name
        )
    };
    also(query.source.is_some(), &end("start_id"), ")");
    also(query.target.is_some(), &end("end_id"), ")");
    also(query.relationship_type.is_some(), concat!(field!("r", "type"), " = "), "");
    format!(
        concat!(
            "SELECT ",
            record!("r"),
            r#" FROM {}."Relationship" r WHERE "#,
            field!("r", "id"),
            " > $1{} ORDER BY ",
            field!("r", "id"),
            " LIMIT $2"
        ),
        graph.name, conditions
    )
}

/// Returns one page of relationships.
pub(super) async fn find_relationships(
    connection: &mut PgConnection,
    graph: &GraphName,
    query: &RelationshipQuery,
    request: &PageRequest<RelationshipId>,
) -> Fallible<Page<Relationship, RelationshipId>> {
    let sql = relationships_sql(graph, query);
    let ends = query.source.iter().chain(&query.target).map(EntityId::as_str);
    let parts: Vec<&str> = ends.chain(query.relationship_type.iter().map(|kind| kind.as_str())).collect();
    let statement = |after: &str, rows: i64| {
        let found = sqlx::query(AssertSqlSafe(sql.clone())).bind(after.to_owned()).bind(rows);
        parts.iter().fold(found, |found, part| found.bind((*part).to_owned()))
    };
    page(connection, request, query.filter.as_ref(), statement, relationship).await
}

/// Returns the counts of the graph.
pub(super) async fn count(connection: &mut PgConnection, graph: &GraphName) -> Fallible<GraphCounts> {
    let name = &graph.name;
    let sql = format!(
        r#"SELECT (SELECT count(*) FROM {name}."Entity"), (SELECT count(*) FROM {name}."Relationship")"#
    );
    let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(connection).await?;
    Ok(GraphCounts::new(decode::unsigned(&row, 0)?, decode::unsigned(&row, 1)?))
}
