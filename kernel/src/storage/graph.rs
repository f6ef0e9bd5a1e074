//! Knowledge graphs: the contract of [`GraphStore`].
//!
//! Entities are nodes and relationships are directed edges. Both have a type and properties.

mod check;
mod types;
mod write;

use async_trait::async_trait;

pub use check::{
    check_cypher, check_entities, check_entity_query, check_entity_writes, check_neighbors,
    check_relationship_query, check_relationship_writes, check_relationships,
};
pub use types::{
    CypherRow, DeletedEntity, Direction, Entity, EntityQuery, GraphCounts, NeighborQuery, Reached,
    Relationship, RelationshipQuery, SubGraph, UpsertReport,
};
pub use write::{
    EntityWrite, GraphCondition, GraphMode, GraphWritten, RelationshipWrite, StoredEntity, StoredRelationship,
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
    /// - **GRAPH-001** An entity reads back equal, with the type and properties that were written.
    /// - **GRAPH-002** Upserting an existing entity replaces its type and properties completely and keeps its
    ///   relationships.
    /// - **GRAPH-003** `upsert_entities` returns the number of entities created and the number replaced.
    /// - **GRAPH-004** A batch is stored completely or not at all.
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

    /// Writes entities, each under a condition, and returns their new revisions in the order of the writes.
    ///
    /// The store assigns the revisions. Each write of an entity, through this method or `upsert_entities`,
    /// raises its revision. A program that changes an entity reads it with `get_stored_entities` and writes
    /// it back at the revision that it read, or merges the properties that it sets. Either way it loses no
    /// change of another program. A revision has no meaning in another store: a copy assigns new ones. All
    /// namespaces of a backend may share one counter, so only the order of an entity's revisions matters.
    ///
    /// - **GRAPH-045** Each write of an existing entity gives it a greater revision, and `write_entities`
    ///   returns for each entity its new revision and whether it was created.
    /// - **GRAPH-046** With `Absent`, a write creates an entity that does not exist, and fails with
    ///   `Conflict` if the entity exists.
    /// - **GRAPH-047** With `AtRevision`, a write succeeds if the entity is at that revision, and fails with
    ///   `Conflict` if the entity does not exist or is at another revision.
    /// - **GRAPH-048** With `Merge`, a write replaces the type and the properties that it names, keeps all
    ///   other properties of an existing entity, and creates an entity that does not exist.
    /// - **GRAPH-049** If the condition of one write fails, no entity of the batch is written.
    /// - **GRAPH-050** Of concurrent creations of one entity, or concurrent writes at one revision, exactly
    ///   one succeeds, and the others fail with `Conflict`.
    /// - **GRAPH-051** Concurrent merges of different properties into one entity lose no property.
    /// - **GRAPH-052** A merge with a result that exceeds the limits of properties fails with `InvalidInput`
    ///   and changes nothing.
    ///
    /// # Errors
    /// `InvalidInput` for 0 or more than 1,000 entities, a duplicate id, or refused properties; `Conflict`.
    ///
    /// # Cancellation
    /// The batch is written completely or not at all.
    ///
    /// # Complexity
    /// O(batch).
    async fn write_entities(&self, writes: Vec<EntityWrite>) -> Result<Vec<GraphWritten>> {
        Err(Error::not_implemented("graph.write_entities"))
    }

    /// Writes relationships. New ids are created and existing ids are replaced.
    ///
    /// - **GRAPH-005** A relationship reads back equal, with the type, source, target and properties that
    ///   were written.
    /// - **GRAPH-006** A batch with a relationship whose source or target does not exist fails with
    ///   `NotFound` and writes nothing.
    /// - **GRAPH-007** Upserting an existing relationship replaces it completely, including its source and
    ///   target.
    /// - **GRAPH-008** A relationship may have the same entity as source and target.
    /// - **GRAPH-009** Two entities may have any number of relationships, of one type or several, in both
    ///   directions.
    /// - **GRAPH-010** A relationship never exists without its source and its target, even if entities are
    ///   deleted concurrently.
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

    /// Writes relationships, each under a condition, and returns their new revisions in the order of the
    /// writes.
    ///
    /// Relationships have revisions, as entities have ([`write_entities`](Self::write_entities)).
    ///
    /// - **GRAPH-056** Each write of an existing relationship, through `write_relationships` or
    ///   `upsert_relationships`, gives it a greater revision, and `write_relationships` returns for each
    ///   relationship its new revision and whether it was created.
    /// - **GRAPH-057** With `Absent`, a write creates a relationship that does not exist, and fails with
    ///   `Conflict` if the relationship exists.
    /// - **GRAPH-058** With `AtRevision`, a write succeeds if the relationship is at that revision, and fails
    ///   with `Conflict` if the relationship does not exist or is at another revision.
    /// - **GRAPH-059** With `Merge`, a write replaces the type, the source, the target and the properties
    ///   that it names, keeps all other properties of an existing relationship, and creates a relationship
    ///   that does not exist.
    /// - **GRAPH-060** If the condition of one write fails, or the source or target of one relationship does
    ///   not exist, no relationship of the batch is written.
    /// - **GRAPH-061** Of concurrent creations of one relationship, or concurrent writes at one revision,
    ///   exactly one succeeds, and the others fail with `Conflict`.
    /// - **GRAPH-062** Concurrent merges of different properties into one relationship lose no property.
    /// - **GRAPH-063** A merge with a result that exceeds the limits of properties fails with `InvalidInput`
    ///   and changes no relationship of the batch.
    ///
    /// # Errors
    /// `InvalidInput` for 0 or more than 1,000 relationships, a duplicate id, or refused properties;
    /// `NotFound` if a source or target does not exist; `Conflict`.
    ///
    /// # Cancellation
    /// The batch is written completely or not at all.
    ///
    /// # Complexity
    /// O(batch).
    async fn write_relationships(&self, writes: Vec<RelationshipWrite>) -> Result<Vec<GraphWritten>> {
        Err(Error::not_implemented("graph.write_relationships"))
    }

    /// Reads entities by their ids.
    ///
    /// - **GRAPH-011** `get_entities` returns one item for each requested id, in the order of the ids, and
    ///   `None` for an entity that does not exist.
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

    /// Reads entities by their ids, each with its revision.
    ///
    /// - **GRAPH-053** `get_stored_entities` returns one item for each requested id, in the order of the ids:
    ///   the entity with the revision of its last write, and `None` for an entity that does not exist.
    /// - **GRAPH-054** An entity that is created again after its deletion gets a revision that it never had.
    /// - **GRAPH-055** Writing or deleting a relationship does not change the revision of its source or
    ///   target.
    ///
    /// # Errors
    /// `InvalidInput` for more than 10,000 ids.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(ids).
    async fn get_stored_entities(&self, ids: &[EntityId]) -> Result<Vec<Option<StoredEntity>>> {
        Err(Error::not_implemented("graph.get_stored_entities"))
    }

    /// Reads relationships by their ids.
    ///
    /// - **GRAPH-012** `get_relationships` returns one item for each requested id, in the order of the ids,
    ///   and `None` for a relationship that does not exist.
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

    /// Reads relationships by their ids, each with its revision.
    ///
    /// - **GRAPH-064** `get_stored_relationships` returns one item for each requested id, in the order of the
    ///   ids: the relationship with the revision of its last write, and `None` for a relationship that does
    ///   not exist.
    /// - **GRAPH-065** A relationship that is created again after its deletion, or after the deletion of its
    ///   source or target, gets a revision that it never had.
    ///
    /// # Errors
    /// `InvalidInput` for more than 10,000 ids.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(ids).
    async fn get_stored_relationships(
        &self,
        ids: &[RelationshipId],
    ) -> Result<Vec<Option<StoredRelationship>>> {
        Err(Error::not_implemented("graph.get_stored_relationships"))
    }

    /// Traverses the graph from an entity, breadth first, and returns the entities and relationships reached.
    ///
    /// The hops of an entity are the length of the shortest path to it. Entities are ordered by hops and then
    /// by the bytes of their ids, with the start entity first. Relationships are in the byte order of their
    /// ids.
    ///
    /// - **GRAPH-020** Relationships are followed in both directions unless the query asks for outgoing or
    ///   incoming ones.
    /// - **GRAPH-021** Exactly the entities within `depth` hops are reached, each once and with its number of
    ///   hops.
    /// - **GRAPH-022** Depth 0 returns the start entity and no relationships.
    /// - **GRAPH-023** With types given, only relationships of these types are followed and returned.
    /// - **GRAPH-024** Every relationship that the traversal can follow from an entity at fewer than `depth`
    ///   hops is returned if its source and target are in the result, including parallel relationships and
    ///   loops.
    /// - **GRAPH-025** No relationship is returned unless its source and target are in the result.
    /// - **GRAPH-026** Traversals through cycles terminate.
    /// - **GRAPH-027** With a limit, the first `limit` entities by hops and then by the bytes of their ids
    ///   are returned, including the start entity.
    /// - **GRAPH-028** Starting from an entity that does not exist returns an empty result.
    /// - **GRAPH-029** An outgoing traversal follows relationships from source to target, and an incoming one
    ///   from target to source.
    /// - **GRAPH-030** A limit of 0 returns an empty result.
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

    /// Deletes an entity with its relationships, at most 10,000 of them.
    ///
    /// A call is limited because other writers wait for it. To delete an entity with any number of
    /// relationships, repeat the call until the result has no `more`. The handle of the crate `larder` does
    /// that.
    ///
    /// - **GRAPH-031** `delete_entity` deletes an entity with at most 10,000 relationships and every
    ///   relationship from or to it, and returns whether the entity existed and the number of relationships
    ///   deleted.
    /// - **GRAPH-032** Deleting an entity does not change its neighbors or their other relationships.
    /// - **GRAPH-033** Deleting an entity that does not exist succeeds and reports that it did not exist.
    /// - **GRAPH-066** Of an entity with more than 10,000 relationships, `delete_entity` deletes 10,000
    ///   relationships, keeps the entity and its other relationships, and returns that more remain.
    ///
    /// # Errors
    /// Only errors of the backend itself.
    ///
    /// # Cancellation
    /// Everything that the call deletes is deleted, or nothing.
    ///
    /// # Complexity
    /// O(deleted relationships) plus the cost of finding them.
    async fn delete_entity(&self, entity: &EntityId) -> Result<DeletedEntity> {
        Err(Error::not_implemented("graph.delete_entity"))
    }

    /// Deletes a relationship. Returns `true` if the relationship existed.
    ///
    /// - **GRAPH-034** A deleted relationship is neither read nor followed, and its source and target remain.
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
    /// - **GRAPH-035** `find_entities` returns exactly the entities that have the given type, if any, and
    ///   whose properties match the given filter, if any.
    /// - **GRAPH-036** Paging with any limit returns every matching entity that exists for the whole listing
    ///   exactly once.
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
    /// - **GRAPH-037** `find_relationships` returns exactly the relationships that satisfy every given part
    ///   of the query.
    /// - **GRAPH-038** Paging with any limit returns every matching relationship that exists for the whole
    ///   listing exactly once.
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
    /// - **GRAPH-039** The counts cover exactly the entities and relationships that can be read.
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
    /// - **GRAPH-040** `as_cypher` returns `Some` exactly if the store declares the capability `cypher`.
    fn as_cypher(&self) -> Option<&dyn CypherCapable> {
        None
    }
}

/// A graph that runs openCypher queries.
///
/// An entity is a node with the label `Entity` and the properties `id`, `type` and `properties`, and its
/// revision in the property `revision`. A relationship is an edge of the type `Relationship` from its source
/// to its target, with the properties `id`, `type`, `source`, `target` and `properties`, and its revision in
/// the property `revision`. The types of the contract are data and not labels, because they may contain any
/// text:
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
    /// - **GRAPH-041** A query reads the entities and relationships of its namespace and treats parameters as
    ///   data.
    /// - **GRAPH-042** Nodes and edges have the documented labels, types and properties, and each value
    ///   matches as it was stored.
    /// - **GRAPH-043** Nodes, edges and paths are returned as the entities and relationships that they
    ///   represent, in the columns that the query names.
    /// - **GRAPH-044** A query that would write fails with `InvalidInput` and changes nothing.
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
