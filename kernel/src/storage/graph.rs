//! Knowledge graphs: the contract of [`GraphStore`].
//!
//! Entities are nodes, relationships directed edges; both have a type and properties. Definitions: RAVI-14, RAVI-15.

mod check;
mod types;

use async_trait::async_trait;

pub use check::{
    check_cypher, check_entities, check_entity_query, check_neighbors, check_relationship_query,
    check_relationships,
};
pub use types::{
    CypherRow, DeletedEntity, Direction, Entity, EntityQuery, GraphCounts, NeighborQuery, Reached,
    Relationship, RelationshipQuery, SubGraph, UpsertReport,
};

use super::Store;
use crate::error::{Error, Result};
use crate::id::{EntityId, RelationshipId};
use crate::metadata::Metadata;
use crate::page::{Page, PageRequest};

/// Stores entities and the relationships between them, and walks them.
// The default bodies use none of their arguments.
#[allow(unused_variables)]
#[async_trait]
pub trait GraphStore: Store {
    /// Writes entities, new ones and replacements alike.
    ///
    /// - **GRAPH-001** An entity reads back equal: type and properties as given.
    /// - **GRAPH-002** An entity that is there is replaced whole, type and properties, and keeps its relationships.
    /// - **GRAPH-003** The answer says how many were created and how many replaced.
    /// - **GRAPH-004** A batch is stored whole or not at all.
    ///
    /// # Errors
    /// `InvalidInput` for 0 or more than 1,000 entities, an id named twice, or refused properties.
    ///
    /// # Cancellation
    /// The batch is written whole or not at all.
    ///
    /// # Complexity
    /// O(batch).
    async fn upsert_entities(&self, entities: Vec<Entity>) -> Result<UpsertReport> {
        Err(Error::not_implemented("graph.upsert_entities"))
    }

    /// Writes relationships, new ones and replacements alike.
    ///
    /// - **GRAPH-005** A relationship reads back equal: type, both ends and properties as given.
    /// - **GRAPH-006** A relationship whose source or target does not exist is `NotFound`, and the batch writes nothing.
    /// - **GRAPH-007** A relationship that is there is replaced whole, its ends included.
    /// - **GRAPH-008** An entity may have relationships with itself.
    /// - **GRAPH-009** Two entities may have any number of relationships, of one type or several, in both directions.
    /// - **GRAPH-010** A relationship never outlives or lacks an end, also when entities are deleted meanwhile.
    ///
    /// # Errors
    /// `InvalidInput` for 0 or more than 1,000 relationships, an id named twice, or refused properties; `NotFound`.
    ///
    /// # Cancellation
    /// The batch is written whole or not at all.
    ///
    /// # Complexity
    /// O(batch).
    async fn upsert_relationships(&self, relationships: Vec<Relationship>) -> Result<UpsertReport> {
        Err(Error::not_implemented("graph.upsert_relationships"))
    }

    /// Reads entities by their ids.
    ///
    /// - **GRAPH-011** The answer has one place for each id asked, in that order; an entity that is not there is `None`.
    ///
    /// # Errors
    /// `InvalidInput` for more than 10,000 ids.
    ///
    /// # Cancellation
    /// Nothing to undo.
    ///
    /// # Complexity
    /// O(ids).
    async fn get_entities(&self, ids: &[EntityId]) -> Result<Vec<Option<Entity>>> {
        Err(Error::not_implemented("graph.get_entities"))
    }

    /// Reads relationships by their ids.
    ///
    /// - **GRAPH-012** The answer has one place for each id asked, in that order; one that is not there is `None`.
    ///
    /// # Errors
    /// `InvalidInput` for more than 10,000 ids.
    ///
    /// # Cancellation
    /// Nothing to undo.
    ///
    /// # Complexity
    /// O(ids).
    async fn get_relationships(&self, ids: &[RelationshipId]) -> Result<Vec<Option<Relationship>>> {
        Err(Error::not_implemented("graph.get_relationships"))
    }

    /// Walks outward from an entity, breadth first, and returns what it reached.
    ///
    /// An entity's hops are the length of the shortest walk to it. Entities come in the order of hops and then of their
    /// ids' bytes, the start first; relationships in the byte order of their ids.
    ///
    /// - **GRAPH-020** Relationships are walked in both directions unless the query asks for out or in.
    /// - **GRAPH-021** Exactly the entities within `depth` hops are reached, each once, with its hops.
    /// - **GRAPH-022** Depth 0 returns the entity itself and no relationships.
    /// - **GRAPH-023** With types given, only relationships of these types are walked and returned.
    /// - **GRAPH-024** Every relationship that the walk can take from an entity of fewer than `depth` hops is returned,
    ///   parallel ones and loops included, if both its ends are in the result.
    /// - **GRAPH-025** No relationship is returned whose ends are not both in the result.
    /// - **GRAPH-026** Walks through cycles end.
    /// - **GRAPH-027** With a limit, the first `limit` entities in the order above are returned, the start included.
    /// - **GRAPH-028** An entity that does not exist gives an empty result.
    /// - **GRAPH-029** Walking out follows relationships from source to target, walking in from target to source.
    /// - **GRAPH-030** A limit of 0 returns nothing.
    ///
    /// # Errors
    /// `InvalidInput` for a depth over 32, a limit over 10,000, or more than 64 types.
    ///
    /// # Cancellation
    /// Nothing to undo.
    ///
    /// # Complexity
    /// O(relationships of the entities visited).
    async fn neighbors(&self, entity: &EntityId, query: &NeighborQuery) -> Result<SubGraph> {
        Err(Error::not_implemented("graph.neighbors"))
    }

