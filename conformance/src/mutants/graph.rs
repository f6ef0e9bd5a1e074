//! Graph stores that are wrong.

mod edges;
mod writes;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use larder_agents::storage::InMemoryGraphStore;
use larder_kernel::check::size;
use larder_kernel::{
    Capabilities, Capability, CypherCapable, DeletedEntity, Direction, Entity, EntityId, EntityQuery,
    EntityType, EntityWrite, Error, ErrorKind, GraphCounts, GraphStore, GraphWritten, Metadata, Namespace,
    NeighborQuery, Page, PageRequest, Relationship, RelationshipId, RelationshipQuery, RelationshipWrite,
    Result, Revision, Store, StoredEntity, StoredRelationship, SubGraph, UpsertReport,
};

use super::filters::{metadata_with_numbers, with_numbers};
use super::serve::{SharedState, lock, serve};
use crate::harness::{Harness, StoreSet};

defects! { Graph;
    a_missing_end_is_made_up: EndsMadeUp => ["GRAPH-006"],
    a_limit_cuts_entities_and_leaves_their_relationships: EdgeWithoutEnd => ["GRAPH-025"],
    deleting_an_entity_leaves_its_relationships: RelationshipsLeft => ["GRAPH-031"],
    an_entity_keeps_its_old_properties: PropertiesMerged => ["GRAPH-002"],
    replacing_an_entity_drops_its_relationships: ReplacingDropsRelationships => ["GRAPH-002"],
    parallel_relationships_are_merged: ParallelMerged => ["GRAPH-009"],
    loops_are_refused: LoopsDropped => ["GRAPH-008"],
    a_walk_ignores_the_direction: DirectionIgnored => ["GRAPH-029"],
    a_walk_goes_out_only_unless_asked: BothMeansOut => ["GRAPH-020"],
    relationships_are_written_one_by_one: BatchInPart => ["GRAPH-006"],
    a_walk_goes_one_hop_too_far: OneHopTooFar => ["GRAPH-021", "GRAPH-022"],
    limit_0_returns_the_start: LimitZeroReturnsStart => ["GRAPH-030"],
    missing_entities_leave_no_gap: GapsClosed => ["GRAPH-011"],
    the_last_item_of_a_page_is_skipped: PageSkipsOne => ["GRAPH-036"],
    deleting_counts_no_relationships: DeletionCountsNothing => ["GRAPH-031"],
    the_counts_only_grow: CountsOnlyGrow => ["GRAPH-039"],
    a_walk_ignores_the_types: TypesIgnored => ["GRAPH-023"],
    finding_entities_ignores_the_filter: FilterIgnored => ["GRAPH-035"],
    finding_relationships_ignores_the_target: TargetIgnored => ["GRAPH-037"],
    a_relationship_without_an_end_is_kept: DanglingKept => ["GRAPH-006"],
    entities_are_written_one_by_one: EntitiesInPart => ["GRAPH-004"],
    true_equals_1_in_filters: TrueEqualsOne => ["GRAPH-035"],
    the_limit_is_applied_before_the_filter: LimitBeforeFilter => ["GRAPH-036"],
    a_relationship_keeps_its_first_ends: EndsKept => ["GRAPH-007"],
    deleting_an_entity_takes_its_neighbors: NeighborsDeleted => ["GRAPH-032"],
    a_revision_counts_creations_only: RevisionStays => ["GRAPH-045", "GRAPH-050"],
    creating_an_entity_overwrites_it: CreatingOverwrites => ["GRAPH-046"],
    a_write_ignores_the_revision: RevisionIgnored => ["GRAPH-047"],
    a_merge_replaces_all_properties: MergeReplaces => ["GRAPH-048"],
    a_merge_reaches_into_nested_objects: MergeNests => ["GRAPH-048"],
    a_failed_condition_skips_its_write_alone: ConditionSkips => ["GRAPH-049"],
    a_condition_is_checked_before_the_write: ConditionChecked => ["GRAPH-050"],
    a_merge_reads_before_it_writes: MergeReads => ["GRAPH-051"],
    a_merge_ignores_the_limit: MergeUnlimited => ["GRAPH-052"],
    missing_stored_entities_leave_no_gap: StoredGapsClosed => ["GRAPH-053"],
    revisions_start_again_after_a_deletion: RevisionsRestart => ["GRAPH-054"],
    a_relationship_raises_the_revision_of_its_source: RelationshipRaises => ["GRAPH-055"],
    a_relationship_keeps_its_first_revision: EdgeRevisionStays => ["GRAPH-056", "GRAPH-065"],
    creating_a_relationship_overwrites_it: EdgeCreatingOverwrites => ["GRAPH-057"],
    a_write_of_a_relationship_ignores_the_revision: EdgeRevisionIgnored => ["GRAPH-058"],
    a_merge_replaces_all_properties_of_a_relationship: EdgeMergeReplaces => ["GRAPH-059"],
    a_merge_keeps_the_ends_of_a_relationship: EdgeMergeKeepsEnds => ["GRAPH-059"],
    a_failed_write_skips_its_relationship_alone: EdgeConditionSkips => ["GRAPH-060"],
    a_condition_of_a_relationship_is_checked_before_the_write: EdgeConditionChecked => ["GRAPH-061"],
    a_merge_reads_a_relationship_before_it_writes: EdgeMergeReads => ["GRAPH-062"],
    a_merge_of_a_relationship_ignores_the_limit: EdgeMergeUnlimited => ["GRAPH-063"],
    missing_stored_relationships_leave_no_gap: EdgeStoredGapsClosed => ["GRAPH-064"],
    cypher_is_declared_but_missing: CypherMissing => ["GRAPH-040"],
    cypher_is_there_but_undeclared: CypherUndeclared => ["GRAPH-040"],
}

