//! Vector stores that are wrong.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use larder_agents::storage::InMemoryVectorStore;
use larder_kernel::{
    CollectionInfo, CollectionName, Document, DocumentId, Filter, Metadata, MetadataMode, MetadataReport,
    MetadataUpdate, Namespace, Page, PageRequest, PutMode, PutReport, Result, SearchHit, SearchRequest,
    VectorStore,
};

use super::filters::{metadata_with_numbers, with_numbers};
use super::serve::{SharedState, serve};
use crate::harness::{Harness, StoreSet};

mod metadata;

defects! { Vectors;
    the_limit_is_applied_before_the_filter: LimitBeforeFilter => ["VEC-024"],
    true_equals_1_in_filters: TrueEqualsOne => ["VEC-029"],
    replacing_keeps_old_metadata: MetadataMerged => ["VEC-003"],
    scores_are_dot_products: DotProducts => ["VEC-020", "VEC-021"],
    if_absent_overwrites: IfAbsentOverwrites => ["VEC-002"],
    a_batch_loses_its_last_document: LastOfBatchLost => ["VEC-001"],
    documents_are_written_one_by_one: BatchInPart => ["VEC-006", "VEC-008"],
    the_score_floor_excludes_itself: FloorExcludesItself => ["VEC-025"],
    ties_come_in_reverse: TiesReversed => ["VEC-022"],
    limit_0_returns_everything: LimitZeroReturnsAll => ["VEC-026"],
    a_search_returns_nine_of_ten: NineOfTen => ["VEC-023"],
    embeddings_read_back_normalised: EmbeddingsNormalised => ["VEC-001"],
    hits_carry_no_metadata: HitsWithoutMetadata => ["VEC-030"],
    deleting_counts_the_ids_asked: CountsIdsAsked => ["VEC-034"],
    the_dimension_is_freed_with_the_last_document: DimensionFreed => ["VEC-041"],
    missing_documents_leave_no_gap: GapsClosed => ["VEC-013"],
    dropping_a_collection_only_empties_it: DropOnlyEmpties => ["VEC-040", "VEC-041"],
    a_batch_of_searches_answers_in_reverse: BatchReversed => ["VEC-032"],
    the_count_ignores_its_filter: CountIgnoresFilter => ["VEC-037"],
    text_loses_what_is_not_ascii: TextAscii => ["VEC-001"],
    short_embeddings_are_not_found: ShortNotFound => ["VEC-020"],
    a_replaced_document_keeps_its_embedding: EmbeddingKept => ["VEC-003", "VEC-031"],
    deleting_what_matches_deletes_all: MatchingDeletesAll => ["VEC-036"],
    the_last_item_of_a_page_is_skipped: PageSkipsOne => ["VEC-038"],
    an_empty_collection_is_not_listed: EmptiedNotListed => ["VEC-039"],
    the_default_collection_is_not_listed: DefaultNotListed => ["VEC-039"],
    one_bad_request_of_a_batch_is_left_out: BadRequestLeftOut => ["VEC-033"],
    replacing_metadata_merges_it: ReplaceMerges => ["VEC-043"],
    merging_metadata_replaces_it: MergeReplaces => ["VEC-044"],
    an_update_of_metadata_normalises_embeddings: UpdateNormalises => ["VEC-043", "VEC-044"],
    an_update_of_metadata_reports_no_missing_document: UpdateReportsAll => ["VEC-045"],
    updates_of_metadata_are_applied_one_by_one: UpdatesInPart => ["VEC-046", "VEC-047"],
    a_merge_of_metadata_is_read_and_then_written: MergeReadsFirst => ["VEC-048"],
    filters_skip_updated_documents: UpdatedNotFound => ["VEC-049"],
    an_array_that_contains_any_contains_all: AnyIsAll => ["VEC-050"],
    a_value_contains_itself: ValueIsArray => ["VEC-050"],
    a_filtered_listing_carries_embeddings: MatchingEmbedded => ["VEC-051"],
    a_filtered_listing_lists_everything: MatchingListsAll => ["VEC-051"],
    a_filtered_page_counts_what_it_skips: MatchingPageShort => ["VEC-052"],
}

