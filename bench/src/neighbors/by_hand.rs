//! Handwritten statements that read a neighborhood.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hint::black_box;

use rusqlite::{Connection, Row, params};
use serde_json::{Map, Value};
use sqlx::{PgConnection, Row as _};

use super::Found;
use crate::Outcome;

/// Reads the neighborhood of an entity of a namespace, up to this number of hops.
pub(super) type SqliteWay = fn(&Connection, &str, &str, u32) -> Outcome<Found>;

/// An entity: its id, type, properties and hops.
type Node = (String, String, Map<String, Value>, u32);
/// A relationship: its id, type, ends and properties.
type Edge = (String, String, String, String, Map<String, Value>);

fn edge(row: &Row<'_>) -> Outcome<Edge> {
    let properties = serde_json::from_str(row.get_ref(4)?.as_str()?)?;
    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, properties))
}

/// Two statements, each of which includes the traversal.
pub(super) fn sqlite_recursive(
    connection: &Connection,
    namespace: &str,
    start: &str,
    depth: u32,
) -> Outcome<Found> {
    let mut statement = connection.prepare_cached(
        "WITH RECURSIVE walk (key, hops) AS (
             SELECT key, 0 FROM entities WHERE namespace = ?1 AND id = ?2
             UNION SELECT r.target, walk.hops + 1 FROM walk JOIN relationships r ON r.source = walk.key
             WHERE walk.hops < ?3)
         SELECT e.id, e.entity_type, e.properties, min(walk.hops) AS hops
         FROM walk CROSS JOIN entities e ON e.key = walk.key GROUP BY walk.key ORDER BY hops, e.id",
    )?;
    let mut rows = statement.query(params![namespace, start, depth])?;
    let mut nodes: Vec<Node> = Vec::new();
    while let Some(row) = rows.next()? {
        let properties = serde_json::from_str(row.get_ref(2)?.as_str()?)?;
        nodes.push((row.get(0)?, row.get(1)?, properties, row.get(3)?));
    }
    let mut statement = connection.prepare_cached(
        "WITH RECURSIVE walk (key, hops) AS (
             SELECT key, 0 FROM entities WHERE namespace = ?1 AND id = ?2
             UNION SELECT r.target, walk.hops + 1 FROM walk JOIN relationships r ON r.source = walk.key
             WHERE walk.hops < ?3 - 1)
         SELECT r.id, r.relationship_type, s.id, t.id, r.properties
         FROM (SELECT DISTINCT key FROM walk) w CROSS JOIN relationships r ON r.source = w.key
         CROSS JOIN entities s ON s.key = r.source CROSS JOIN entities t ON t.key = r.target ORDER BY r.id",
    )?;
    let mut rows = statement.query(params![namespace, start, depth])?;
    let mut edges = Vec::new();
    while let Some(row) = rows.next()? {
        edges.push(edge(row)?);
    }
    Ok((black_box(nodes).len(), black_box(edges).len()))
}

/// Level by level; each relationship is read once with the ids of its ends.
pub(super) fn sqlite_by_entities(
    connection: &Connection,
    namespace: &str,
    start: &str,
    depth: u32,
) -> Outcome<Found> {
    let mut entity =
        connection.prepare_cached("SELECT key, id, entity_type, properties FROM entities WHERE key = ?1")?;
    let mut leaving = connection.prepare_cached(
        "SELECT r.id, r.relationship_type, s.id, t.id, r.properties, r.target FROM relationships r
         CROSS JOIN entities s ON s.key = r.source CROSS JOIN entities t ON t.key = r.target WHERE r.source \
         = ?1",
    )?;
    let first: i64 = connection
        .prepare_cached("SELECT key FROM entities WHERE namespace = ?1 AND id = ?2")?
        .query_row([namespace, start], |row| row.get(0))?;
    let (mut seen, mut level) = (HashSet::from([first]), vec![first]);
    let (mut nodes, mut edges) = (Vec::new(), Vec::new());
    for hops in 0..=depth {
        let mut next = Vec::new();
        for key in &level {
            let mut rows = entity.query([key])?;
            if let Some(row) = rows.next()? {
                let properties = serde_json::from_str(row.get_ref(3)?.as_str()?)?;
                nodes.push((row.get::<_, String>(1)?, row.get(2)?, properties, hops));
            }
            if hops == depth {
                continue;
            }
            let mut rows = leaving.query([key])?;
            while let Some(row) = rows.next()? {
                edges.push(edge(row)?);
                let target = row.get(5)?;
                if seen.insert(target) {
                    next.push(target);
                }
            }
        }
        level = next;
    }
    nodes.sort_by(|left: &Node, right| (left.3, &left.0).cmp(&(right.3, &right.0)));
    edges.sort_by(|left, right| left.0.cmp(&right.0));
    Ok((black_box(nodes).len(), black_box(edges).len()))
}