#[derive(Default)]
struct Memory {
    /// Relationships whose ends were deleted.
    left: Mutex<BTreeMap<(Namespace, RelationshipId), Relationship>>,
    /// The revisions that a store derives from its own count, and not from the inner store.
    revisions: Mutex<BTreeMap<(Namespace, EntityId), u64>>,
    /// The first revisions of relationships.
    edges: Mutex<BTreeMap<(Namespace, RelationshipId), Revision>>,
    /// The largest counts so far.
    most: Mutex<BTreeMap<Namespace, GraphCounts>>,
}

fn backend(defect: Defect) -> Arc<dyn Harness> {
    let memory = Arc::new(Memory::default());
    serve(defect.opening(), move |shared, namespace, _| {
        let inner = InMemoryGraphStore::open(&shared.place, namespace);
        let wrong = Wrong { inner, defect, shared, memory: Arc::clone(&memory) };
        StoreSet::default().with_graph(Arc::new(wrong))
    })
}

struct Wrong {
    inner: InMemoryGraphStore,
    defect: Defect,
    shared: SharedState,
    memory: Arc<Memory>,
}

forward_store!(Wrong, InMemoryGraphStore, |store: &Wrong, declared: Capabilities| match store.defect {
    Defect::CypherMissing => declared.with(Capability::Cypher),
    _ => declared,
});

impl Wrong {
    async fn holds_nothing(&self) -> Result<bool> {
        Ok(self.inner.count().await? == GraphCounts::default())
    }

    fn id(&self, id: &EntityId) -> Result<EntityId> {
        EntityId::new(self.kept(id.as_str()))
    }

    /// Keeps relationships whose ends do not exist.
    fn keep_dangling(&self, relationships: Vec<Relationship>) -> UpsertReport {
        let mut left = lock(&self.memory.left);
        let created = size(relationships.len());
        for one in relationships {
            left.insert((self.inner.namespace().clone(), one.id.clone()), one);
        }
        UpsertReport::new(created, 0)
    }

