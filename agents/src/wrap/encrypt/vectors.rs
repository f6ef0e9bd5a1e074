//! Documents with sealed texts.

use async_trait::async_trait;
use larder_kernel::limits::DOCUMENT_BYTES_MAX;
use larder_kernel::storage::vector::prepare;
use larder_kernel::{
    Capabilities, CollectionInfo, CollectionName, Document, DocumentId, Filter, Namespace, Page, PageRequest,
    PutMode, PutReport, Result, SearchHit, SearchRequest, Store, VectorStore,
};

use super::ring::Place;
use super::{Sealed, shared};

shared!(VectorStore);

impl Sealed<dyn VectorStore> {
    fn place(&self, collection: &CollectionName, document: &DocumentId) -> Place {
        Place::new("vectors", self.namespace().as_str()).at(collection.as_str()).at(document.as_str())
    }

    fn open(
        &self,
        operation: &'static str,
        collection: &CollectionName,
        document: Document,
    ) -> Result<Document> {
        let place = self.place(collection, &document.id);
        let content = self.ring.open_text(operation, &place, &document.content)?;
        Ok(Document { content, ..document })
    }

    fn open_hit(
        &self,
        operation: &'static str,
        collection: &CollectionName,
        hit: SearchHit,
    ) -> Result<SearchHit> {
        let place = self.place(collection, &hit.id);
        let content = self.ring.open_text(operation, &place, &hit.content)?;
        Ok(SearchHit { content, ..hit })
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl VectorStore for Sealed<dyn VectorStore> {
    async fn put(
        &self,
        collection: &CollectionName,
        documents: Vec<Document>,
        mode: PutMode,
    ) -> Result<PutReport> {
        let mut sealed = Vec::with_capacity(documents.len());
        for document in prepare(documents, self.embedder.as_deref()).await? {
            let place = self.place(collection, &document.id);
            let content =
                self.ring.seal_text("vectors.put", &place, &document.content, DOCUMENT_BYTES_MAX)?;
            sealed.push(Document { content, ..document.into() });
        }
        self.inner.put(collection, sealed, mode).await
    }

    async fn get(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<Vec<Option<Document>>> {
        let found = self.inner.get(collection, ids).await?;
        let open = |document: Document| self.open("vectors.get", collection, document);
        found.into_iter().map(|document| document.map(open).transpose()).collect()
    }

    async fn search(&self, collection: &CollectionName, request: &SearchRequest) -> Result<Vec<SearchHit>> {
        let hits = self.inner.search(collection, request).await?;
        hits.into_iter().map(|hit| self.open_hit("vectors.search", collection, hit)).collect()
    }

    async fn search_batch(
        &self,
        collection: &CollectionName,
        requests: &[SearchRequest],
    ) -> Result<Vec<Vec<SearchHit>>> {
        let answers = self.inner.search_batch(collection, requests).await?;
        let open = |hit| self.open_hit("vectors.search_batch", collection, hit);
        answers.into_iter().map(|hits| hits.into_iter().map(open).collect()).collect()
    }

    async fn delete(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<u64> {
        self.inner.delete(collection, ids).await
    }

    async fn delete_matching(&self, collection: &CollectionName, filter: &Filter) -> Result<u64> {
        self.inner.delete_matching(collection, filter).await
    }

    async fn count(&self, collection: &CollectionName, filter: Option<&Filter>) -> Result<u64> {
        self.inner.count(collection, filter).await
    }

    async fn list(
        &self,
        collection: &CollectionName,
        page: PageRequest<DocumentId>,
    ) -> Result<Page<Document, DocumentId>> {
        let Page { items, next } = self.inner.list(collection, page).await?;
        let open = |document| self.open("vectors.list", collection, document);
        Ok(Page { items: items.into_iter().map(open).collect::<Result<_>>()?, next })
    }

    async fn list_collections(
        &self,
        page: PageRequest<CollectionName>,
    ) -> Result<Page<CollectionInfo, CollectionName>> {
        self.inner.list_collections(page).await
    }

    async fn drop_collection(&self, collection: &CollectionName) -> Result<bool> {
        self.inner.drop_collection(collection).await
    }
}
