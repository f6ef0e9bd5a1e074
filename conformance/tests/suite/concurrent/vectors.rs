//! Faulty vector stores.

use std::sync::{Arc, Mutex};

use larder_agents::storage::InMemoryVectorStore;
use larder_conformance::{Harness, StoreSet};
use larder_kernel::{
    CollectionInfo, CollectionName, Document, DocumentId, Filter, MetadataMode, MetadataReport,
    MetadataUpdate, Page, PageRequest, PutMode, PutReport, Result, SearchHit, SearchRequest,
};

use super::frame::{assert_caught, assert_explained, pause, serve};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defect {
    None,
    /// Checks that the id exists, waits, and writes.
    TwoCreators,
    /// Removes the old document, waits, and writes the new one.
    DeletesFirst,
    /// Counts, waits, and deletes.
    CountsBeforeDeletion,
    /// Reads the metadata, waits, and replaces it by the merged one.
    MergesLate,
    /// Searches through an index that lags by one write.
    IndexBehind,
}

fn backend(defect: Defect) -> Arc<dyn Harness> {
    serve(move |place, namespace, _| {
        let inner = InMemoryVectorStore::open(place, namespace);
        let wrong = Wrong { inner, defect, index: Mutex::default() };
        StoreSet::default().with_vectors(Arc::new(wrong))
    })
}

#[derive(Debug)]
struct Wrong {
    inner: InMemoryVectorStore,
    defect: Defect,
    index: Mutex<Vec<SearchHit>>,
}

wrong! {
    VectorStore for Wrong {
        async fn put(
            &self,
            collection: &CollectionName,
            documents: Vec<Document>,
            mode: PutMode,
        ) -> Result<PutReport> {
            let ids: Vec<DocumentId> = documents.iter().map(|document| document.id.clone()).collect();
            let absent = self.inner.get(collection, &ids).await?.iter().all(Option::is_none);
            match (self.defect, mode) {
                (Defect::TwoCreators, PutMode::IfAbsent) if absent => {
                    pause().await;
                    return self.inner.put(collection, documents, PutMode::Upsert).await;
                }
                (Defect::DeletesFirst, PutMode::Upsert) => {
                    self.inner.delete(collection, &ids).await?;
                    pause().await;
                }
                _ => {}
            }
            self.inner.put(collection, documents, mode).await
        }

        async fn delete(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<u64> {
            if self.defect == Defect::CountsBeforeDeletion {
                let found = self.inner.get(collection, ids).await?;
                pause().await;
                self.inner.delete(collection, ids).await?;
                return Ok(u64::try_from(found.iter().flatten().count()).unwrap());
            }
            self.inner.delete(collection, ids).await
        }

        async fn update_metadata(
            &self,
            collection: &CollectionName,
            mut updates: Vec<MetadataUpdate>,
            mode: MetadataMode,
        ) -> Result<MetadataReport> {
            if self.defect != Defect::MergesLate {
                return self.inner.update_metadata(collection, updates, mode).await;
            }
            for update in &mut updates {
                let ids = std::slice::from_ref(&update.id);
                if let Some(there) = self.inner.get(collection, ids).await?.pop().flatten() {
                    update.metadata = update.apply(&there.metadata, mode)?;
                }
            }
            pause().await;
            self.inner.update_metadata(collection, updates, MetadataMode::Replace).await
        }

        async fn search(
            &self,
            collection: &CollectionName,
            request: &SearchRequest,
        ) -> Result<Vec<SearchHit>> {
            let found = self.inner.search(collection, request).await?;
            if self.defect == Defect::IndexBehind {
                return Ok(std::mem::replace(&mut *self.index.lock().unwrap(), found));
            }
            Ok(found)
        }
    }
    get(collection: &CollectionName, ids: &[DocumentId]) -> Vec<Option<Document>>;
    search_batch(collection: &CollectionName, requests: &[SearchRequest]) -> Vec<Vec<SearchHit>>;
    delete_matching(collection: &CollectionName, filter: &Filter) -> u64;
    count(collection: &CollectionName, filter: Option<&Filter>) -> u64;
    list(collection: &CollectionName, page: PageRequest<DocumentId>) -> Page<Document, DocumentId>;
    list_matching(collection: &CollectionName, filter: &Filter, page: PageRequest<DocumentId>)
        -> Page<Document, DocumentId>;
    list_collections(page: PageRequest<CollectionName>) -> Page<CollectionInfo, CollectionName>;
    drop_collection(collection: &CollectionName) -> bool;
}

#[test]
fn the_control_is_explained() {
    assert_explained(&backend(Defect::None));
}

#[test]
fn a_put_that_looks_first_and_writes_later_is_caught() {
    assert_caught(&["VEC-010", "VEC-031", "VEC-034", "STORE-002"], &backend(Defect::TwoCreators));
}

#[test]
fn a_merge_that_reads_first_and_writes_later_is_caught() {
    assert_caught(&["VEC-048", "STORE-002", "VEC-031"], &backend(Defect::MergesLate));
}

#[test]
fn a_document_that_is_missing_during_its_replacement_is_caught() {
    assert_caught(&["STORE-002", "VEC-010", "VEC-031", "VEC-034"], &backend(Defect::DeletesFirst));
}

#[test]
fn a_deletion_that_counts_first_is_caught() {
    assert_caught(&["VEC-034", "VEC-010", "VEC-031", "STORE-002"], &backend(Defect::CountsBeforeDeletion));
}

#[test]
fn an_index_that_lags_is_caught() {
    assert_caught(&["VEC-031", "VEC-034", "VEC-010", "STORE-002"], &backend(Defect::IndexBehind));
}
