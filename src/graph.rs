//! Entities and relationships.

use larder_kernel::{
    DeletedEntity, Entity, EntityId, EntityType, EntityWrite, Error, ErrorKind, GraphCondition, GraphStore,
    Metadata, NeighborQuery, Outcome, Relationship, RelationshipId, RelationshipType, RelationshipWrite,
    Result, Revision, StoredEntity, StoredRelationship, SubGraph,
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
    ///
    /// // A merge keeps the properties that it does not name.
    /// graph.merge("ada", "person", Metadata::new().with("likes", "tea")).await?;
    /// graph.merge("ada", "person", Metadata::new().with("age", 36)).await?;
    /// // A write at the revision that was read loses no change of another program.
    /// let Some(mut ada) = graph.get_stored("ada").await? else { unreachable!("it was written") };
    /// assert_eq!(ada.entity.properties.len(), 2);
    /// ada.entity.properties.insert("age", 37);
    /// graph.put_at(ada.entity, ada.revision).await?;
    /// # Ok(())
    /// # }
    /// ```
    Graph,
    GraphStore,
    graph
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

    /// Writes an entity without properties if it does not exist, and returns its revision.
    ///
    /// # Errors
    /// As [`write_entities`](larder_kernel::GraphStore::write_entities); `Conflict` if the entity exists.
    pub async fn create(
        &self,
        entity: impl TryInto<EntityId, Error: Into<Error>> + Send,
        entity_type: impl TryInto<EntityType, Error: Into<Error>> + Send,
    ) -> Result<Revision> {
        self.write(EntityWrite::create(Entity::new(id(entity)?, id(entity_type)?))).await
    }

    /// Sets the type and the given properties of an entity, and returns its revision. An existing entity
    /// keeps its other properties; an entity that does not exist is created.
    ///
    /// # Errors
    /// As [`write_entities`](larder_kernel::GraphStore::write_entities).
    pub async fn merge(
        &self,
        entity: impl TryInto<EntityId, Error: Into<Error>> + Send,
        entity_type: impl TryInto<EntityType, Error: Into<Error>> + Send,
        properties: Metadata,
    ) -> Result<Revision> {
        let entity = Entity::new(id(entity)?, id(entity_type)?).with_properties(properties);
        self.write(EntityWrite::merge(entity)).await
    }

    /// Replaces an entity if it is at the revision that you read, and returns its new revision.
    ///
    /// # Errors
    /// As [`write_entities`](larder_kernel::GraphStore::write_entities); `Conflict` if the entity does not
    /// exist or is at another revision.
    pub async fn put_at(&self, entity: Entity, revision: Revision) -> Result<Revision> {
        let at = GraphCondition::AtRevision(revision);
        self.write(EntityWrite::replace(entity).with_condition(at)).await
    }

    async fn write(&self, write: EntityWrite) -> Result<Revision> {
        let written = self.write_entities(vec![write]).await?;
        let none =
            || Error::new(ErrorKind::Corrupt, "graph.write_entities", "the store returned no revision");
        written.first().map(|written| written.revision).ok_or_else(none)
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

    /// Sets the type, the ends and the given properties of a relationship, and returns its revision. An
    /// existing relationship keeps its other properties; a relationship that does not exist is created.
    ///
    /// # Errors
    /// As [`write_relationships`](larder_kernel::GraphStore::write_relationships); `NotFound` if an entity
    /// does not exist.
    pub async fn merge_relationship(&self, relationship: Relationship) -> Result<Revision> {
        self.write_edge(RelationshipWrite::merge(relationship)).await
    }

    /// Replaces a relationship if it is at the revision that you read, and returns its new revision.
    ///
    /// # Errors
    /// As [`write_relationships`](larder_kernel::GraphStore::write_relationships); `Conflict` if the
    /// relationship does not exist or is at another revision.
    pub async fn put_relationship_at(
        &self,
        relationship: Relationship,
        revision: Revision,
    ) -> Result<Revision> {
        let at = GraphCondition::AtRevision(revision);
        self.write_edge(RelationshipWrite::replace(relationship).with_condition(at)).await
    }

    async fn write_edge(&self, write: RelationshipWrite) -> Result<Revision> {
        let written = self.write_relationships(vec![write]).await?;
        let none =
            || Error::new(ErrorKind::Corrupt, "graph.write_relationships", "the store returned no revision");
        written.first().map(|written| written.revision).ok_or_else(none)
    }

    /// Returns a relationship with its revision; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`get_stored_relationships`](larder_kernel::GraphStore::get_stored_relationships).
    pub async fn get_stored_relationship(
        &self,
        relationship: impl TryInto<RelationshipId, Error: Into<Error>> + Send,
    ) -> Result<Option<StoredRelationship>> {
        let relationship = id(relationship)?;
        Ok(self.get_stored_relationships(&[relationship]).await?.pop().flatten())
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

    /// Returns an entity with its revision; `None` if it does not exist.
    ///
    /// # Errors
    /// As [`get_stored_entities`](larder_kernel::GraphStore::get_stored_entities).
    pub async fn get_stored(
        &self,
        entity: impl TryInto<EntityId, Error: Into<Error>> + Send,
    ) -> Result<Option<StoredEntity>> {
        let entity = id(entity)?;
        Ok(self.get_stored_entities(&[entity]).await?.pop().flatten())
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

    /// Deletes an entity with all its relationships, in steps of at most 10,000 relationships. After an
    /// error, some relationships may be deleted; call it again.
    ///
    /// # Errors
    /// As [`delete_entity`](larder_kernel::GraphStore::delete_entity), with the outcome `Unknown` if an
    /// earlier step deleted relationships.
    pub async fn delete(
        &self,
        entity: impl TryInto<EntityId, Error: Into<Error>> + Send,
    ) -> Result<DeletedEntity> {
        let entity = id(entity)?;
        delete_in_steps(self.provider().as_ref(), &entity).await
    }
}

/// Deletes an entity with all its relationships, however many.
pub(crate) async fn delete_in_steps(store: &dyn GraphStore, entity: &EntityId) -> Result<DeletedEntity> {
    let mut total = store.delete_entity(entity).await?;
    while total.more {
        let next = store.delete_entity(entity).await;
        let next = next.map_err(|error| error.with_outcome(Outcome::Unknown))?;
        total = DeletedEntity::new(true, total.relationships + next.relationships).with_more(next.more);
    }
    Ok(total)
}
