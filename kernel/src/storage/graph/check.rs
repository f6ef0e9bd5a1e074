//! Checks that every backend runs before its first I/O.

use super::types::{Entity, EntityQuery, NeighborQuery, Relationship, RelationshipQuery};
use super::write::{EntityWrite, RELATIONSHIPS_OPERATION, RelationshipWrite};
use crate::check;
use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::id::{EntityId, RelationshipId};
use crate::limits::{
    BATCH_GRAPH_ITEMS_MAX, CYPHER_BYTES_MAX, NEIGHBORS_DEPTH_MAX, PAGE_ITEMS_MAX, RELATIONSHIP_TYPES_MAX,
};
use crate::metadata::Metadata;
use crate::page::PageRequest;

/// Checks the arguments of [`upsert_entities`](super::GraphStore::upsert_entities).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_entities(entities: &[Entity]) -> Result<()> {
    check_batch("graph.upsert_entities", entities.iter())
}

/// Checks the arguments of [`write_entities`](super::GraphStore::write_entities).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_entity_writes(writes: &[EntityWrite]) -> Result<()> {
    check_batch(super::write::OPERATION, writes.iter().map(|write| &write.entity))
}

fn check_batch<'a>(
    operation: &'static str,
    mut entities: impl ExactSizeIterator<Item = &'a Entity> + Clone,
) -> Result<()> {
    check::batch(operation, "entities", entities.len(), BATCH_GRAPH_ITEMS_MAX)?;
    check::distinct(operation, "entities.id", entities.clone().map(|entity| &entity.id))?;
    entities.try_for_each(|entity| entity.properties.check(operation, "entity.properties"))
}

/// Checks the arguments of [`upsert_relationships`](super::GraphStore::upsert_relationships).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_relationships(relationships: &[Relationship]) -> Result<()> {
    check_relationship_batch("graph.upsert_relationships", relationships.iter())
}

/// Checks the arguments of [`write_relationships`](super::GraphStore::write_relationships).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_relationship_writes(writes: &[RelationshipWrite]) -> Result<()> {
    check_relationship_batch(RELATIONSHIPS_OPERATION, writes.iter().map(|write| &write.relationship))
}

fn check_relationship_batch<'a>(
    operation: &'static str,
    mut relationships: impl ExactSizeIterator<Item = &'a Relationship> + Clone,
) -> Result<()> {
    check::batch(operation, "relationships", relationships.len(), BATCH_GRAPH_ITEMS_MAX)?;
    let ids = relationships.clone().map(|relationship| &relationship.id);
    check::distinct(operation, "relationships.id", ids)?;
    relationships
        .try_for_each(|relationship| relationship.properties.check(operation, "relationship.properties"))
}

/// Checks the arguments of [`neighbors`](super::GraphStore::neighbors).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_neighbors(query: &NeighborQuery) -> Result<()> {
    const OPERATION: &str = "graph.neighbors";
    if query.depth > NEIGHBORS_DEPTH_MAX {
        return Err(Error::over_limit(
            OPERATION,
            "depth",
            u64::from(query.depth),
            u64::from(NEIGHBORS_DEPTH_MAX),
        ));
    }
    check::at_most(OPERATION, "limit", query.limit, PAGE_ITEMS_MAX)?;
    check::at_most(OPERATION, "relationship_types", query.relationship_types.len(), RELATIONSHIP_TYPES_MAX)
}

fn check_filter(operation: &'static str, filter: Option<&Filter>) -> Result<()> {
    filter.map_or(Ok(()), |filter| filter.check(operation))
}

/// Checks the arguments of [`find_entities`](super::GraphStore::find_entities).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_entity_query(query: &EntityQuery, page: &PageRequest<EntityId>) -> Result<()> {
    const OPERATION: &str = "graph.find_entities";
    page.check(OPERATION)?;
    check_filter(OPERATION, query.filter.as_ref())
}

/// Checks the arguments of [`find_relationships`](super::GraphStore::find_relationships).
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_relationship_query(query: &RelationshipQuery, page: &PageRequest<RelationshipId>) -> Result<()> {
    const OPERATION: &str = "graph.find_relationships";
    page.check(OPERATION)?;
    check_filter(OPERATION, query.filter.as_ref())
}

/// Checks the arguments of [`cypher`](super::CypherCapable::cypher), except the grammar of the query.
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_cypher(query: &str, parameters: &Metadata) -> Result<()> {
    const OPERATION: &str = "graph.cypher";
    check::text(OPERATION, "query", query, CYPHER_BYTES_MAX)?;
    check::no_nul(OPERATION, "query", query)?;
    parameters.check(OPERATION, "parameters")
}
