//! Wrong vector stores.

use std::sync::Arc;

use async_trait::async_trait;
use larder_agents::storage::InMemoryVectorStore;
use larder_conformance::{Harness, StoreSet};
use larder_kernel::{
    CollectionInfo, CollectionName, Document, DocumentId, Filter, Metadata, Page, PageRequest, PutMode,
    PutReport, Result, SearchHit, SearchRequest, VectorStore,
};
use serde_json::Value;

use crate::frame::serve;

sins! { Vectors;
    the_limit_is_applied_before_the_filter: LimitBeforeFilter => ["VEC-024"],
    true_equals_1_in_filters: TrueEqualsOne => ["VEC-029"],
    replacing_keeps_old_metadata: MetadataMerged => ["VEC-003"],
    scores_are_dot_products: DotProducts => ["VEC-020", "VEC-021"],
    if_absent_overwrites: IfAbsentOverwrites => ["VEC-002"],
    a_batch_loses_its_last_document: LastOfBatchLost => ["VEC-001"],
    documents_are_written_one_by_one: BatchInPart => ["VEC-006", "VEC-008", "STORE-010"],
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
    ids_are_case_folded: IdsFolded => ["STORE-003"],
}

fn backend(sin: Sin) -> Arc<dyn Harness> {
    serve(sin.opening(), move |place, namespace, options| {
        let mut inner = InMemoryVectorStore::open(place, namespace);
        if let Some(embedder) = &options.embedder {
            inner = inner.with_embedder(Arc::clone(embedder));
        }
        StoreSet { vectors: Some(Arc::new(Wrong { inner, sin })), ..StoreSet::default() }
    })
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryVectorStore,
    sin: Sin,
}

forward_store!(Wrong);

/// What JSON looks like where booleans are numbers.
fn numbers(value: &Value) -> Value {
    match value {
        Value::Bool(truth) => Value::from(u8::from(*truth)),
        Value::Array(items) => items.iter().map(numbers).collect(),
        Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), numbers(value))).collect(),
        other => other.clone(),
    }
}

fn with_numbers(filter: &Filter) -> Filter {
    let all = |filters: &[Filter]| filters.iter().map(with_numbers).collect();
    match filter {
        Filter::Eq(field, value) => Filter::Eq(field.clone(), numbers(value)),
        Filter::Ne(field, value) => Filter::Ne(field.clone(), numbers(value)),
        Filter::In(field, values) => Filter::In(field.clone(), values.iter().map(numbers).collect()),
        Filter::And(filters) => Filter::And(all(filters)),
        Filter::Or(filters) => Filter::Or(all(filters)),
        Filter::Not(filter) => Filter::Not(Box::new(with_numbers(filter))),
        other => other.clone(),
    }
}

fn metadata_with_numbers(metadata: &Metadata) -> Metadata {
    metadata.iter().fold(Metadata::new(), |made, (name, value)| made.with(name, numbers(value)))
}

fn length(values: &[f32]) -> f32 {
    values.iter().map(|value| value * value).sum::<f32>().sqrt()
}