fn backend(defect: Defect) -> Arc<dyn Harness> {
    let updated = Arc::default();
    serve(defect.opening(), move |shared, namespace, options| {
        let mut inner = InMemoryVectorStore::open(&shared.place, namespace);
        if let Some(embedder) = &options.embedder {
            inner = inner.with_embedder(Arc::clone(embedder));
        }
        let wrong = Wrong { inner, defect, shared, updated: Arc::clone(&updated) };
        StoreSet::default().with_vectors(Arc::new(wrong))
    })
}

struct Wrong {
    inner: InMemoryVectorStore,
    defect: Defect,
    shared: SharedState,
    /// The documents whose metadata was updated.
    updated: Arc<Mutex<BTreeSet<(Namespace, DocumentId)>>>,
}

forward_store!(Wrong, InMemoryVectorStore);

fn length(values: &[f32]) -> f32 {
    values.iter().map(|value| value * value).sum::<f32>().sqrt()
}

impl Wrong {
    async fn holds_nothing(&self) -> Result<bool> {
        Ok(self.inner.list_collections(PageRequest::first(1)).await?.items.is_empty())
    }

    fn id(&self, id: &DocumentId) -> Result<DocumentId> {
        DocumentId::new(self.kept(id.as_str()))
    }

    /// Keeps the previous embeddings of existing documents.
    async fn keep_embeddings(&self, collection: &CollectionName, documents: &mut [Document]) -> Result<()> {
        for document in documents {
            let there = self.inner.get(collection, std::slice::from_ref(&document.id)).await?.pop().flatten();
            if let Some(old) = there {
                document.embedding = old.embedding;
            }
        }
        Ok(())
    }

    async fn put_one_by_one(
        &self,
        collection: &CollectionName,
        documents: Vec<Document>,
        mode: PutMode,
    ) -> Result<PutReport> {
        let mut whole = PutReport::default();
        for document in documents {
            let report = self.inner.put(collection, vec![document], mode).await?;
            whole.written.extend(report.written);
            whole.ignored.extend(report.ignored);
            tokio::task::yield_now().await;
        }
        Ok(whole)
    }

    /// Removes the hits whose embeddings are short.
    async fn drop_short(&self, collection: &CollectionName, hits: &mut Vec<SearchHit>) -> Result<()> {
        let ids: Vec<_> = hits.iter().map(|hit| hit.id.clone()).collect();
        let found = self.inner.get(collection, &ids).await?;
        let mut short = found.into_iter().map(|document| {
            let embedding = document.and_then(|document| document.embedding);
            embedding.is_some_and(|embedding| length(embedding.as_slice()) < 1e-3)
        });
        hits.retain(|_| !short.next().unwrap_or(false));
        Ok(())
    }

    async fn merge_metadata(&self, collection: &CollectionName, documents: &mut [Document]) -> Result<()> {
        for document in documents {
            let there = self.inner.get(collection, std::slice::from_ref(&document.id)).await?.remove(0);
            for (name, value) in there.into_iter().flat_map(|old| old.metadata.into_map()) {
                if document.metadata.get(&name).is_none() {
                    document.metadata.insert(name, value);
                }
            }
        }
        Ok(())
    }

    /// Returns the hits of a search without its filter, filtered afterwards.
    async fn filtered_late(
        &self,
        collection: &CollectionName,
        request: &SearchRequest,
        filter: &Filter,
    ) -> Result<Vec<SearchHit>> {
        let mut unfiltered = request.clone().with_filter(None);
        if self.defect == Defect::TrueEqualsOne {
            unfiltered.limit = 1_000;
            let filter = with_numbers(filter);
            let mut hits = self.inner.search(collection, &unfiltered).await?;
            hits.retain(|hit| filter.matches(&metadata_with_numbers(&hit.metadata)));
            hits.truncate(request.limit);
            return Ok(hits);
        }
        let mut hits = self.inner.search(collection, &unfiltered).await?;
        hits.retain(|hit| filter.matches(&hit.metadata));
        Ok(hits)
    }