    /// Keeps the previous ends of existing relationships.
    async fn keep_ends(&self, relationships: &mut [Relationship]) -> Result<()> {
        for one in relationships {
            let there = self.inner.get_relationships(std::slice::from_ref(&one.id)).await?.pop().flatten();
            if let Some(old) = there {
                (one.source, one.target) = (old.source, old.target);
            }
        }
        Ok(())
    }

    async fn found(&self, query: RelationshipQuery) -> Result<Vec<Relationship>> {
        Ok(self.inner.find_relationships(&query, PageRequest::default()).await?.items)
    }

    /// Returns the relationships that touch an entity; a loop is listed twice.
    async fn touching(&self, id: &EntityId) -> Result<Vec<Relationship>> {
        let out = RelationshipQuery::default().with_source(id.clone());
        let into = RelationshipQuery::default().with_target(id.clone());
        let mut all = self.found(out).await?;
        all.extend(self.found(into).await?);
        Ok(all)
    }

    async fn make_ends(&self, relationships: &[Relationship]) -> Result<()> {
        for end in relationships.iter().flat_map(|one| [&one.source, &one.target]) {
            if self.inner.get_entities(std::slice::from_ref(end)).await?[0].is_none() {
                let made = Entity::new(end.clone(), EntityType::new("made up")?);
                self.inner.upsert_entities(vec![made]).await?;
            }
        }
        Ok(())
    }

    /// Removes relationships between the same ends with the same type.
    async fn merge_parallel(&self, relationships: &[Relationship]) -> Result<()> {
        for one in relationships {
            let same = RelationshipQuery::default()
                .with_type(one.relationship_type.clone())
                .with_source(one.source.clone())
                .with_target(one.target.clone());
            for other in self.found(same).await?.into_iter().filter(|other| other.id != one.id) {
                self.inner.delete_relationship(&other.id).await?;
            }
        }
        Ok(())
    }
}

#[async_trait]
impl GraphStore for Wrong {
    async fn upsert_entities(&self, mut entities: Vec<Entity>) -> Result<UpsertReport> {
        for entity in &mut entities {
            entity.id = self.id(&entity.id)?;
            match self.defect {
                Defect::PropertiesMerged => {
                    let there = self.inner.get_entities(std::slice::from_ref(&entity.id)).await?.remove(0);
                    for (name, value) in there.into_iter().flat_map(|old| old.properties.into_map()) {
                        if entity.properties.get(&name).is_none() {
                            entity.properties.insert(name, value);
                        }
                    }
                }
                Defect::ReplacingDropsRelationships => {
                    for one in self.touching(&entity.id).await? {
                        self.inner.delete_relationship(&one.id).await?;
                    }
                }
                _ => {}
            }
        }
        let one_by_one = matches!(
            self.defect,
            Defect::EntitiesInPart | Defect::WrittenInPart | Defect::RefusalLeavesTrace
        );
        if one_by_one && !entities.is_empty() {
            let mut whole = UpsertReport::default();
            for entity in entities {
                let report = self.inner.upsert_entities(vec![entity]).await?;
                whole.created += report.created;
                whole.replaced += report.replaced;
                tokio::task::yield_now().await;
            }
            return Ok(whole);
        }
        self.count_upserts(&entities);
        self.inner.upsert_entities(entities).await
    }

    async fn write_entities(&self, mut writes: Vec<EntityWrite>) -> Result<Vec<GraphWritten>> {
        for write in &mut writes {
            write.entity.id = self.id(&write.entity.id)?;
        }
        self.write_wrongly(writes).await
    }

    async fn get_stored_entities(&self, ids: &[EntityId]) -> Result<Vec<Option<StoredEntity>>> {
        let ids = ids.iter().map(|id| self.id(id)).collect::<Result<Vec<_>>>()?;
        self.stored_wrongly(&ids).await
    }

