//! Graph stores with a narrow defect.

use larder_agents::storage::InMemoryGraphStore;
use larder_kernel::{
    Entity, EntityWrite, ErrorKind, GraphCondition, GraphMode, GraphStore, GraphWritten, NeighborQuery, Page,
    PageRequest, Relationship, RelationshipId, RelationshipQuery, Result, Store, SubGraph, UpsertReport,
};

use super::super::filters::{metadata_with_numbers, with_numbers};
use super::{panicking, unavailable, with_floats};

macro_rules! wrong {
    ($self:ident $contract:ident as_cypher()) => {
        $self.inner.as_cypher()
    };
    ($self:ident $contract:ident upsert_entities($entities:ident)) => {
        $self.upsert_entities_wrongly($entities).await
    };
    ($self:ident $contract:ident write_entities($writes:ident)) => {
        $self.write_wrongly($writes).await
    };
    ($self:ident $contract:ident upsert_relationships($relationships:ident)) => {
        $self.upsert_relationships_wrongly($relationships).await
    };
    ($self:ident $contract:ident neighbors($entity:ident, $query:ident)) => {
        $self.neighbors_wrongly($entity, $query).await
    };
    ($self:ident $contract:ident find_relationships($query:ident, $page:ident)) => {
        $self.find_relationships_wrongly($query, $page).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { Graph GraphStore over InMemoryGraphStore with with_graph, wrong;
    entity_properties_become_floats: EntityFloats => ["GRAPH-001"],
    relationship_properties_become_floats: RelationshipFloats => ["GRAPH-005"],
    a_merge_makes_floats: MergeFloats => ["GRAPH-001"],
    a_walk_returns_floats: WalkFloats => ["GRAPH-024"],
    a_walk_ignores_the_case_of_types: WalkFoldsTypes => ["GRAPH-023"],
    finding_relationships_takes_true_for_1: RelationshipsTakeTrueForOne => ["GRAPH-037"],
    a_merge_ignores_the_revision: MergeIgnoresRevision => ["GRAPH-047"],
    a_write_at_revision_0_creates: ZeroCreates => ["GRAPH-047"],
    a_lost_write_is_unavailable: WriteUnavailable => ["GRAPH-046", "GRAPH-047"],
    a_lost_creation_panics: CreationPanics => ["GRAPH-050"],
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryGraphStore,
    defect: Defect,
}

impl Wrong {
    fn new(inner: InMemoryGraphStore, defect: Defect) -> Self {
        Self { inner, defect }
    }

    async fn upsert_entities_wrongly(&self, mut entities: Vec<Entity>) -> Result<UpsertReport> {
        if self.defect == Defect::EntityFloats {
            entities.iter_mut().for_each(|entity| entity.properties = with_floats(&entity.properties));
        }
        self.inner.upsert_entities(entities).await
    }

    async fn write_wrongly(&self, mut writes: Vec<EntityWrite>) -> Result<Vec<GraphWritten>> {
        for write in &mut writes {
            match (self.defect, write.condition, write.mode) {
                (Defect::MergeFloats, _, GraphMode::Merge) => {
                    write.entity.properties = with_floats(&write.entity.properties);
                }
                (Defect::MergeIgnoresRevision, GraphCondition::AtRevision(_), GraphMode::Merge) => {
                    write.condition = GraphCondition::None;
                }
                (Defect::ZeroCreates, GraphCondition::AtRevision(at), _) if at.get() == 0 => {
                    write.condition = GraphCondition::Absent;
                }
                _ => {}
            }
        }
        let creates = writes.iter().all(|write| write.condition == GraphCondition::Absent);
        let written = self.inner.write_entities(writes).await;
        match self.defect {
            Defect::WriteUnavailable => unavailable(written, ErrorKind::Conflict),
            Defect::CreationPanics if creates => panicking(written, ErrorKind::Conflict),
            _ => written,
        }
    }

    async fn upsert_relationships_wrongly(
        &self,
        mut relationships: Vec<Relationship>,
    ) -> Result<UpsertReport> {
        if self.defect == Defect::RelationshipFloats {
            relationships.iter_mut().for_each(|one| one.properties = with_floats(&one.properties));
        }
        self.inner.upsert_relationships(relationships).await
    }

    async fn neighbors_wrongly(
        &self,
        entity: &larder_kernel::EntityId,
        query: &NeighborQuery,
    ) -> Result<SubGraph> {
        let mut asked = query.clone();
        if self.defect == Defect::WalkFoldsTypes && !query.relationship_types.is_empty() {
            let all = RelationshipQuery::default();
            let all = self.inner.find_relationships(&all, PageRequest::default()).await?;
            let folded: Vec<String> =
                query.relationship_types.iter().map(|kind| kind.as_str().to_lowercase()).collect();
            let kinds = all.items.into_iter().map(|one| one.relationship_type);
            let alike = kinds.filter(|kind| folded.contains(&kind.as_str().to_lowercase()));
            asked.relationship_types.extend(alike);
            asked.relationship_types.sort_unstable();
            asked.relationship_types.dedup();
        }
        let mut reached = self.inner.neighbors(entity, &asked).await?;
        if self.defect == Defect::WalkFloats {
            reached.relationships.iter_mut().for_each(|one| one.properties = with_floats(&one.properties));
        }
        Ok(reached)
    }

    async fn find_relationships_wrongly(
        &self,
        query: &RelationshipQuery,
        page: PageRequest<RelationshipId>,
    ) -> Result<Page<Relationship, RelationshipId>> {
        let (Defect::RelationshipsTakeTrueForOne, Some(filter)) = (self.defect, &query.filter) else {
            return self.inner.find_relationships(query, page).await;
        };
        let (unfiltered, filter) = (query.clone().with_filter(None), with_numbers(filter));
        let mut found =
            self.inner.find_relationships(&unfiltered, page.clone().with_limit(10_000)).await?.items;
        found.retain(|one| filter.matches(&metadata_with_numbers(&one.properties)));
        found.truncate(page.limit.saturating_add(1));
        Ok(Page::from_surplus(found, page.limit, |one| one.id.clone()))
    }

    async fn erase_wrongly(&self) -> Result<()> {
        self.inner.erase().await
    }
}