    async fn unnormalise(
        &self,
        collection: &CollectionName,
        request: &SearchRequest,
        hits: &mut [SearchHit],
    ) -> Result<()> {
        for hit in &mut *hits {
            let found = self.inner.get(collection, std::slice::from_ref(&hit.id)).await?.remove(0);
            let stored = found.and_then(|document| document.embedding);
            hit.score *= length(request.embedding.as_slice());
            hit.score *= stored.map_or(1.0, |embedding| length(embedding.as_slice()));
        }
        hits.sort_by(|left, right| right.score.total_cmp(&left.score));
        Ok(())
    }
}

#[async_trait]
impl VectorStore for Wrong {
    async fn put(
        &self,
        collection: &CollectionName,
        mut documents: Vec<Document>,
        mut mode: PutMode,
    ) -> Result<PutReport> {
        for document in &mut documents {
            document.id = self.id(&document.id)?;
        }
        match self.defect {
            Defect::MetadataMerged if mode == PutMode::Upsert => {
                self.merge_metadata(collection, &mut documents).await?;
            }
            Defect::EmbeddingKept if mode == PutMode::Upsert => {
                self.keep_embeddings(collection, &mut documents).await?;
            }
            Defect::TextAscii => {
                documents.iter_mut().for_each(|document| document.content.retain(|letter| letter.is_ascii()));
            }
            Defect::IfAbsentOverwrites => mode = PutMode::Upsert,
            _ => {}
        }
        if self.defect == Defect::LastOfBatchLost && documents.len() > 1 {
            let lost = documents.pop().map(|document| document.id);
            let mut report = self.inner.put(collection, documents, mode).await?;
            report.written.extend(lost);
            return Ok(report);
        }
        let one_by_one =
            matches!(self.defect, Defect::BatchInPart | Defect::WrittenInPart | Defect::RefusalLeavesTrace);
        if one_by_one && !documents.is_empty() {
            return self.put_one_by_one(collection, documents, mode).await;
        }
        self.quoting(self.inner.put(collection, documents, mode).await, collection.as_str())
    }

    async fn update_metadata(
        &self,
        collection: &CollectionName,
        mut updates: Vec<MetadataUpdate>,
        mode: MetadataMode,
    ) -> Result<MetadataReport> {
        for update in &mut updates {
            update.id = self.id(&update.id)?;
        }
        self.update_wrongly(collection, updates, mode).await
    }

