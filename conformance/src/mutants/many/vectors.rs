//! Vector stores that are wrong for many documents.

use larder_agents::storage::InMemoryVectorStore;
use larder_kernel::{
    CollectionInfo, CollectionName, Document, DocumentId, Filter, Page, PageRequest, PutMode, Result,
    SearchHit, SearchRequest, Store, VectorStore,
};

use super::{COUNT_MAX, ITEMS_MAX, ROWS_MAX, cut};

macro_rules! wrong {
    ($self:ident $contract:ident get($collection:ident, $ids:ident)) => {
        $self.get_wrongly($collection, $ids).await
    };
    ($self:ident $contract:ident search($collection:ident, $request:ident)) => {
        $self.search_wrongly($collection, $request).await
    };
    ($self:ident $contract:ident search_batch($collection:ident, $requests:ident)) => {
        $self.search_batch_wrongly($collection, $requests).await
    };
    ($self:ident $contract:ident delete($collection:ident, $ids:ident)) => {
        $self.delete_wrongly($collection, $ids).await
    };
    ($self:ident $contract:ident delete_matching($collection:ident, $filter:ident)) => {
        $self.delete_matching_wrongly($collection, $filter).await
    };
    ($self:ident $contract:ident count($collection:ident, $filter:ident)) => {
        $self.count_wrongly($collection, $filter).await
    };
    ($self:ident $contract:ident list($collection:ident, $page:ident)) => {
        $self.list_wrongly($collection, $page).await
    };
    ($self:ident $contract:ident list_matching($collection:ident, $filter:ident, $page:ident)) => {
        $self.list_matching_wrongly($collection, $filter, $page).await
    };
    ($self:ident $contract:ident list_collections($page:ident)) => {
        $self.list_collections_wrongly($page).await
    };
    ($self:ident $contract:ident $method:ident($($argument:ident),*)) => {
        $self.inner.$method($($argument),*).await
    };
}

