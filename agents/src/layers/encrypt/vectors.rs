//! Documents with encrypted texts.

use async_trait::async_trait;
use larder_kernel::limits::DOCUMENT_BYTES_MAX;
use larder_kernel::storage::vector::prepare;
use larder_kernel::{
    Capabilities, CollectionInfo, CollectionName, Document, DocumentId, Filter, MetadataMode, MetadataReport,
    MetadataUpdate, Namespace, Page, PageRequest, PutMode, PutReport, Result, SearchHit, SearchRequest,
    Store, VectorStore,
};

use super::ring::{KeyRing, Place};
use super::{Sealed, shared};
use crate::internal::offload;

shared!(VectorStore, [SearchFilter, SearchScoreMin]);

/// The cost of a document apart from its bytes, in the steps of [`offload`].
const STEPS: usize = 4 * 1024;

fn place(namespace: &Namespace, collection: &CollectionName, document: &DocumentId) -> Place {
    Place::new("vectors", namespace.as_str()).at(collection.as_str()).at(document.as_str())
}

/// An item with an id and an encrypted text.
trait Texted: Send + 'static {
    fn parts(&mut self) -> (&DocumentId, &mut String);
}

impl Texted for Document {
    fn parts(&mut self) -> (&DocumentId, &mut String) {
        (&self.id, &mut self.content)
    }
}

impl Texted for SearchHit {
    fn parts(&mut self) -> (&DocumentId, &mut String) {
        (&self.id, &mut self.content)
    }
}

impl Sealed<dyn VectorStore> {
    /// Encrypts or decrypts the texts of all items, outside the async runtime if there are many.
    async fn change<T: Texted>(
        &self,
        operation: &'static str,
        collection: &CollectionName,
        mut all: Vec<T>,
        change: impl Fn(&KeyRing, &Place, &str) -> Result<String> + Send + 'static,
    ) -> Result<Vec<T>> {
        let (ring, namespace) = (self.ring.clone(), self.namespace().clone());
        let collection = collection.clone();
        let steps = all.iter_mut().map(|one| STEPS + one.parts().1.len()).sum();
        let work = move || {
            for one in &mut all {
                let (id, text) = one.parts();
                *text = change(&ring, &place(&namespace, &collection, id), text)?;
            }
            Ok(all)
        };
        offload::run(operation, steps, work).await
    }

    async fn open<T: Texted>(
        &self,
        operation: &'static str,
        collection: &CollectionName,
        all: Vec<T>,
    ) -> Result<Vec<T>> {
        let open = move |ring: &KeyRing, place: &Place, text: &str| ring.open_text(operation, place, text);
        self.change(operation, collection, all, open).await
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
        const OPERATION: &str = "vectors.put";
        let prepared = prepare(documents, self.embedder.as_deref()).await?;
        let documents: Vec<Document> = prepared.into_iter().map(Document::from).collect();
        let seal = |ring: &KeyRing, place: &Place, text: &str| {
            ring.seal_text(OPERATION, place, &text, DOCUMENT_BYTES_MAX)
        };
        let sealed = self.change(OPERATION, collection, documents, seal).await?;
        self.inner.put(collection, sealed, mode).await
    }

    /// Metadata is not encrypted, because the inner store filters by it.
    async fn update_metadata(
        &self,
        collection: &CollectionName,
        updates: Vec<MetadataUpdate>,
        mode: MetadataMode,
    ) -> Result<MetadataReport> {
        self.inner.update_metadata(collection, updates, mode).await
    }

    async fn get(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<Vec<Option<Document>>> {
        let found = self.inner.get(collection, ids).await?;
        let there: Vec<bool> = found.iter().map(Option::is_some).collect();
        let all = found.into_iter().flatten().collect();
        let mut opened = self.open("vectors.get", collection, all).await?.into_iter();
        Ok(there.into_iter().map(|there| if there { opened.next() } else { None }).collect())
    }

    async fn search(&self, collection: &CollectionName, request: &SearchRequest) -> Result<Vec<SearchHit>> {
        let hits = self.inner.search(collection, request).await?;
        self.open("vectors.search", collection, hits).await
    }

    async fn search_batch(
        &self,
        collection: &CollectionName,
        requests: &[SearchRequest],
    ) -> Result<Vec<Vec<SearchHit>>> {
        let answers = self.inner.search_batch(collection, requests).await?;
        let mut opened = Vec::with_capacity(answers.len());
        for hits in answers {
            opened.push(self.open("vectors.search_batch", collection, hits).await?);
        }
        Ok(opened)
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
        let Page { items, next, .. } = self.inner.list(collection, page).await?;
        Ok(Page::new(self.open("vectors.list", collection, items).await?, next))
    }

    async fn list_matching(
        &self,
        collection: &CollectionName,
        filter: &Filter,
        page: PageRequest<DocumentId>,
    ) -> Result<Page<Document, DocumentId>> {
        let Page { items, next, .. } = self.inner.list_matching(collection, filter, page).await?;
        Ok(Page::new(self.open("vectors.list_matching", collection, items).await?, next))
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