    async fn get(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<Vec<Option<Document>>> {
        let ids = ids.iter().map(|id| self.id(id)).collect::<Result<Vec<_>>>()?;
        let mut found = self.inner.get(collection, &ids).await?;
        match self.defect {
            Defect::GapsClosed => found.retain(Option::is_some),
            Defect::EmbeddingsNormalised => {
                for embedding in found.iter_mut().flatten().filter_map(|document| document.embedding.as_mut())
                {
                    let length = length(embedding.as_slice());
                    let unit: Vec<_> = embedding.as_slice().iter().map(|value| value / length).collect();
                    *embedding = larder_kernel::Embedding::new(unit)?;
                }
            }
            _ => {}
        }
        Ok(found)
    }

    async fn search(&self, collection: &CollectionName, request: &SearchRequest) -> Result<Vec<SearchHit>> {
        if let (Defect::LimitBeforeFilter | Defect::TrueEqualsOne, Some(filter)) =
            (self.defect, &request.filter)
        {
            return self.filtered_late(collection, request, filter).await;
        }
        let mut asked = request.clone();
        if self.defect == Defect::LimitZeroReturnsAll && asked.limit == 0 {
            asked.limit = 1_000;
        }
        asked.filter = asked.filter.as_ref().map(|filter| self.filter(filter));
        let mut hits = self.inner.search(collection, &asked).await?;
        match self.defect {
            Defect::ShortNotFound => self.drop_short(collection, &mut hits).await?,
            Defect::DotProducts => self.unnormalise(collection, request, &mut hits).await?,
            Defect::FloorExcludesItself => {
                hits.retain(|hit| request.score_min.is_none_or(|least| hit.score > least));
            }
            Defect::TiesReversed => hits.sort_by(|left, right| {
                right.score.total_cmp(&left.score).then_with(|| right.id.cmp(&left.id))
            }),
            Defect::NineOfTen => hits.truncate(hits.len().div_ceil(10) * 9),
            Defect::UpdatedNotFound if request.filter.is_some() => self.drop_updated(&mut hits),
            Defect::HitsWithoutMetadata => hits.iter_mut().for_each(|hit| hit.metadata = Metadata::new()),
            _ => {}
        }
        Ok(hits)
    }

    async fn search_batch(
        &self,
        collection: &CollectionName,
        requests: &[SearchRequest],
    ) -> Result<Vec<Vec<SearchHit>>> {
        if self.defect == Defect::BadRequestLeftOut {
            let mut answers = Vec::new();
            for request in requests {
                answers.push(self.inner.search(collection, request).await.unwrap_or_default());
            }
            return Ok(answers);
        }
        let mut requests = requests.to_vec();
        for request in &mut requests {
            request.filter = request.filter.as_ref().map(|filter| self.filter(filter));
        }
        let mut answers = self.inner.search_batch(collection, &requests).await?;
        if self.defect == Defect::BatchReversed {
            answers.reverse();
        }
        Ok(answers)
    }

    async fn delete(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<u64> {
        let asked = ids.iter().map(|id| self.id(id)).collect::<Result<Vec<_>>>()?;
        let deleted = self.inner.delete(collection, &asked).await?;
        if self.defect == Defect::DimensionFreed && self.inner.count(collection, None).await? == 0 {
            self.inner.drop_collection(collection).await?;
        }
        Ok(if self.defect == Defect::CountsIdsAsked { ids.len() as u64 } else { deleted })
    }

    async fn delete_matching(&self, collection: &CollectionName, filter: &Filter) -> Result<u64> {
        let all = Filter::And(Vec::new());
        let filter = if self.defect == Defect::MatchingDeletesAll { &all } else { filter };
        self.inner.delete_matching(collection, filter).await
    }

    async fn count(&self, collection: &CollectionName, filter: Option<&Filter>) -> Result<u64> {
        let filter = if self.defect == Defect::CountIgnoresFilter { None } else { filter };
        self.inner.count(collection, filter).await
    }

    async fn list(
        &self,
        collection: &CollectionName,
        page: PageRequest<DocumentId>,
    ) -> Result<Page<Document, DocumentId>> {
        let mut listed = self.inner.list(collection, page).await?;
        if self.defect == Defect::PageSkipsOne && listed.next.is_some() {
            let following =
                self.inner.list(collection, PageRequest::first(1).with_after(listed.next.take())).await?;
            listed.next = following.items.into_iter().next().map(|document| document.id);
        }
        Ok(listed)
    }

    async fn list_matching(
        &self,
        collection: &CollectionName,
        filter: &Filter,
        page: PageRequest<DocumentId>,
    ) -> Result<Page<Document, DocumentId>> {
        self.list_matching_wrongly(collection, filter, page).await
    }

    async fn list_collections(
        &self,
        page: PageRequest<CollectionName>,
    ) -> Result<Page<CollectionInfo, CollectionName>> {
        let mut listed = self.inner.list_collections(page).await?;
        if self.defect == Defect::EmptiedNotListed {
            listed.items.retain(|info| info.documents > 0);
        }
        if self.defect == Defect::DefaultNotListed {
            listed.items.retain(|info| info.collection != CollectionName::default());
        }
        Ok(listed)
    }

    async fn drop_collection(&self, collection: &CollectionName) -> Result<bool> {
        if self.defect == Defect::DropOnlyEmpties {
            let all = self.inner.list(collection, PageRequest::default()).await?.items;
            let ids: Vec<_> = all.into_iter().map(|document| document.id).collect();
            return Ok(self.inner.delete(collection, &ids).await? > 0);
        }
        self.inner.drop_collection(collection).await
    }
}
