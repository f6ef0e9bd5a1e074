//! Entities and relationships.

use larder_kernel::{
    DeletedEntity, Entity, EntityId, EntityType, Error, NeighborQuery, Relationship, RelationshipId,
    RelationshipType, Result, SubGraph,
};

use crate::handle::{handle, id};

handle!(
    /// A knowledge graph: typed entities, and directed relationships between them.
    ///
    /// ```
    /// use larder::prelude::*;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> larder::Result<()> {
    /// let stores = larder::open("memory:").await?;
    /// let graph = stores.graph()?;
    /// graph.put("ada", "person").await?;
    /// graph.put("basel", "city").await?;
    /// graph.relate("trip-1", "ada", "travels_to", "basel").await?;
    /// assert_eq!(graph.direct_neighbors("ada").await?.entities.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    Graph,
    GraphStore
);

impl Graph {
    /// Writes an entity without properties, and replaces an entity with the same id. Use `upsert_entities` to
    /// write many entities, with properties.
    ///
    /// # Errors
    /// As [`upsert_entities`](larder_kernel::GraphStore::upsert_entities).
    pub async fn put(
        &self,
        entity: impl TryInto<EntityId, Error: Into<Error>> + Send,
        entity_type: impl TryInto<EntityType, Error: Into<Error>> + Send,
    ) -> Result<()> {
        let entity = Entity::new(id(entity)?, id(entity_type)?);
        self.upsert_entities(vec![entity]).await.map(drop)
    }

    /// Writes a relationship without properties between two existing entities, and replaces a relationship
    /// with the same id. Use `upsert_relationships` to write many relationships, with properties.
    ///
    /// # Errors
    /// As [`upsert_relationships`](larder_kernel::GraphStore::upsert_relationships); `NotFound` if an entity
    /// does not exist.
    pub async fn relate(
        &self,
        relationship: impl TryInto<RelationshipId, Error: Into<Error>> + Send,
        source: impl TryInto<EntityId, Error: Into<Error>> + Send,
        relationship_type: impl TryInto<RelationshipType, Error: Into<Error>> + Send,
        target: impl TryInto<EntityId, Error: Into<Error>> + Send,
    ) -> Result<()> {
        let (source, target) = (id(source)?, id(target)?);
        let relationship = Relationship::new(id(relationship)?, id(relationship_type)?, source, target);
        self.upsert_relationships(vec![relationship]).await.map(drop)
    }

    /// Returns an entity; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`get_entities`](larder_kernel::GraphStore::get_entities).
    pub async fn get(
        &self,
        entity: impl TryInto<EntityId, Error: Into<Error>> + Send,
    ) -> Result<Option<Entity>> {
        let entity = id(entity)?;
        Ok(self.get_entities(&[entity]).await?.pop().flatten())
    }

    /// Returns the entities within `depth` hops in both directions, the start included, and the relationships
    /// between them.
    ///
    /// # Errors
    /// As [`neighbors`](larder_kernel::GraphStore::neighbors).
    pub async fn neighbors(
        &self,
        entity: impl TryInto<EntityId, Error: Into<Error>> + Send,
        depth: u32,
    ) -> Result<SubGraph> {
        let entity = id(entity)?;
        self.provider().neighbors(&entity, &NeighborQuery::depth(depth)).await
    }

    /// Returns an entity, its direct neighbors in both directions, and the relationships between them. Works
    /// as [`neighbors`](Self::neighbors) with a depth of 1.
    ///
    /// # Errors
    /// As [`neighbors`](larder_kernel::GraphStore::neighbors).
    pub async fn direct_neighbors(
        &self,
        entity: impl TryInto<EntityId, Error: Into<Error>> + Send,
    ) -> Result<SubGraph> {
        let entity = id(entity)?;
        self.provider().neighbors(&entity, &NeighborQuery::default()).await
    }

    /// Deletes an entity with its relationships.
    ///
    /// # Errors
    /// As [`delete_entity`](larder_kernel::GraphStore::delete_entity).
    pub async fn delete(
        &self,
        entity: impl TryInto<EntityId, Error: Into<Error>> + Send,
    ) -> Result<DeletedEntity> {
        let entity = id(entity)?;
        self.delete_entity(&entity).await
    }
}