wrong_stores! { Vectors VectorStore over InMemoryVectorStore with with_vectors, wrong;
    reading_ends_after_5000_ids: GetCut => ["VEC-013"],
    a_search_returns_5000_hits: HitsCut => ["VEC-023"],
    a_search_looks_at_10000_documents: SearchLooksAtFirst => ["VEC-023", "VEC-024"],
    a_batch_of_searches_returns_100_hits_each: BatchCut => ["VEC-032"],
    a_deletion_counts_5000_ids: DeleteCut => ["VEC-034"],
    deleting_what_matches_takes_10000_documents: MatchingCut => ["VEC-036"],
    a_count_ends_at_10000: CountCut => ["VEC-037"],
    a_page_ends_after_5000_documents: PageCut => ["VEC-038"],
    a_filtered_page_ends_after_5000_documents: MatchingPageCut => ["VEC-052"],
    a_filtered_listing_looks_at_10000_documents: MatchingLooksAtFirst => ["VEC-052"],
    a_page_ends_after_5000_collections: CollectionsCut => ["VEC-039"],
    an_erasure_takes_10000_documents: EraseCut => ["STORE-006"],
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

    /// Returns the first of the documents that a method does not reach.
    async fn end(&self, collection: &CollectionName) -> Result<Option<DocumentId>> {
        let first = self.inner.list(collection, PageRequest::first(ITEMS_MAX)).await?;
        Ok(first.next)
    }

    async fn get_wrongly(
        &self,
        collection: &CollectionName,
        ids: &[DocumentId],
    ) -> Result<Vec<Option<Document>>> {
        let mut found = self.inner.get(collection, ids).await?;
        if self.defect == Defect::GetCut {
            found.iter_mut().skip(ROWS_MAX).for_each(|document| *document = None);
        }
        Ok(found)
    }

    async fn search_wrongly(
        &self,
        collection: &CollectionName,
        request: &SearchRequest,
    ) -> Result<Vec<SearchHit>> {
        let mut hits = self.inner.search(collection, request).await?;
        match self.defect {
            Defect::HitsCut => hits.truncate(ROWS_MAX),
            Defect::SearchLooksAtFirst => {
                if let Some(end) = self.end(collection).await? {
                    hits.retain(|hit| hit.id <= end);
                }
            }
            _ => {}
        }
        Ok(hits)
    }

    async fn search_batch_wrongly(
        &self,
        collection: &CollectionName,
        requests: &[SearchRequest],
    ) -> Result<Vec<Vec<SearchHit>>> {
        let mut results = self.inner.search_batch(collection, requests).await?;
        if self.defect == Defect::BatchCut {
            results.iter_mut().for_each(|hits| hits.truncate(100));
        }
        Ok(results)
    }

    async fn delete_wrongly(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<u64> {
        let deleted = self.inner.delete(collection, ids).await?;
        Ok(if self.defect == Defect::DeleteCut { deleted.min(COUNT_MAX / 2) } else { deleted })
    }

    async fn delete_matching_wrongly(&self, collection: &CollectionName, filter: &Filter) -> Result<u64> {
        let (mut left, end) = (Vec::new(), self.end(collection).await?);
        if let (Defect::MatchingCut, Some(end)) = (self.defect, end) {
            left = self.inner.list(collection, PageRequest::after(end, ITEMS_MAX)).await?.items;
            left.retain(|document| filter.matches(&document.metadata));
        }
        let deleted = self.inner.delete_matching(collection, filter).await?;
        let kept = u64::try_from(left.len()).unwrap_or(u64::MAX);
        for batch in left.chunks(1_000) {
            self.inner.put(collection, batch.to_vec(), PutMode::Upsert).await?;
        }
        Ok(deleted - kept)
    }

    async fn count_wrongly(&self, collection: &CollectionName, filter: Option<&Filter>) -> Result<u64> {
        let counted = self.inner.count(collection, filter).await?;
        Ok(if self.defect == Defect::CountCut { counted.min(COUNT_MAX) } else { counted })
    }

    async fn list_wrongly(
        &self,
        collection: &CollectionName,
        page: PageRequest<DocumentId>,
    ) -> Result<Page<Document, DocumentId>> {
        let listed = self.inner.list(collection, page).await?;
        Ok(if self.defect == Defect::PageCut { cut(listed) } else { listed })
    }

    async fn list_matching_wrongly(
        &self,
        collection: &CollectionName,
        filter: &Filter,
        page: PageRequest<DocumentId>,
    ) -> Result<Page<Document, DocumentId>> {
        let listed = self.inner.list_matching(collection, filter, page).await?;
        Ok(match self.defect {
            Defect::MatchingPageCut => cut(listed),
            Defect::MatchingLooksAtFirst => match self.end(collection).await? {
                Some(end) => {
                    let items = listed.items.into_iter().filter(|document| document.id <= end);
                    Page::new(items.collect(), listed.next.filter(|next| *next <= end))
                }
                None => listed,
            },
            _ => listed,
        })
    }

    async fn list_collections_wrongly(
        &self,
        page: PageRequest<CollectionName>,
    ) -> Result<Page<CollectionInfo, CollectionName>> {
        let listed = self.inner.list_collections(page).await?;
        Ok(if self.defect == Defect::CollectionsCut { cut(listed) } else { listed })
    }

    async fn erase_wrongly(&self) -> Result<()> {
        let mut left = Vec::new();
        if self.defect == Defect::EraseCut {
            for info in self.inner.list_collections(PageRequest::first(ITEMS_MAX)).await?.items {
                if let Some(end) = self.end(&info.collection).await? {
                    let rest = self.inner.list(&info.collection, PageRequest::after(end, 1_000)).await?;
                    left.push((info.collection, rest.items));
                }
            }
        }
        self.inner.erase().await?;
        for (collection, rest) in left {
            self.inner.put(&collection, rest, PutMode::Upsert).await?;
        }
        Ok(())
    }
}
