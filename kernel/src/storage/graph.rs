//! Knowledge graphs: the contract of [`GraphStore`].
//!
//! Entities are nodes and relationships are directed edges. Both have a type and properties.

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

/// A store of entities and the relationships between them, with graph traversal.
// The default bodies do not use their arguments.
#[allow(unused_variables)]
#[async_trait]
pub trait GraphStore: Store {
    /// Writes entities. New ids are created and existing ids are replaced.
    ///
    /// - **GRAPH-001** An entity reads back equal: type and properties as given.
    /// - **GRAPH-002** An entity that is there is replaced whole, type and properties, and keeps its relationships.
    /// - **GRAPH-003** The answer says how many were created and how many replaced.
    /// - **GRAPH-004** A batch is stored whole or not at all.
    ///
    /// # Errors
    /// `InvalidInput` for 0 or more than 1,000 entities, a duplicate id, or refused properties.
    ///
    /// # Cancellation
    /// The batch is written completely or not at all.
    ///
    /// # Complexity
    /// O(batch).
    async fn upsert_entities(&self, entities: Vec<Entity>) -> Result<UpsertReport> {
        Err(Error::not_implemented("graph.upsert_entities"))
    }

    /// Writes relationships. New ids are created and existing ids are replaced.
    ///
    /// - **GRAPH-005** A relationship reads back equal: type, both ends and properties as given.
    /// - **GRAPH-006** A relationship whose source or target does not exist is `NotFound`, and the batch writes nothing.
    /// - **GRAPH-007** A relationship that is there is replaced whole, its ends included.
    /// - **GRAPH-008** An entity may have relationships with itself.
    /// - **GRAPH-009** Two entities may have any number of relationships, of one type or several, in both directions.
    /// - **GRAPH-010** A relationship never outlives or lacks an end, also when entities are deleted meanwhile.
    ///
    /// # Errors
    /// `InvalidInput` for 0 or more than 1,000 relationships, a duplicate id, or refused properties;
    /// `NotFound`.
    ///
    /// # Cancellation
    /// The batch is written completely or not at all.
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
    /// Dropping the future needs no cleanup.
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
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(ids).
    async fn get_relationships(&self, ids: &[RelationshipId]) -> Result<Vec<Option<Relationship>>> {
        Err(Error::not_implemented("graph.get_relationships"))
    }

    /// Traverses the graph from an entity, breadth first, and returns the entities and relationships reached.
    ///
    /// The hops of an entity are the length of the shortest path to it. Entities are ordered by hops and then
    /// by the bytes of their ids, with the start entity first. Relationships are in the byte order of their
    /// ids.
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
    /// Dropping the future needs no cleanup.
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
    /// Only errors of the backend itself.
    ///
    /// # Cancellation
    /// The entity and all its relationships are deleted, or nothing is deleted.
    ///
    /// # Complexity
    /// O(relationships of the entity).
    async fn delete_entity(&self, entity: &EntityId) -> Result<DeletedEntity> {
        Err(Error::not_implemented("graph.delete_entity"))
    }

    /// Deletes a relationship. Returns `true` if the relationship existed.
    ///
    /// - **GRAPH-034** The relationship is gone from reads and walks, and its ends stay.
    ///
    /// # Errors
    /// Only errors of the backend itself.
    ///
    /// # Cancellation
    /// The deletion happens completely or not at all.
    ///
    /// # Complexity
    /// O(1) plus the cost of finding the relationship.
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
    /// Dropping the future needs no cleanup.
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
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(relationships of the given ends or type).
    async fn find_relationships(
        &self,
        query: &RelationshipQuery,
        page: PageRequest<RelationshipId>,
    ) -> Result<Page<Relationship, RelationshipId>> {
        Err(Error::not_implemented("graph.find_relationships"))
    }

    /// Counts the entities and relationships of the graph.
    ///
    /// - **GRAPH-039** The counts are those of the entities and relationships that can be read.
    ///
    /// # Errors
    /// Only errors of the backend itself.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(1) if the backend maintains a counter, otherwise O(graph).
    async fn count(&self) -> Result<GraphCounts> {
        Err(Error::not_implemented("graph.count"))
    }

    /// Returns the openCypher interface of the store; `None` if the store has none.
    ///
    /// - **GRAPH-040** It is there exactly when the store declares the capability `cypher`.
    fn as_cypher(&self) -> Option<&dyn CypherCapable> {
        None
    }
}

/// A graph that runs openCypher queries.
///
/// An entity is a node with the label `Entity` and the properties `id`, `type` and `properties`. A
/// relationship is an edge of the type `Relationship` from its source to its target, with the properties
/// `id`, `type`, `source`, `target` and `properties`. The types of the contract are data and not labels,
/// because they may contain any text:
///
/// ```text
/// MATCH (person:Entity {type: 'person'})-[r:Relationship {type: 'knows'}]->(friend:Entity)
/// WHERE person.id = $id AND friend.properties.age > 30
/// RETURN friend.id AS id, friend.properties.name AS name, r AS how
/// ```
#[async_trait]
pub trait CypherCapable: GraphStore {
    /// Runs a read-only query with parameters. Parameters are never spliced into the query text.
    ///
    /// Each record is one row, with a column for each item of `RETURN`. The column's name is the alias or,
    /// without one, the text of the item. A node is returned as the JSON form of [`Entity`], and an edge as
    /// that of [`Relationship`]. A path is returned as an object with its `entities` and `relationships` in
    /// the order of the path. Numbers that JSON cannot express are returned as the strings `"NaN"`,
    /// `"Infinity"` and `"-Infinity"`.
    ///
    /// The query is text of the program; pass user input as parameters. A query cannot leave its namespace.
    /// It can call the functions of openCypher and no functions of the database.
    ///
    /// - **GRAPH-041** A query sees the entities and relationships of its namespace, parameters included as data.
    /// - **GRAPH-042** Labels, types and properties are those above, and each value matches as it was stored.
    /// - **GRAPH-043** Nodes, edges and paths come as the entities and relationships that they are, in the columns that
    ///   the query names.
    /// - **GRAPH-044** A query that would write is refused with `InvalidInput` and changes nothing.
    ///
    /// # Errors
    /// `InvalidInput` if the query does not parse, writes, returns `*` or one column twice, calls a function
    /// of the database, is longer than 64 KiB or contains NUL, or if [`Metadata::check`] refuses the
    /// parameters; `ResourceExhausted` for more than 10,000 rows, which `LIMIT` avoids.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// The cost of the query.
    async fn cypher(&self, query: &str, parameters: Metadata) -> Result<Vec<CypherRow>>;
}
