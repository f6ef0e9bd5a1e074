//! Walking outward, breadth first: one call of a function in the database, and so one round trip and one snapshot.

use std::collections::{BTreeMap, HashSet};

use larder_kernel::{Direction, EntityId, Namespace, NeighborQuery, Reached, SubGraph};
use sqlx::{PgConnection, Row};

use super::rows;
use crate::postgres::failure::Fallible;
use crate::postgres::field;
use crate::postgres::value::length;

/// What `query` reaches from an entity.
pub(super) async fn neighbors(
    connection: &mut PgConnection,
    namespace: &Namespace,
    start: &EntityId,
    query: &NeighborQuery,
) -> Fallible<SubGraph> {
    if query.limit == 0 {
        return Ok(SubGraph::default());
    }
    let types: Vec<&str> = query.relationship_types.iter().map(|kind| kind.as_str()).collect();
    let rows = sqlx::query(
        "SELECT out_id, out_type, out_source, out_target, out_properties, out_hops
         FROM larder.neighbors($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(namespace.as_str())
    .bind(start.as_str())
    .bind(i32::try_from(query.depth).unwrap_or(i32::MAX))
    .bind(query.direction != Direction::In)
    .bind(query.direction != Direction::Out)
    .bind((!types.is_empty()).then_some(types))
    .bind(i32::try_from(length(query.limit)).unwrap_or(i32::MAX))
    .fetch_all(connection)
    .await?;
    let (mut entities, mut relationships) = (Vec::new(), BTreeMap::new());
    for row in &rows {
        if row.try_get::<Option<i32>, _>(5)?.is_some() {
            entities.push(Reached { entity: rows::reached(row)?, hops: field::small(row, 5)? });
        } else {
            let relationship = rows::relationship(row)?;
            // One that is walked both ways comes twice.
            relationships.insert(relationship.id.clone(), relationship);
        }
    }
    let ids: HashSet<&EntityId> = entities.iter().map(|reached| &reached.entity.id).collect();
    // The limit may have left out an end.
    relationships.retain(|_, one| ids.contains(&one.source) && ids.contains(&one.target));
    entities
        .sort_unstable_by(|left, right| (left.hops, &left.entity.id).cmp(&(right.hops, &right.entity.id)));
    Ok(SubGraph { entities, relationships: relationships.into_values().collect() })
}
