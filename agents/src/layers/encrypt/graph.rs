//! Entities and relationships with encrypted properties.

mod relationships;

use async_trait::async_trait;
use larder_kernel::limits::{METADATA_BYTES_MAX, PAGE_ITEMS_MAX};
use larder_kernel::storage::graph::{
    check_entities, check_entity_query, check_entity_writes, check_relationship_query,
    check_relationship_writes, check_relationships,
};
use larder_kernel::{
    Capabilities, Capability, CypherCapable, DeletedEntity, Entity, EntityId, EntityQuery, EntityWrite,
    ErrorKind, GraphCondition, GraphCounts, GraphMode, GraphStore, GraphWritten, Metadata, Namespace,
    NeighborQuery, Page, PageRequest, Reached, Relationship, RelationshipId, RelationshipQuery,
    RelationshipWrite, Result, Revision, Store, StoredEntity, StoredRelationship, SubGraph, UpsertReport,
};

use super::ring::{Place, corrupt};
use super::{Sealed, shared};

shared!(
    GraphStore,
    [
        EntityCondition,
        EntityMode,
        RelationshipCondition,
        RelationshipMode,
        NeighborsDirection,
        NeighborsTypes,
        EntitiesType,
        EntitiesFilter,
        RelationshipsType,
        RelationshipsSource,
        RelationshipsTarget,
        RelationshipsFilter
    ],
    Cypher
);

/// The only property that the inner store receives.
const SEALED: &str = "sealed";
/// The number of items to examine in one step, if this layer evaluates a filter.
const STEP: usize = 1_000;
/// The maximum number of attempts of a merge. Each failed attempt means that another write succeeded.
const MERGES_MAX: u32 = 100;

impl Sealed<dyn GraphStore> {
    fn entity_place(&self, entity: &Entity) -> Place {
        let place = Place::new("graph", self.namespace().as_str()).at("entity");
        place.at(entity.id.as_str()).at(entity.entity_type.as_str())
    }

    fn relationship_place(&self, relationship: &Relationship) -> Place {
        let place = Place::new("graph", self.namespace().as_str()).at("relationship");
        place
            .at(relationship.id.as_str())
            .at(relationship.relationship_type.as_str())
            .at(relationship.source.as_str())
            .at(relationship.target.as_str())
    }

    fn seal(&self, operation: &'static str, place: &Place, properties: &Metadata) -> Result<Metadata> {
        let room = METADATA_BYTES_MAX - SEALED.len();
        Ok(Metadata::new().with(SEALED, self.ring.seal_text(operation, place, properties, room)?))
    }

    fn open(&self, operation: &'static str, place: &Place, properties: &Metadata) -> Result<Metadata> {
        let sealed = properties.get(SEALED).and_then(|value| value.as_str());
        self.ring.open_text(operation, place, sealed.ok_or_else(|| corrupt(operation))?)
    }

    fn seal_writes(&self, operation: &'static str, writes: Vec<EntityWrite>) -> Result<Vec<EntityWrite>> {
        let seal = |mut write: EntityWrite| {
            let place = self.entity_place(&write.entity);
            write.entity.properties = self.seal(operation, &place, &write.entity.properties)?;
            Ok(write)
        };
        writes.into_iter().map(seal).collect()
    }

    fn open_entity(&self, operation: &'static str, entity: Entity) -> Result<Entity> {
        let properties = self.open(operation, &self.entity_place(&entity), &entity.properties)?;
        Ok(entity.with_properties(properties))
    }

    fn open_relationship(&self, operation: &'static str, relationship: Relationship) -> Result<Relationship> {
        let place = self.relationship_place(&relationship);
        let properties = self.open(operation, &place, &relationship.properties)?;
        Ok(relationship.with_properties(properties))
    }
}

/// Returns the write of the merged entity, which fails if the stored entity has changed in between.
fn merged(write: &EntityWrite, stored: Option<&StoredEntity>) -> Result<EntityWrite> {
    let entity = write.apply(stored.map(|stored| (stored.revision, &stored.entity.properties)))?;
    let condition = unchanged(write.mode, write.condition, stored.map(|stored| stored.revision));
    Ok(EntityWrite::replace(entity).with_condition(condition))
}

/// Returns the condition of a write that this layer has merged: what it read is unchanged.
fn unchanged(mode: GraphMode, condition: GraphCondition, stored: Option<Revision>) -> GraphCondition {
    match (mode, stored) {
        (GraphMode::Merge, Some(stored)) => GraphCondition::AtRevision(stored),
        (GraphMode::Merge, None) => GraphCondition::Absent,
        _ => condition,
    }
}