    async fn upsert_relationships(&self, mut relationships: Vec<Relationship>) -> Result<UpsertReport> {
        for one in &mut relationships {
            (one.source, one.target) = (self.id(&one.source)?, self.id(&one.target)?);
        }
        match self.defect {
            Defect::EndsMadeUp => self.make_ends(&relationships).await?,
            Defect::EndsKept => self.keep_ends(&mut relationships).await?,
            Defect::LoopsDropped => relationships.retain(|one| one.source != one.target),
            _ => {}
        }
        if self.defect == Defect::LoopsDropped && relationships.is_empty() {
            return Ok(UpsertReport::new(1, 0));
        }
        if self.defect == Defect::BatchInPart && !relationships.is_empty() {
            let mut whole = UpsertReport::default();
            for one in relationships {
                let report = self.inner.upsert_relationships(vec![one]).await?;
                whole.created += report.created;
                whole.replaced += report.replaced;
            }
            return Ok(whole);
        }
        let named = relationships.first().map_or_else(String::new, |one| one.source.to_string());
        let report = match self.inner.upsert_relationships(relationships.clone()).await {
            Err(error) if self.defect == Defect::DanglingKept && error.kind() == ErrorKind::NotFound => {
                return Ok(self.keep_dangling(relationships));
            }
            answer => self.quoting(answer, &named)?,
        };
        if self.defect == Defect::RelationshipRaises {
            for one in &relationships {
                let source = self.inner.get_entities(std::slice::from_ref(&one.source)).await?;
                self.inner.upsert_entities(source.into_iter().flatten().collect()).await?;
            }
        }
        if self.defect == Defect::ParallelMerged {
            self.merge_parallel(&relationships).await?;
        }
        Ok(report)
    }

    async fn write_relationships(&self, mut writes: Vec<RelationshipWrite>) -> Result<Vec<GraphWritten>> {
        for RelationshipWrite { relationship, .. } in &mut writes {
            relationship.source = self.id(&relationship.source)?;
            relationship.target = self.id(&relationship.target)?;
        }
        self.write_edges_wrongly(writes).await
    }

    async fn get_stored_relationships(
        &self,
        ids: &[RelationshipId],
    ) -> Result<Vec<Option<StoredRelationship>>> {
        self.stored_edges_wrongly(ids).await
    }

    async fn get_entities(&self, ids: &[EntityId]) -> Result<Vec<Option<Entity>>> {
        let ids = ids.iter().map(|id| self.id(id)).collect::<Result<Vec<_>>>()?;
        let mut found = self.inner.get_entities(&ids).await?;
        if self.defect == Defect::GapsClosed {
            found.retain(Option::is_some);
        }
        Ok(found)
    }

    async fn get_relationships(&self, ids: &[RelationshipId]) -> Result<Vec<Option<Relationship>>> {
        let mut found = self.inner.get_relationships(ids).await?;
        let left = lock(&self.memory.left);
        for (id, place) in ids.iter().zip(&mut found).filter(|(_, place)| place.is_none()) {
            *place = left.get(&(self.inner.namespace().clone(), id.clone())).cloned();
        }
        Ok(found)
    }

    async fn neighbors(&self, entity: &EntityId, query: &NeighborQuery) -> Result<SubGraph> {
        let entity = self.id(entity)?;
        let mut asked = query.clone();
        match self.defect {
            Defect::DirectionIgnored => asked.direction = Direction::Both,
            Defect::BothMeansOut if query.direction == Direction::Both => asked.direction = Direction::Out,
            Defect::TypesIgnored => asked.relationship_types.clear(),
            Defect::OneHopTooFar if query.depth < 32 => asked.depth += 1,
            Defect::LimitZeroReturnsStart => asked.limit = query.limit.max(1),
            Defect::EdgeWithoutEnd if query.limit < 10_000 => asked.limit = 10_000,
            _ => {}
        }
        let mut reached = self.inner.neighbors(&entity, &asked).await?;
        reached.entities.truncate(query.limit.max(usize::from(self.defect == Defect::LimitZeroReturnsStart)));
        Ok(reached)
    }

