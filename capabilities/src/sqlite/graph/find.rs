//! Finding by type, ends and properties, and counting.

use larder_kernel::{
    Entity, EntityId, EntityQuery, Filter, GraphCounts, Metadata, Namespace, Page, PageRequest, Relationship,
    RelationshipId, RelationshipQuery,
};
use rusqlite::{Connection, ToSql, params};

use super::rows::{entity, entity_key, relationship};
use crate::sqlite::failure::Fallible;
use crate::sqlite::value;

fn wanted(filter: Option<&Filter>, properties: &Metadata) -> bool {
    filter.is_none_or(|filter| filter.matches(properties))
}

/// Returns one page of entities. Scans rows in the order of ids until it has the page and the next item.
pub(super) fn find_entities(
    connection: &Connection,
    namespace: &Namespace,
    query: &EntityQuery,
    page: &PageRequest<EntityId>,
) -> Fallible<Page<Entity, EntityId>> {
    if page.limit == 0 {
        return Ok(Page::empty());
    }
    let sql = match query.entity_type {
        None => {
            "SELECT id, entity_type, properties FROM entities WHERE namespace = ?1 AND id > ?2 ORDER BY id"
        }
        Some(_) => {
            "SELECT id, entity_type, properties FROM entities
             WHERE namespace = ?1 AND id > ?2 AND entity_type = ?3 ORDER BY id"
        }
    };
    let mut statement = connection.prepare_cached(sql)?;
    let (namespace, after) = (namespace.as_str(), page.after.as_ref().map_or("", EntityId::as_str));
    let mut rows = match &query.entity_type {
        None => statement.query([namespace, after])?,
        Some(wanted) => statement.query([namespace, after, wanted.as_str()])?,
    };
    let mut entities = Vec::new();
    while entities.len() <= page.limit {
        let Some(row) = rows.next()? else { break };
        let entity = entity(row)?;
        if wanted(query.filter.as_ref(), &entity.properties) {
            entities.push(entity);
        }
    }
    Ok(Page::from_surplus(entities, page.limit, |entity| entity.id.clone()))
}

/// Returns one page of relationships, by the most selective index that the query allows.
pub(super) fn find_relationships(
    connection: &Connection,
    namespace: &Namespace,
    query: &RelationshipQuery,
    page: &PageRequest<RelationshipId>,
) -> Fallible<Page<Relationship, RelationshipId>> {
    if page.limit == 0 {
        return Ok(Page::empty());
    }
    let Some(source) = end(connection, namespace, query.source.as_ref())? else { return Ok(Page::empty()) };
    let Some(target) = end(connection, namespace, query.target.as_ref())? else { return Ok(Page::empty()) };
    let kind = query.relationship_type.as_ref().map(|kind| kind.as_str().to_owned());
    let after = page.after.as_ref().map_or("", RelationshipId::as_str);
    let mut statement =
        connection.prepare_cached(&relationships_sql(source.is_some(), target.is_some(), kind.is_some()))?;
    let namespace = namespace.as_str();
    let mut values: Vec<&dyn ToSql> = vec![&namespace, &after];
    values.extend(source.iter().chain(&target).map(|key| -> &dyn ToSql { key }));
    values.extend(kind.iter().map(|kind| -> &dyn ToSql { kind }));
    let mut rows = statement.query(&*values)?;
    let mut relationships = Vec::new();
    while relationships.len() <= page.limit {
        let Some(row) = rows.next()? else { break };
        let relationship = relationship(row)?;
        if wanted(query.filter.as_ref(), &relationship.properties) {
            relationships.push(relationship);
        }
    }
    Ok(Page::from_surplus(relationships, page.limit, |relationship| relationship.id.clone()))
}

/// `Some(None)` if the query does not name the end; `None` if it names an entity that does not exist.
fn end(
    connection: &Connection,
    namespace: &Namespace,
    id: Option<&EntityId>,
) -> Fallible<Option<Option<i64>>> {
    let Some(id) = id else { return Ok(Some(None)) };
    Ok(entity_key(connection, namespace, id)?.map(Some))
}

/// Returns the statement for the given parts of the query. A `+` before a column keeps the planner from using
/// its index. An end is more selective than a type, and both are more selective than the namespace.
pub(super) fn relationships_sql(source: bool, target: bool, kind: bool) -> String {
    let by_end = source || target;
    let mut sql = String::from(
        "SELECT r.id, r.relationship_type, s.id, t.id, r.properties FROM relationships r
         CROSS JOIN entities s ON s.key = r.source CROSS JOIN entities t ON t.key = r.target WHERE ",
    );
    sql.push_str(if by_end { "+r.namespace = ?1 AND r.id > ?2" } else { "r.namespace = ?1 AND r.id > ?2" });
    let mut parameter = 3;
    let mut add = |given: bool, condition: &str| {
        if given {
            sql.push_str(&format!(" AND {condition} = ?{parameter}"));
            parameter += 1;
        }
    };
    add(source, "r.source");
    add(target, "r.target");
    add(kind, if by_end { "+r.relationship_type" } else { "r.relationship_type" });
    sql.push_str(" ORDER BY r.id");
    sql
}

/// Returns the counts of the namespace.
pub(super) fn count(connection: &Connection, namespace: &Namespace) -> Fallible<GraphCounts> {
    let mut statement = connection.prepare_cached(
        "SELECT (SELECT count(*) FROM entities WHERE namespace = ?1),
                (SELECT count(*) FROM relationships WHERE namespace = ?1)",
    )?;
    let mut rows = statement.query(params![namespace.as_str()])?;
    match rows.next()? {
        Some(row) => Ok(GraphCounts::new(value::unsigned(row, 0)?, value::unsigned(row, 1)?)),
        None => Ok(GraphCounts::default()),
    }
}