    /// Deletes an entity with all its relationships.
    ///
    /// - **GRAPH-031** The entity and every relationship that touches it are gone, and the answer says whether it was
    ///   there and how many relationships went.
    /// - **GRAPH-032** Deleting an entity leaves its neighbors and their other relationships.
    /// - **GRAPH-033** Deleting an entity that is not there answers so.
    ///
    /// # Errors
    /// Only the backend's own.
    ///
    /// # Cancellation
    /// All of it is deleted, or none.
    ///
    /// # Complexity
    /// O(relationships of the entity).
    async fn delete_entity(&self, entity: &EntityId) -> Result<DeletedEntity> {
        Err(Error::not_implemented("graph.delete_entity"))
    }

    /// Deletes a relationship and says whether it was there.
    ///
    /// - **GRAPH-034** The relationship is gone from reads and walks, and its ends stay.
    ///
    /// # Errors
    /// Only the backend's own.
    ///
    /// # Cancellation
    /// Deleted or not deleted.
    ///
    /// # Complexity
    /// O(1) beyond finding it.
    async fn delete_relationship(&self, relationship: &RelationshipId) -> Result<bool> {
        Err(Error::not_implemented("graph.delete_relationship"))
    }

    /// Finds entities by type and properties, in the byte order of their ids.
    ///
    /// - **GRAPH-035** Exactly the entities of the type, where given, whose properties match the filter, where given, are
    ///   found.
    /// - **GRAPH-036** Paging with any limit visits each matching entity that exists throughout exactly once.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000 or a refused filter.
    ///
    /// # Cancellation
    /// Nothing to undo.
    ///
    /// # Complexity
    /// O(entities of the type).
    async fn find_entities(
        &self,
        query: &EntityQuery,
        page: PageRequest<EntityId>,
    ) -> Result<Page<Entity, EntityId>> {
        Err(Error::not_implemented("graph.find_entities"))
    }

    /// Finds relationships by type, ends and properties, in the byte order of their ids.
    ///
    /// - **GRAPH-037** Exactly the relationships are found that satisfy every part of the query that is given.
    /// - **GRAPH-038** Paging with any limit visits each matching relationship that exists throughout exactly once.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000 or a refused filter.
    ///
    /// # Cancellation
    /// Nothing to undo.
    ///
    /// # Complexity
    /// O(relationships of the ends or the type given).
    async fn find_relationships(
        &self,
        query: &RelationshipQuery,
        page: PageRequest<RelationshipId>,
    ) -> Result<Page<Relationship, RelationshipId>> {
        Err(Error::not_implemented("graph.find_relationships"))
    }

    /// Counts what the graph holds.
    ///
    /// - **GRAPH-039** The counts are those of the entities and relationships that can be read.
    ///
    /// # Errors
    /// Only the backend's own.
    ///
    /// # Cancellation
    /// Nothing to undo.
    ///
    /// # Complexity
    /// O(1) where the backend keeps count, else O(graph).
    async fn count(&self) -> Result<GraphCounts> {
        Err(Error::not_implemented("graph.count"))
    }

    /// The store as one that answers openCypher, asked for at run time (RAVI-15).
    ///
    /// - **GRAPH-040** It is there exactly when the store declares the capability `cypher`.
    fn as_cypher(&self) -> Option<&dyn CypherCapable> {
        None
    }
}

/// A graph that answers openCypher queries.
///
/// An entity is a node with the label `Entity` and the properties `id`, `type` and `properties`. A relationship is an
/// edge of the type `Relationship` from its source to its target, with the properties `id`, `type`, `source`, `target`
/// and `properties`. The contract's types are data and not labels, for they may hold any text:
///
/// ```text
/// MATCH (person:Entity {type: 'person'})-[r:Relationship {type: 'knows'}]->(friend:Entity)
/// WHERE person.id = $id AND friend.properties.age > 30
/// RETURN friend.id AS id, friend.properties.name AS name, r AS how
/// ```
#[async_trait]
pub trait CypherCapable: GraphStore {
    /// Runs a query that reads, with parameters; no text is ever spliced into it.
    ///
    /// Each record is one row, with a column for each item of `RETURN`, by its alias or else its text. A node
    /// comes as the JSON form of [`Entity`], an edge as that of [`Relationship`], a path as an object of its `entities`
    /// and `relationships` in the order of the path. Numbers that JSON lacks come as the strings `"NaN"`, `"Infinity"`
    /// and `"-Infinity"`.
    ///
    /// The query is the program's own text, and what users say belongs into the parameters. It cannot leave its
    /// namespace, and of functions it has openCypher's and none of the database's.
    ///
    /// - **GRAPH-041** A query sees the entities and relationships of its namespace, parameters included as data.
    /// - **GRAPH-042** Labels, types and properties are those above, and each value matches as it was stored.
    /// - **GRAPH-043** Nodes, edges and paths come as the entities and relationships that they are, in the columns that
    ///   the query names.
    /// - **GRAPH-044** A query that would write is refused with `InvalidInput` and changes nothing.
    ///
    /// # Errors
    /// `InvalidInput` for a query that does not parse, would write, returns `*` or one column twice, calls a function of
    /// the database, is longer than 64 KiB or holds NUL, or for parameters that [`Metadata::check`] refuses;
    /// `ResourceExhausted` for more than 10,000 rows, which `LIMIT` avoids.
    ///
    /// # Cancellation
    /// Nothing to undo.
    ///
    /// # Complexity
    /// The query's own.
    async fn cypher(&self, query: &str, parameters: Metadata) -> Result<Vec<CypherRow>>;
}