impl Wrong {
    fn id(&self, id: &DocumentId) -> Result<DocumentId> {
        match self.sin {
            Sin::IdsFolded => DocumentId::new(id.as_str().to_lowercase()),
            _ => Ok(id.clone()),
        }
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

    /// The hits of a search without its filter, filtered afterwards.
    async fn filtered_late(
        &self,
        collection: &CollectionName,
        request: &SearchRequest,
        filter: &Filter,
    ) -> Result<Vec<SearchHit>> {
        let mut unfiltered = SearchRequest { filter: None, ..request.clone() };
        if self.sin == Sin::TrueEqualsOne {
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
        match self.sin {
            Sin::MetadataMerged if mode == PutMode::Upsert => {
                self.merge_metadata(collection, &mut documents).await?;
            }
            Sin::IfAbsentOverwrites => mode = PutMode::Upsert,
            _ => {}
        }
        if self.sin == Sin::LastOfBatchLost && documents.len() > 1 {
            let lost = documents.pop().map(|document| document.id);
            let mut report = self.inner.put(collection, documents, mode).await?;
            report.written.extend(lost);
            return Ok(report);
        }
        if self.sin == Sin::BatchInPart && !documents.is_empty() {
            let mut whole = PutReport::default();
            for document in documents {
                let report = self.inner.put(collection, vec![document], mode).await?;
                whole.written.extend(report.written);
                whole.ignored.extend(report.ignored);
            }
            return Ok(whole);
        }
        self.inner.put(collection, documents, mode).await
    }

    async fn get(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<Vec<Option<Document>>> {
        let ids = ids.iter().map(|id| self.id(id)).collect::<Result<Vec<_>>>()?;
        let mut found = self.inner.get(collection, &ids).await?;
        match self.sin {
            Sin::GapsClosed => found.retain(Option::is_some),
            Sin::EmbeddingsNormalised => {
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
        if let (Sin::LimitBeforeFilter | Sin::TrueEqualsOne, Some(filter)) = (self.sin, &request.filter) {
            return self.filtered_late(collection, request, filter).await;
        }
        let mut asked = request.clone();
        if self.sin == Sin::LimitZeroReturnsAll && asked.limit == 0 {
            asked.limit = 1_000;
        }
        let mut hits = self.inner.search(collection, &asked).await?;
        match self.sin {
            Sin::DotProducts => self.unnormalise(collection, request, &mut hits).await?,
            Sin::FloorExcludesItself => {
                hits.retain(|hit| request.score_min.is_none_or(|least| hit.score > least));
            }
            Sin::TiesReversed => hits.sort_by(|left, right| {
                right.score.total_cmp(&left.score).then_with(|| right.id.cmp(&left.id))
            }),
            Sin::NineOfTen => hits.truncate(hits.len().div_ceil(10) * 9),
            Sin::HitsWithoutMetadata => hits.iter_mut().for_each(|hit| hit.metadata = Metadata::new()),
            _ => {}
        }
        Ok(hits)
    }

    async fn search_batch(
        &self,
        collection: &CollectionName,
        requests: &[SearchRequest],
    ) -> Result<Vec<Vec<SearchHit>>> {
        let mut answers = self.inner.search_batch(collection, requests).await?;
        if self.sin == Sin::BatchReversed {
            answers.reverse();
        }
        Ok(answers)
    }

    async fn delete(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<u64> {
        let asked = ids.iter().map(|id| self.id(id)).collect::<Result<Vec<_>>>()?;
        let deleted = self.inner.delete(collection, &asked).await?;
        if self.sin == Sin::DimensionFreed && self.inner.count(collection, None).await? == 0 {
            self.inner.drop_collection(collection).await?;
        }
        Ok(if self.sin == Sin::CountsIdsAsked { ids.len() as u64 } else { deleted })
    }

    async fn delete_matching(&self, collection: &CollectionName, filter: &Filter) -> Result<u64> {
        self.inner.delete_matching(collection, filter).await
    }

    async fn count(&self, collection: &CollectionName, filter: Option<&Filter>) -> Result<u64> {
        let filter = if self.sin == Sin::CountIgnoresFilter { None } else { filter };
        self.inner.count(collection, filter).await
    }

    async fn list(
        &self,
        collection: &CollectionName,
        page: PageRequest<DocumentId>,
    ) -> Result<Page<Document, DocumentId>> {
        self.inner.list(collection, page).await
    }

    async fn list_collections(
        &self,
        page: PageRequest<CollectionName>,
    ) -> Result<Page<CollectionInfo, CollectionName>> {
        self.inner.list_collections(page).await
    }

    async fn drop_collection(&self, collection: &CollectionName) -> Result<bool> {
        if self.sin == Sin::DropOnlyEmpties {
            let all = self.inner.list(collection, PageRequest::default()).await?.items;
            let ids: Vec<_> = all.into_iter().map(|document| document.id).collect();
            return Ok(self.inner.delete(collection, &ids).await? > 0);
        }
        self.inner.drop_collection(collection).await
    }
}
