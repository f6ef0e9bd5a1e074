//! Graph stores that are wrong for many entities and relationships.

use larder_agents::storage::InMemoryGraphStore;
use larder_kernel::{
    DeletedEntity, Entity, EntityId, EntityQuery, GraphCounts, GraphStore, NeighborQuery, Page, PageRequest,
    Relationship, RelationshipId, RelationshipQuery, Result, Store, StoredEntity, StoredRelationship,
    SubGraph,
};

use super::{COUNT_MAX, ITEMS_MAX, ROWS_MAX, cut};

macro_rules! wrong {
    ($self:ident $contract:ident as_cypher()) => {
        $self.inner.as_cypher()
    };
    ($self:ident $contract:ident get_entities($ids:ident)) => {
        $self.get_entities_wrongly($ids).await
    };
    ($self:ident $contract:ident get_stored_entities($ids:ident)) => {
        $self.get_stored_entities_wrongly($ids).await
    };
    ($self:ident $contract:ident get_stored_relationships($ids:ident)) => {
        $self.get_stored_relationships_wrongly($ids).await
    };
    ($self:ident $contract:ident get_relationships($ids:ident)) => {
        $self.get_relationships_wrongly($ids).await
    };
    ($self:ident $contract:ident neighbors($entity:ident, $query:ident)) => {
        $self.neighbors_wrongly($entity, $query).await
    };
    ($self:ident $contract:ident delete_entity($entity:ident)) => {
        $self.delete_entity_wrongly($entity).await
    };
    ($self:ident $contract:ident find_entities($query:ident, $page:ident)) => {
        $self.find_entities_wrongly($query, $page).await
    };
    ($self:ident $contract:ident find_relationships($query:ident, $page:ident)) => {
        $self.find_relationships_wrongly($query, $page).await
    };
    ($self:ident $contract:ident count()) => {
        $self.count_wrongly().await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { Graph GraphStore over InMemoryGraphStore with with_graph, wrong;
    reading_ends_after_5000_entities: EntitiesGetCut => ["GRAPH-011"],
    reading_ends_after_5000_stored_entities: StoredGetCut => ["GRAPH-053"],
    reading_ends_after_5000_relationships: RelationshipsGetCut => ["GRAPH-012"],
    reading_ends_after_5000_stored_relationships: StoredRelationshipsGetCut => ["GRAPH-064"],
    a_walk_reaches_5000_entities: WalkCut => ["GRAPH-027"],
    a_walk_returns_10000_relationships: WalkRelationshipsCut => ["GRAPH-024"],
    a_deletion_counts_5000_relationships: DeletionCut => ["GRAPH-031"],
    a_hub_is_deleted_in_one_call: DeletionUnlimited => ["GRAPH-066"],
    a_hub_is_deleted_without_its_last_relationships: DeletionLeavesRest => ["GRAPH-066"],
    a_page_ends_after_5000_entities: EntitiesCut => ["GRAPH-036"],
    a_filter_looks_at_10000_entities: FilterLooksAtFirst => ["GRAPH-035"],
    a_page_ends_after_5000_relationships: RelationshipsCut => ["GRAPH-009", "GRAPH-038"],
    a_count_ends_at_10000: CountCut => ["GRAPH-039"],
    an_erasure_takes_10000_entities: EraseCut => ["STORE-006"],
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryGraphStore,
    defect: Defect,
}

/// Forgets what is behind the rows that the database returns.
fn lose<T>(mut found: Vec<Option<T>>) -> Vec<Option<T>> {
    found.iter_mut().skip(ROWS_MAX).for_each(|one| *one = None);
    found
}

impl Wrong {
    fn new(inner: InMemoryGraphStore, defect: Defect) -> Self {
        Self { inner, defect }
    }

    async fn get_entities_wrongly(&self, ids: &[EntityId]) -> Result<Vec<Option<Entity>>> {
        let found = self.inner.get_entities(ids).await?;
        Ok(if self.defect == Defect::EntitiesGetCut { lose(found) } else { found })
    }

    async fn get_stored_relationships_wrongly(
        &self,
        ids: &[RelationshipId],
    ) -> Result<Vec<Option<StoredRelationship>>> {
        let mut found = self.inner.get_stored_relationships(ids).await?;
        if self.defect == Defect::StoredRelationshipsGetCut {
            found.iter_mut().skip(ROWS_MAX).for_each(|found| *found = None);
        }
        Ok(found)
    }

    async fn get_stored_entities_wrongly(&self, ids: &[EntityId]) -> Result<Vec<Option<StoredEntity>>> {
        let found = self.inner.get_stored_entities(ids).await?;
        Ok(if self.defect == Defect::StoredGetCut { lose(found) } else { found })
    }

    async fn get_relationships_wrongly(&self, ids: &[RelationshipId]) -> Result<Vec<Option<Relationship>>> {
        let found = self.inner.get_relationships(ids).await?;
        Ok(if self.defect == Defect::RelationshipsGetCut { lose(found) } else { found })
    }

    async fn neighbors_wrongly(&self, entity: &EntityId, query: &NeighborQuery) -> Result<SubGraph> {
        let mut asked = query.clone();
        if self.defect == Defect::WalkCut && query.limit <= ITEMS_MAX {
            asked.limit = query.limit.min(ROWS_MAX);
        }
        let mut reached = self.inner.neighbors(entity, &asked).await?;
        if self.defect == Defect::WalkRelationshipsCut {
            reached.relationships.truncate(ITEMS_MAX);
        }
        Ok(reached)
    }

    async fn delete_entity_wrongly(&self, entity: &EntityId) -> Result<DeletedEntity> {
        let mut deleted = self.inner.delete_entity(entity).await?;
        match self.defect {
            Defect::DeletionCut => {
                deleted.relationships =
                    deleted.relationships.min(u64::try_from(ROWS_MAX).unwrap_or(u64::MAX));
            }
            Defect::DeletionUnlimited => {
                while deleted.more {
                    let next = self.inner.delete_entity(entity).await?;
                    let relationships = deleted.relationships + next.relationships;
                    deleted = DeletedEntity::new(true, relationships).with_more(next.more);
                }
            }
            Defect::DeletionLeavesRest => deleted.more = false,
            _ => {}
        }
        Ok(deleted)
    }

    async fn find_entities_wrongly(
        &self,
        query: &EntityQuery,
        page: PageRequest<EntityId>,
    ) -> Result<Page<Entity, EntityId>> {
        let mut found = self.inner.find_entities(query, page).await?;
        if self.defect == Defect::FilterLooksAtFirst && query.filter.is_some() {
            let all = EntityQuery::default();
            if let Some(end) = self.inner.find_entities(&all, PageRequest::first(ITEMS_MAX)).await?.next {
                found.items.retain(|entity| entity.id <= end);
            }
        }
        Ok(if self.defect == Defect::EntitiesCut { cut(found) } else { found })
    }

    async fn find_relationships_wrongly(
        &self,
        query: &RelationshipQuery,
        page: PageRequest<RelationshipId>,
    ) -> Result<Page<Relationship, RelationshipId>> {
        let found = self.inner.find_relationships(query, page).await?;
        Ok(if self.defect == Defect::RelationshipsCut { cut(found) } else { found })
    }

    async fn count_wrongly(&self) -> Result<GraphCounts> {
        let mut counts = self.inner.count().await?;
        if self.defect == Defect::CountCut {
            counts.entities = counts.entities.min(COUNT_MAX);
            counts.relationships = counts.relationships.min(COUNT_MAX);
        }
        Ok(counts)
    }

    async fn erase_wrongly(&self) -> Result<()> {
        let (all, mut left) = (EntityQuery::default(), Vec::new());
        if self.defect == Defect::EraseCut
            && let Some(end) = self.inner.find_entities(&all, PageRequest::first(ITEMS_MAX)).await?.next
        {
            left = self.inner.find_entities(&all, PageRequest::after(end, 1_000)).await?.items;
        }
        self.inner.erase().await?;
        if !left.is_empty() {
            self.inner.upsert_entities(left).await?;
        }
        Ok(())
    }
}
