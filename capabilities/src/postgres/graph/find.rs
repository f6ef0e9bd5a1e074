//! Finding by type, ends and properties, and counting.

use larder_kernel::{
    Entity, EntityId, EntityQuery, GraphCounts, Namespace, Page, PageRequest, Relationship, RelationshipId,
    RelationshipQuery,
};
use sqlx::PgConnection;

use super::page::page;
use super::rows::{entity, relationship};
use crate::postgres::decode;
use crate::postgres::failure::Fallible;

/// Returns one page of entities.
pub(super) async fn find_entities(
    connection: &mut PgConnection,
    namespace: &Namespace,
    query: &EntityQuery,
    request: &PageRequest<EntityId>,
) -> Fallible<Page<Entity, EntityId>> {
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
    let statement = |after: &str, rows: i64| {
        let found = sqlx::query(sql).bind(namespace.as_str()).bind(after.to_owned()).bind(rows);
        query.entity_type.iter().fold(found, |found, kind| found.bind(kind.as_str().to_owned()))
    };
    page(connection, request, query.filter.as_ref(), statement, entity).await
}

/// Returns the statement for the given parts of the query, which are the parameters 4 to 6. Each combination
/// is prepared once.
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

/// Returns one page of relationships.
pub(super) async fn find_relationships(
    connection: &mut PgConnection,
    namespace: &Namespace,
    query: &RelationshipQuery,
    request: &PageRequest<RelationshipId>,
) -> Fallible<Page<Relationship, RelationshipId>> {
    let sql = relationships_sql(query);
    let ends = query.source.iter().chain(&query.target).map(EntityId::as_str);
    let parts: Vec<&str> = ends.chain(query.relationship_type.iter().map(|kind| kind.as_str())).collect();
    let statement = |after: &str, rows: i64| {
        let found = sqlx::query(sql).bind(namespace.as_str()).bind(after.to_owned()).bind(rows);
        parts.iter().fold(found, |found, part| found.bind((*part).to_owned()))
    };
    page(connection, request, query.filter.as_ref(), statement, relationship).await
}

/// Returns the counts of the namespace.
pub(super) async fn count(connection: &mut PgConnection, namespace: &Namespace) -> Fallible<GraphCounts> {
    let row = sqlx::query(
        "SELECT (SELECT count(*) FROM larder.entities WHERE namespace = $1),
                (SELECT count(*) FROM larder.relationships WHERE namespace = $1)",
    )
    .bind(namespace.as_str())
    .fetch_one(connection)
    .await?;
    Ok(GraphCounts::new(decode::unsigned(&row, 0)?, decode::unsigned(&row, 1)?))
}