/// Level by level, by row ids; the ids of the ends come from the reached entities.
pub(super) fn sqlite_by_rows(
    connection: &Connection,
    namespace: &str,
    start: &str,
    depth: u32,
) -> Outcome<Found> {
    let mut entity =
        connection.prepare_cached("SELECT id, entity_type, properties FROM entities WHERE key = ?1")?;
    let mut leaving = connection.prepare_cached(
        "SELECT id, relationship_type, properties, target FROM relationships WHERE source = ?1",
    )?;
    let first: i64 = connection
        .prepare_cached("SELECT key FROM entities WHERE namespace = ?1 AND id = ?2")?
        .query_row([namespace, start], |row| row.get(0))?;
    let mut reached: HashMap<i64, Node> = HashMap::new();
    let mut walked = Vec::new();
    let (mut seen, mut level) = (HashSet::from([first]), vec![first]);
    for hops in 0..=depth {
        let mut next = Vec::new();
        for key in &level {
            let mut rows = entity.query([key])?;
            let row = rows.next()?.ok_or("a relationship without an end")?;
            let properties = serde_json::from_str(row.get_ref(2)?.as_str()?)?;
            reached.insert(*key, (row.get(0)?, row.get(1)?, properties, hops));
            if hops == depth {
                continue;
            }
            let mut rows = leaving.query([key])?;
            while let Some(row) = rows.next()? {
                let properties: Map<String, Value> = serde_json::from_str(row.get_ref(2)?.as_str()?)?;
                let target: i64 = row.get(3)?;
                walked.push((row.get::<_, String>(0)?, row.get::<_, String>(1)?, *key, target, properties));
                if seen.insert(target) {
                    next.push(target);
                }
            }
        }
        level = next;
    }
    let name = |key: &i64| reached.get(key).map(|node| node.0.clone()).unwrap_or_default();
    let mut edges: Vec<Edge> = walked
        .into_iter()
        .map(|(id, kind, source, target, properties)| (id, kind, name(&source), name(&target), properties))
        .collect();
    edges.sort_by(|left, right| left.0.cmp(&right.0));
    let mut nodes: Vec<Node> = reached.into_values().collect();
    nodes.sort_by(|left, right| (left.3, &left.0).cmp(&(right.3, &right.0)));
    Ok((black_box(nodes).len(), black_box(edges).len()))
}

macro_rules! walk {
    ($rest:literal) => {
        concat!(
            "WITH RECURSIVE walk (id, hops) AS (
                 SELECT id, 0 FROM larder.entities WHERE namespace = $1 AND id = $2
                 UNION SELECT r.target, walk.hops + 1 FROM walk JOIN larder.relationships r
                    ON r.namespace = $1 AND r.source = walk.id WHERE walk.hops < $3),
             reached AS MATERIALIZED (SELECT id, min(hops) AS hops FROM walk GROUP BY id) ",
            $rest
        )
    };
}

/// Entities and relationships by one statement: one round trip, one snapshot. The planner chooses the joins.
pub(super) const ONE_STATEMENT: &[&str] = &[walk!(
    "SELECT e.id, e.entity_type, NULL, NULL, e.properties, w.hops FROM reached w
     JOIN larder.entities e ON e.namespace = $1 AND e.id = w.id
     UNION ALL
     SELECT r.id, r.relationship_type, r.source, r.target, r.properties, NULL FROM reached w
     JOIN larder.relationships r ON r.namespace = $1 AND r.source = w.id WHERE w.hops < $3"
)];

/// The same, with joins that can only use the indexes.
pub(super) const ONE_LATERAL: &[&str] = &[walk!(
    "SELECT e.id, e.entity_type, NULL, NULL, e.properties, w.hops FROM reached w CROSS JOIN LATERAL (
         SELECT * FROM larder.entities e WHERE e.namespace = $1 AND e.id = w.id OFFSET 0) e
     UNION ALL
     SELECT r.id, r.relationship_type, r.source, r.target, r.properties, NULL FROM reached w CROSS JOIN \
     LATERAL (
         SELECT * FROM larder.relationships r WHERE r.namespace = $1 AND r.source = w.id OFFSET 0) r
     WHERE w.hops < $3"
)];

/// One statement for each.
pub(super) const TWO_STATEMENTS: &[&str] = &[
    walk!(
        "SELECT e.id, e.entity_type, NULL, NULL, e.properties, w.hops FROM reached w
         JOIN larder.entities e ON e.namespace = $1 AND e.id = w.id ORDER BY w.hops, e.id"
    ),
    walk!(
        "SELECT r.id, r.relationship_type, r.source, r.target, r.properties, NULL::integer FROM reached w
         JOIN larder.relationships r ON r.namespace = $1 AND r.source = w.id WHERE w.hops < $3 ORDER BY r.id"
    ),
];

/// Runs the statements and decodes their rows.
pub(super) async fn postgres(
    connection: &mut PgConnection,
    statements: &[&'static str],
    namespace: &str,
    start: &str,
    depth: u32,
) -> Outcome<Found> {
    let mut nodes: Vec<Node> = Vec::new();
    let mut edges = BTreeMap::new();
    for statement in statements {
        let query = sqlx::query(*statement).bind(namespace).bind(start).bind(i32::try_from(depth)?);
        for row in query.fetch_all(&mut *connection).await? {
            let properties: Map<String, Value> = serde_json::from_str(row.try_get(4)?)?;
            let (id, kind): (String, String) = (row.try_get(0)?, row.try_get(1)?);
            match row.try_get::<Option<i32>, _>(5)? {
                Some(hops) => nodes.push((id, kind, properties, u32::try_from(hops)?)),
                None => {
                    let ends: (String, String) = (row.try_get(2)?, row.try_get(3)?);
                    edges.insert(id, (kind, ends, properties));
                }
            }
        }
    }
    nodes.sort_by(|left, right| (left.3, &left.0).cmp(&(right.3, &right.0)));
    Ok((black_box(nodes).len(), black_box(edges).len()))
}
