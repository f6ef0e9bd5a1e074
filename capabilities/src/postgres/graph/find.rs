//! Finding by type, ends and properties, and counting.

use larder_kernel::{
    Entity, EntityId, EntityQuery, Filter, GraphCounts, Metadata, Namespace, Page, PageRequest, Relationship,
    RelationshipId, RelationshipQuery,
};
use sqlx::PgConnection;

use super::rows::{entity, relationship};
use crate::postgres::decode;
use crate::postgres::encode;
use crate::postgres::failure::Fallible;

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
    namespace: &Namespace,
    query: &EntityQuery,
    page: &PageRequest<EntityId>,
) -> Fallible<Page<Entity, EntityId>> {
    if page.limit == 0 {
        return Ok(Page::empty());
    }
    let sql = match query.entity_type {
        None => {
            "SELECT id, entity_type, properties FROM larder.entities
             WHERE namespace = $1 AND id > $2 ORDER BY id LIMIT $3"
        }
        Some(_) => {
            "SELECT id, entity_type, properties FROM larder.entities
             WHERE namespace = $1 AND entity_type = $4 AND id > $2 ORDER BY id LIMIT $3"
        }
    };
    let mut after = page.after.as_ref().map_or_else(String::new, |id| id.as_str().to_owned());
    let at_a_time = rows_at_a_time(query.filter.as_ref(), page.limit);
    let mut entities = Vec::new();
    loop {
        let mut rows = sqlx::query(sql).bind(namespace.as_str()).bind(&after).bind(encode::length(at_a_time));
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

/// The statement for the parts of the query that are given, as parameters 4 to 6; each combination is prepared once.
fn relationships_sql(query: &RelationshipQuery) -> &'static str {
    macro_rules! select {
        ($($condition:literal),*) => {
            concat!(
                "SELECT id, relationship_type, source, target, properties FROM larder.relationships
                 WHERE namespace = $1 AND id > $2",
                $(" AND ", $condition,)*
                " ORDER BY id LIMIT $3"
            )
        };
    }
    match (&query.source, &query.target, &query.relationship_type) {
        (None, None, None) => select!(),
        (None, None, Some(_)) => select!("relationship_type = $4"),
        (None, Some(_), None) => select!("target = $4"),
        (None, Some(_), Some(_)) => select!("target = $4", "relationship_type = $5"),
        (Some(_), None, None) => select!("source = $4"),
        (Some(_), None, Some(_)) => select!("source = $4", "relationship_type = $5"),
        (Some(_), Some(_), None) => select!("source = $4", "target = $5"),
        (Some(_), Some(_), Some(_)) => select!("source = $4", "target = $5", "relationship_type = $6"),
    }
}

/// One page of relationships.
pub(super) async fn find_relationships(
    connection: &mut PgConnection,
    namespace: &Namespace,
    query: &RelationshipQuery,
    page: &PageRequest<RelationshipId>,
) -> Fallible<Page<Relationship, RelationshipId>> {
    if page.limit == 0 {
        return Ok(Page::empty());
    }
    let sql = relationships_sql(query);
    let ends = query.source.iter().chain(&query.target).map(EntityId::as_str);
    let parts: Vec<&str> = ends.chain(query.relationship_type.iter().map(|kind| kind.as_str())).collect();
    let mut after = page.after.as_ref().map_or_else(String::new, |id| id.as_str().to_owned());
    let at_a_time = rows_at_a_time(query.filter.as_ref(), page.limit);
    let mut relationships = Vec::new();
    loop {
        let rows = sqlx::query(sql).bind(namespace.as_str()).bind(&after).bind(encode::length(at_a_time));
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

/// What the namespace holds.
pub(super) async fn count(connection: &mut PgConnection, namespace: &Namespace) -> Fallible<GraphCounts> {
    let row = sqlx::query(
        "SELECT (SELECT count(*) FROM larder.entities WHERE namespace = $1),
                (SELECT count(*) FROM larder.relationships WHERE namespace = $1)",
    )
    .bind(namespace.as_str())
    .fetch_one(connection)
    .await?;
    Ok(GraphCounts { entities: decode::unsigned(&row, 0)?, relationships: decode::unsigned(&row, 1)? })
}
