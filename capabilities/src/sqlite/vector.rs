//! Documents and their embeddings in SQLite, searched exactly.
//!
//! A search scores every document that it may return. It is exact with any filter and limit, and fast up to
//! some hundred thousand documents in a collection.

mod read;
mod score;
mod search;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::storage::vector::{
    check_ids, check_metadata_updates, check_search, check_search_batch, prepare,
};
use larder_kernel::{
    CollectionInfo, CollectionName, Document, DocumentId, Embedder, Error, ErrorKind, Filter, MetadataMode,
    MetadataReport, MetadataUpdate, Namespace, Page, PageRequest, PutMode, PutReport, Result, SearchHit,
    SearchRequest, VectorStore,
};

use super::engine::Engine;
use super::{Sqlite, capabilities};
pub(super) use score::{from_bytes as embedding_of, norm as norm_of};

const PUT: &str = "vectors.put";
const SEARCH: &str = "vectors.search";
const SEARCH_BATCH: &str = "vectors.search_batch";

impl Sqlite {
    /// Returns the vector store of `namespace`, which computes missing embeddings with `embedder` if one is
    /// given.
    #[must_use]
    pub fn vectors(&self, namespace: Namespace, embedder: Option<Arc<dyn Embedder>>) -> SqliteVectorStore {
        SqliteVectorStore { engine: self.engine.clone(), namespace, embedder }
    }
}

/// A [`VectorStore`] in an SQLite file, created by [`Sqlite::vectors`].
#[derive(Clone)]
pub struct SqliteVectorStore {
    engine: Engine,
    namespace: Namespace,
    embedder: Option<Arc<dyn Embedder>>,
}

store! {
    SqliteVectorStore as store,
    shows: { engine: &store.engine, embedder: &store.embedder.is_some() },
    capabilities: capabilities(&store.engine),
    options: [SearchFilter, SearchScoreMin],
    erase: {
        let namespace = store.namespace.clone();
        store.engine.write("vectors.erase", move |connection| write::erase(connection, &namespace)).await
    },
}

#[async_trait]
impl VectorStore for SqliteVectorStore {
    async fn put(
        &self,
        collection: &CollectionName,
        documents: Vec<Document>,
        mode: PutMode,
    ) -> Result<PutReport> {
        let documents = prepare(documents, self.embedder.as_deref()).await?;
        let (namespace, collection) = (self.namespace.clone(), collection.clone());
        self.engine
            .write(PUT, move |connection| write::put(connection, &namespace, &collection, &documents, mode))
            .await
    }

    async fn update_metadata(
        &self,
        collection: &CollectionName,
        updates: Vec<MetadataUpdate>,
        mode: MetadataMode,
    ) -> Result<MetadataReport> {
        check_metadata_updates(&updates)?;
        let (namespace, collection) = (self.namespace.clone(), collection.clone());
        self.engine
            .write("vectors.update_metadata", move |connection| {
                write::update_metadata(connection, &namespace, &collection, &updates, mode)
            })
            .await
    }

    async fn get(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<Vec<Option<Document>>> {
        const OPERATION: &str = "vectors.get";
        check_ids(OPERATION, ids)?;
        let (namespace, collection, ids) = (self.namespace.clone(), collection.clone(), ids.to_vec());
        self.engine
            .read(OPERATION, move |connection| read::get(connection, &namespace, &collection, &ids))
            .await
    }

    async fn search(&self, collection: &CollectionName, request: &SearchRequest) -> Result<Vec<SearchHit>> {
        check_search(SEARCH, request)?;
        let mut answers = self.run(SEARCH, collection, vec![request.clone()]).await?;
        answers.pop().ok_or_else(|| {
            Error::new(ErrorKind::Unexpected, SEARCH, "the search returned no result; report the defect")
        })
    }

    async fn search_batch(
        &self,
        collection: &CollectionName,
        requests: &[SearchRequest],
    ) -> Result<Vec<Vec<SearchHit>>> {
        check_search_batch(requests)?;
        self.run(SEARCH_BATCH, collection, requests.to_vec()).await
    }

    async fn delete(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<u64> {
        const OPERATION: &str = "vectors.delete";
        check_ids(OPERATION, ids)?;
        let (namespace, collection, ids) = (self.namespace.clone(), collection.clone(), ids.to_vec());
        self.engine
            .write(OPERATION, move |connection| write::delete(connection, &namespace, &collection, &ids))
            .await
    }

    async fn delete_matching(&self, collection: &CollectionName, filter: &Filter) -> Result<u64> {
        const OPERATION: &str = "vectors.delete_matching";
        filter.check(OPERATION)?;
        let (namespace, collection, filter) = (self.namespace.clone(), collection.clone(), filter.clone());
        self.engine
            .write(OPERATION, move |connection| {
                write::delete_matching(connection, &namespace, &collection, &filter)
            })
            .await
    }

    async fn count(&self, collection: &CollectionName, filter: Option<&Filter>) -> Result<u64> {
        const OPERATION: &str = "vectors.count";
        filter.map_or(Ok(()), |filter| filter.check(OPERATION))?;
        let (namespace, collection, filter) = (self.namespace.clone(), collection.clone(), filter.cloned());
        self.engine
            .read(OPERATION, move |connection| {
                read::count(connection, &namespace, &collection, filter.as_ref())
            })
            .await
    }

    async fn list(
        &self,
        collection: &CollectionName,
        page: PageRequest<DocumentId>,
    ) -> Result<Page<Document, DocumentId>> {
        const OPERATION: &str = "vectors.list";
        page.check(OPERATION)?;
        let (namespace, collection) = (self.namespace.clone(), collection.clone());
        self.engine
            .read(OPERATION, move |connection| read::list(connection, &namespace, &collection, &page))
            .await
    }

    async fn list_matching(
        &self,
        collection: &CollectionName,
        filter: &Filter,
        page: PageRequest<DocumentId>,
    ) -> Result<Page<Document, DocumentId>> {
        const OPERATION: &str = "vectors.list_matching";
        page.check(OPERATION)?;
        filter.check(OPERATION)?;
        let (namespace, collection, filter) = (self.namespace.clone(), collection.clone(), filter.clone());
        self.engine
            .read(OPERATION, move |connection| {
                read::list_matching(connection, &namespace, &collection, &filter, &page)
            })
            .await
    }

    async fn list_collections(
        &self,
        page: PageRequest<CollectionName>,
    ) -> Result<Page<CollectionInfo, CollectionName>> {
        const OPERATION: &str = "vectors.list_collections";
        page.check(OPERATION)?;
        let namespace = self.namespace.clone();
        self.engine
            .read(OPERATION, move |connection| read::list_collections(connection, &namespace, &page))
            .await
    }

    async fn drop_collection(&self, collection: &CollectionName) -> Result<bool> {
        let (namespace, collection) = (self.namespace.clone(), collection.clone());
        self.engine
            .write("vectors.drop_collection", move |connection| {
                write::drop_collection(connection, &namespace, &collection)
            })
            .await
    }
}

impl SqliteVectorStore {
    async fn run(
        &self,
        operation: &'static str,
        collection: &CollectionName,
        requests: Vec<SearchRequest>,
    ) -> Result<Vec<Vec<SearchHit>>> {
        let (namespace, collection) = (self.namespace.clone(), collection.clone());
        self.engine
            .read(operation, move |connection| {
                search::search(connection, &namespace, &collection, &requests, operation)
            })
            .await
    }
}

#[cfg(test)]
mod tests;
