//! Finding by type, ends and properties, and counting.

use larder_kernel::{
    Entity, EntityId, EntityQuery, Filter, GraphCounts, Metadata, Page, PageRequest, Relationship,
    RelationshipId, RelationshipQuery,
};
use sqlx::{AssertSqlSafe, PgConnection};

use super::rows::{entity, field, record, relationship};
use crate::age::schema::GraphName;
use crate::postgres::failure::Fallible;
use crate::postgres::{decode, encode};

/// Rows that a filtered search reads at a time.
const FILTERED_ROWS: usize = 1_000;

fn wanted(filter: Option<&Filter>, properties: &Metadata) -> bool {
    filter.is_none_or(|filter| filter.matches(properties))
}

/// How many rows to read at a time for a page: the page and what follows it, or more where a filter drops some.
fn rows_at_a_time(filter: Option<&Filter>, limit: usize) -> usize {
    let page = limit.saturating_add(1);
    if filter.is_some() { page.max(FILTERED_ROWS) } else { page }
}

/// One page of entities. Rows are read in the order of ids until the page and the item that follows it are found.
pub(super) async fn find_entities(
    connection: &mut PgConnection,
    graph: &GraphName,
    query: &EntityQuery,
    page: &PageRequest<EntityId>,
) -> Fallible<Page<Entity, EntityId>> {
    if page.limit == 0 {
        return Ok(Page::empty());
    }
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
    let mut after = page.after.as_ref().map_or_else(String::new, |id| id.as_str().to_owned());
    let at_a_time = rows_at_a_time(query.filter.as_ref(), page.limit);
    let mut entities = Vec::new();
    loop {
        let mut rows =
            sqlx::query(AssertSqlSafe(sql.clone())).bind(after.clone()).bind(encode::length(at_a_time));
        if let Some(kind) = &query.entity_type {
            rows = rows.bind(kind.as_str());
        }
        let rows = rows.fetch_all(&mut *connection).await?;
        for row in &rows {
            let entity = entity(row)?;
            after = entity.id.as_str().to_owned();
            if entities.len() <= page.limit && wanted(query.filter.as_ref(), &entity.properties) {
                entities.push(entity);
            }
        }
        if rows.len() < at_a_time || entities.len() > page.limit {
            return Ok(Page::from_surplus(entities, page.limit, |entity| entity.id.clone()));
        }
    }
}

/// The statement for the parts of the query that are given, as parameters from 3 on.
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

/// One page of relationships.
pub(super) async fn find_relationships(
    connection: &mut PgConnection,
    graph: &GraphName,
    query: &RelationshipQuery,
    page: &PageRequest<RelationshipId>,
) -> Fallible<Page<Relationship, RelationshipId>> {
    if page.limit == 0 {
        return Ok(Page::empty());
    }
    let sql = relationships_sql(graph, query);
    let ends = query.source.iter().chain(&query.target).map(EntityId::as_str);
    let parts: Vec<&str> = ends.chain(query.relationship_type.iter().map(|kind| kind.as_str())).collect();
    let mut after = page.after.as_ref().map_or_else(String::new, |id| id.as_str().to_owned());
    let at_a_time = rows_at_a_time(query.filter.as_ref(), page.limit);
    let mut relationships = Vec::new();
    loop {
        let rows =
            sqlx::query(AssertSqlSafe(sql.clone())).bind(after.clone()).bind(encode::length(at_a_time));
        let rows = parts.iter().fold(rows, |rows, part| rows.bind(*part));
        let rows = rows.fetch_all(&mut *connection).await?;
        for row in &rows {
            let relationship = relationship(row)?;
            after = relationship.id.as_str().to_owned();
            if relationships.len() <= page.limit && wanted(query.filter.as_ref(), &relationship.properties) {
                relationships.push(relationship);
            }
        }
        if rows.len() < at_a_time || relationships.len() > page.limit {
            return Ok(Page::from_surplus(relationships, page.limit, |found| found.id.clone()));
        }
    }
}

/// What the graph holds.
pub(super) async fn count(connection: &mut PgConnection, graph: &GraphName) -> Fallible<GraphCounts> {
    let name = &graph.name;
    let sql = format!(
        r#"SELECT (SELECT count(*) FROM {name}."Entity"), (SELECT count(*) FROM {name}."Relationship")"#
    );
    let row = sqlx::query(AssertSqlSafe(sql)).fetch_one(connection).await?;
    Ok(GraphCounts { entities: decode::unsigned(&row, 0)?, relationships: decode::unsigned(&row, 1)? })
}