/// Evaluates a filter on properties in this layer. Examines the results of the inner store without the
/// filter, step by step, until the page is full.
macro_rules! filtered {
    ($store:ident, $find:ident, $open:ident, $operation:expr, $query:ident, $page:ident) => {{
        let Some(filter) = &$query.filter else {
            let Page { items, next, .. } = $store.inner.$find($query, $page).await?;
            let open = |item| $store.$open($operation, item);
            return Ok(Page::new(items.into_iter().map(open).collect::<Result<_>>()?, next));
        };
        let mut behind = $query.clone();
        behind.filter = None;
        let (limit, mut after, mut found) = ($page.limit, $page.after, Vec::new());
        if limit == 0 {
            return Ok(Page::empty());
        }
        loop {
            let step = PageRequest::first(STEP.min(PAGE_ITEMS_MAX)).with_after(after);
            let Page { items, next, .. } = $store.inner.$find(&behind, step).await?;
            for item in items {
                let item = $store.$open($operation, item)?;
                if filter.matches(&item.properties) {
                    found.push(item);
                }
            }
            after = next;
            if after.is_none() || found.len() > limit {
                return Ok(Page::from_surplus(found, limit, |item| item.id.clone()));
            }
        }
    }};
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl GraphStore for Sealed<dyn GraphStore> {
    async fn upsert_entities(&self, entities: Vec<Entity>) -> Result<UpsertReport> {
        check_entities(&entities)?;
        let seal = |entity: Entity| {
            let properties =
                self.seal("graph.upsert_entities", &self.entity_place(&entity), &entity.properties)?;
            Ok(entity.with_properties(properties))
        };
        self.inner.upsert_entities(entities.into_iter().map(seal).collect::<Result<_>>()?).await
    }

    async fn write_entities(&self, writes: Vec<EntityWrite>) -> Result<Vec<GraphWritten>> {
        const OPERATION: &str = "graph.write_entities";
        check_entity_writes(&writes)?;
        // The inner store merges only what it can read, so this layer merges and writes at the revision.
        if writes.iter().all(|write| write.mode == GraphMode::Replace) {
            return self.inner.write_entities(self.seal_writes(OPERATION, writes)?).await;
        }
        let ids: Vec<_> = writes.iter().map(|write| write.entity.id.clone()).collect();
        let mut attempt = 1;
        loop {
            let stored = self.get_stored_entities(&ids).await?;
            let merged = writes.iter().zip(stored).map(|(write, stored)| merged(write, stored.as_ref()));
            let merged = self.seal_writes(OPERATION, merged.collect::<Result<_>>()?)?;
            match self.inner.write_entities(merged).await {
                Err(error) if error.kind() == ErrorKind::Conflict && attempt < MERGES_MAX => {
                    attempt += 1;
                    tokio::task::yield_now().await;
                }
                written => return written,
            }
        }
    }

    async fn upsert_relationships(&self, relationships: Vec<Relationship>) -> Result<UpsertReport> {
        check_relationships(&relationships)?;
        let seal = |relationship: Relationship| {
            let place = self.relationship_place(&relationship);
            let properties = self.seal("graph.upsert_relationships", &place, &relationship.properties)?;
            Ok(relationship.with_properties(properties))
        };
        self.inner.upsert_relationships(relationships.into_iter().map(seal).collect::<Result<_>>()?).await
    }

    async fn write_relationships(&self, writes: Vec<RelationshipWrite>) -> Result<Vec<GraphWritten>> {
        check_relationship_writes(&writes)?;
        self.write_sealed(writes).await
    }

    async fn get_entities(&self, ids: &[EntityId]) -> Result<Vec<Option<Entity>>> {
        let open = |entity| self.open_entity("graph.get_entities", entity);
        self.inner.get_entities(ids).await?.into_iter().map(|entity| entity.map(open).transpose()).collect()
    }

    async fn get_stored_entities(&self, ids: &[EntityId]) -> Result<Vec<Option<StoredEntity>>> {
        let open = |stored: StoredEntity| {
            let entity = self.open_entity("graph.get_stored_entities", stored.entity)?;
            Ok(StoredEntity::new(entity, stored.revision))
        };
        let stored = self.inner.get_stored_entities(ids).await?;
        stored.into_iter().map(|stored| stored.map(open).transpose()).collect()
    }

    async fn get_relationships(&self, ids: &[RelationshipId]) -> Result<Vec<Option<Relationship>>> {
        let open = |found| self.open_relationship("graph.get_relationships", found);
        self.inner
            .get_relationships(ids)
            .await?
            .into_iter()
            .map(|found| found.map(open).transpose())
            .collect()
    }

    async fn get_stored_relationships(
        &self,
        ids: &[RelationshipId],
    ) -> Result<Vec<Option<StoredRelationship>>> {
        let open = |stored: StoredRelationship| {
            let found = self.open_relationship("graph.get_stored_relationships", stored.relationship)?;
            Ok(StoredRelationship::new(found, stored.revision))
        };
        let stored = self.inner.get_stored_relationships(ids).await?;
        stored.into_iter().map(|stored| stored.map(open).transpose()).collect()
    }

    async fn neighbors(&self, entity: &EntityId, query: &NeighborQuery) -> Result<SubGraph> {
        const OPERATION: &str = "graph.neighbors";
        let SubGraph { entities, relationships, .. } = self.inner.neighbors(entity, query).await?;
        let reached =
            |Reached { entity, hops, .. }| Ok(Reached::new(self.open_entity(OPERATION, entity)?, hops));
        let open = |relationship| self.open_relationship(OPERATION, relationship);
        Ok(SubGraph::new(
            entities.into_iter().map(reached).collect::<Result<_>>()?,
            relationships.into_iter().map(open).collect::<Result<_>>()?,
        ))
    }

    async fn delete_entity(&self, entity: &EntityId) -> Result<DeletedEntity> {
        self.inner.delete_entity(entity).await
    }

    async fn delete_relationship(&self, relationship: &RelationshipId) -> Result<bool> {
        self.inner.delete_relationship(relationship).await
    }

    async fn find_entities(
        &self,
        query: &EntityQuery,
        page: PageRequest<EntityId>,
    ) -> Result<Page<Entity, EntityId>> {
        check_entity_query(query, &page)?;
        filtered!(self, find_entities, open_entity, "graph.find_entities", query, page)
    }

    async fn find_relationships(
        &self,
        query: &RelationshipQuery,
        page: PageRequest<RelationshipId>,
    ) -> Result<Page<Relationship, RelationshipId>> {
        check_relationship_query(query, &page)?;
        filtered!(self, find_relationships, open_relationship, "graph.find_relationships", query, page)
    }

    async fn count(&self) -> Result<GraphCounts> {
        self.inner.count().await
    }

    /// A query would read ciphertext.
    fn as_cypher(&self) -> Option<&dyn CypherCapable> {
        None
    }
}