    async fn delete_entity(&self, entity: &EntityId) -> Result<DeletedEntity> {
        let entity = self.id(entity)?;
        if self.defect == Defect::RelationshipsLeft {
            let touching = self.touching(&entity).await?;
            let mut left = lock(&self.memory.left);
            for one in touching {
                left.insert((self.inner.namespace().clone(), one.id.clone()), one);
            }
        }
        if self.defect == Defect::NeighborsDeleted {
            for one in self.touching(&entity).await? {
                let other = if one.source == entity { one.target } else { one.source };
                if other != entity {
                    let _ = self.inner.delete_entity(&other).await?;
                }
            }
        }
        let mut deleted = self.inner.delete_entity(&entity).await?;
        if self.defect == Defect::DeletionCountsNothing {
            deleted.relationships = 0;
        }
        Ok(deleted)
    }

    async fn delete_relationship(&self, relationship: &RelationshipId) -> Result<bool> {
        self.inner.delete_relationship(relationship).await
    }

    async fn find_entities(
        &self,
        query: &EntityQuery,
        page: PageRequest<EntityId>,
    ) -> Result<Page<Entity, EntityId>> {
        let mut query = query.clone();
        if self.defect == Defect::FilterIgnored {
            query.filter = None;
        }
        if let (Defect::TrueEqualsOne, Some(filter)) = (self.defect, &query.filter) {
            let filter = with_numbers(filter);
            let all = query.clone().with_filter(None);
            let mut all = self.inner.find_entities(&all, page.clone().with_limit(10_000)).await?;
            all.items.retain(|entity| filter.matches(&metadata_with_numbers(&entity.properties)));
            all.items.truncate(page.limit.saturating_add(1));
            return Ok(Page::from_surplus(all.items, page.limit, |entity| entity.id.clone()));
        }
        if let (Defect::LimitBeforeFilter, Some(filter)) = (self.defect, &query.filter) {
            let all = query.clone().with_filter(None);
            let mut found = self.inner.find_entities(&all, page).await?;
            found.items.retain(|entity| filter.matches(&entity.properties));
            found.next = found.items.last().map(|entity| entity.id.clone());
            return Ok(found);
        }
        let query = &query;
        let mut found = self.inner.find_entities(query, page.clone()).await?;
        if self.defect == Defect::PageSkipsOne && found.next.is_some() {
            let following =
                self.inner.find_entities(query, PageRequest::first(1).with_after(found.next.clone()));
            found.next = following.await?.items.pop().map(|entity| entity.id);
        }
        Ok(found)
    }

    async fn find_relationships(
        &self,
        query: &RelationshipQuery,
        page: PageRequest<RelationshipId>,
    ) -> Result<Page<Relationship, RelationshipId>> {
        let mut query = query.clone();
        if self.defect == Defect::TargetIgnored {
            query.target = None;
        }
        self.inner.find_relationships(&query, page).await
    }

    async fn count(&self) -> Result<GraphCounts> {
        let now = self.inner.count().await?;
        if self.defect != Defect::CountsOnlyGrow {
            return Ok(now);
        }
        let mut most = lock(&self.memory.most);
        let most = most.entry(self.inner.namespace().clone()).or_default();
        most.entities = most.entities.max(now.entities);
        most.relationships = most.relationships.max(now.relationships);
        Ok(*most)
    }

    fn as_cypher(&self) -> Option<&dyn CypherCapable> {
        (self.defect == Defect::CypherUndeclared).then_some(self)
    }
}

#[async_trait]
impl CypherCapable for Wrong {
    async fn cypher(&self, _: &str, _: Metadata) -> Result<Vec<Metadata>> {
        Err(Error::unsupported("graph.cypher", Capability::Cypher))
    }
}
