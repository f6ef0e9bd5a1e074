//! Vector stores with a narrow defect.

use larder_agents::storage::InMemoryVectorStore;
use larder_kernel::{
    CollectionName, Document, DocumentId, ErrorKind, Filter, Page, PageRequest, PutMode, PutReport, Result,
    SearchHit, SearchRequest, Store, VectorStore,
};

use super::super::filters::{metadata_with_numbers, with_numbers};
use super::{panicking, reformatted, unavailable, with_floats};

macro_rules! wrong {
    ($self:ident $contract:ident put($collection:ident, $documents:ident, $mode:ident)) => {
        $self.put_wrongly($collection, $documents, $mode).await
    };
    ($self:ident $contract:ident search($collection:ident, $request:ident)) => {
        $self.search_wrongly($collection, $request).await
    };
    ($self:ident $contract:ident search_batch($collection:ident, $requests:ident)) => {
        $self.search_batch_wrongly($collection, $requests).await
    };
    ($self:ident $contract:ident delete_matching($collection:ident, $filter:ident)) => {
        $self.delete_matching_wrongly($collection, $filter).await
    };
    ($self:ident $contract:ident list_matching($collection:ident, $filter:ident, $page:ident)) => {
        $self.list_matching_wrongly($collection, $filter, $page).await
    };
    ($self:ident $contract:ident count($collection:ident, $filter:ident)) => {
        $self.count_wrongly($collection, $filter).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { Vectors VectorStore over InMemoryVectorStore with with_vectors, wrong;
    json_content_is_written_again: ContentReformatted => ["VEC-001"],
    numbers_of_metadata_become_floats: Floats => ["VEC-001"],
    hits_carry_trimmed_content: HitsTrimmed => ["VEC-030"],
    a_batch_of_searches_takes_true_for_1: BatchTakesTrueForOne => ["VEC-032"],
    a_count_takes_true_for_1: CountTakesTrueForOne => ["VEC-037"],
    a_deletion_takes_true_for_1: DeletionTakesTrueForOne => ["VEC-036"],
    a_listing_takes_true_for_1: ListingTakesTrueForOne => ["VEC-051"],
    another_dimension_is_unavailable: DimensionUnavailable => ["VEC-005"],
    a_lost_first_put_panics: FirstPutPanics => ["VEC-011"],
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryVectorStore,
    defect: Defect,
}

impl Wrong {
    fn new(inner: InMemoryVectorStore, defect: Defect) -> Self {
        Self { inner, defect }
    }

    /// Returns the documents that a filter matches in a database without booleans.
    async fn matching(&self, collection: &CollectionName, filter: &Filter) -> Result<Vec<Document>> {
        let mut all = self.inner.list(collection, PageRequest::default()).await?.items;
        let filter = with_numbers(filter);
        all.retain(|document| filter.matches(&metadata_with_numbers(&document.metadata)));
        Ok(all)
    }

    async fn put_wrongly(
        &self,
        collection: &CollectionName,
        mut documents: Vec<Document>,
        mode: PutMode,
    ) -> Result<PutReport> {
        for document in &mut documents {
            match self.defect {
                Defect::ContentReformatted => document.content = reformatted(&document.content),
                Defect::Floats => document.metadata = with_floats(&document.metadata),
                _ => {}
            }
        }
        let put = self.inner.put(collection, documents, mode).await;
        match self.defect {
            Defect::DimensionUnavailable => unavailable(put, ErrorKind::InvalidInput),
            Defect::FirstPutPanics => panicking(put, ErrorKind::InvalidInput),
            _ => put,
        }
    }

    async fn search_wrongly(
        &self,
        collection: &CollectionName,
        request: &SearchRequest,
    ) -> Result<Vec<SearchHit>> {
        let mut hits = self.inner.search(collection, request).await?;
        if self.defect == Defect::HitsTrimmed {
            hits.iter_mut().for_each(|hit| hit.content = hit.content.trim().to_owned());
        }
        Ok(hits)
    }

    async fn search_batch_wrongly(
        &self,
        collection: &CollectionName,
        requests: &[SearchRequest],
    ) -> Result<Vec<Vec<SearchHit>>> {
        let mut results = self.inner.search_batch(collection, requests).await?;
        if self.defect == Defect::BatchTakesTrueForOne {
            for (request, hits) in requests.iter().zip(&mut results) {
                let Some(filter) = &request.filter else { continue };
                let matching = self.matching(collection, filter).await?;
                *hits = self.inner.search(collection, &request.clone().with_filter(None)).await?;
                hits.retain(|hit| matching.iter().any(|document| document.id == hit.id));
            }
        }
        Ok(results)
    }

    async fn delete_matching_wrongly(&self, collection: &CollectionName, filter: &Filter) -> Result<u64> {
        if self.defect == Defect::DeletionTakesTrueForOne {
            let ids = self.matching(collection, filter).await?.into_iter().map(|document| document.id);
            return self.inner.delete(collection, &ids.collect::<Vec<_>>()).await;
        }
        self.inner.delete_matching(collection, filter).await
    }

    async fn list_matching_wrongly(
        &self,
        collection: &CollectionName,
        filter: &Filter,
        page: PageRequest<DocumentId>,
    ) -> Result<Page<Document, DocumentId>> {
        let listed = self.inner.list_matching(collection, filter, page.clone()).await?;
        if self.defect == Defect::ListingTakesTrueForOne {
            let mut matching = self.matching(collection, filter).await?;
            matching.retain(|document| page.after.as_ref().is_none_or(|after| document.id > *after));
            let documents = matching.into_iter().map(|document| document.with_embedding(None)).collect();
            return Ok(Page::from_surplus(documents, page.limit, |document: &Document| document.id.clone()));
        }
        Ok(listed)
    }

    async fn count_wrongly(&self, collection: &CollectionName, filter: Option<&Filter>) -> Result<u64> {
        if let (Defect::CountTakesTrueForOne, Some(filter)) = (self.defect, filter) {
            let matching = self.matching(collection, filter).await?;
            return Ok(u64::try_from(matching.len()).unwrap_or(u64::MAX));
        }
        self.inner.count(collection, filter).await
    }

    async fn erase_wrongly(&self) -> Result<()> {
        self.inner.erase().await
    }
}
