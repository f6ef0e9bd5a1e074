//! Documents and their embeddings in Postgres, ranked by pgvector.
//!
//! A search compares every document that it may return. It is exact with any filter and limit, and fast up to
//! some hundred thousand documents in a collection. With `vector_index=hnsw`, larger collections of up to
//! 4,000 dimensions get an index. A search then finds nearly all of the nearest documents: at least 99 in 100
//! of them as measured on clustered data. It still returns as many documents as the limit and the filter
//! allow.

mod approximate;
mod embedding;
mod extension;
mod filtered;
mod index_builder;
mod matching;
mod metadata;
mod prefilter;
mod read;
mod route;
mod search;
mod statement;
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

use super::Postgres;
use super::engine::Engine;
pub(crate) use embedding::{direction as direction_of, from_bytes as embedding_of};
pub(crate) use extension::is_new_enough;
use extension::{Readiness, unprepared};
pub(crate) use index_builder::IndexBuilder;
pub(crate) use statement::Statements;

const OPEN: &str = "vectors.open";
const PUT: &str = "vectors.put";
const SEARCH: &str = "vectors.search";
const SEARCH_BATCH: &str = "vectors.search_batch";
const BUILD_INDEX: &str = "vectors.build_index";

impl Postgres {
    /// Returns the vector store of `namespace`, which computes missing embeddings with `embedder` if one is
    /// given.
    ///
    /// # Errors
    /// `Unsupported` if the server has no pgvector, or a version older than 0.8.0; `PermissionDenied` if the
    /// user may not add it to the database. With `migrate=check` and no document in the database, the store
    /// opens without pgvector: it reads as empty, and writes are `Unsupported`.
    pub async fn vectors(
        &self,
        namespace: Namespace,
        embedder: Option<Arc<dyn Embedder>>,
    ) -> Result<PostgresVectorStore> {
        let migrate = self.engine.migrate();
        let readiness = self
            .engine
            .transaction(OPEN, &migrate, |connection, migrate| {
                Box::pin(extension::ensure(connection, *migrate))
            })
            .await
            // The next opening finds the parts that are done.
            .map_err(|error| error.with_idempotent(true))?;
        let store = PostgresVectorStore {
            engine: self.engine.clone(),
            indexes: Arc::clone(&self.indexes),
            statements: Arc::clone(&self.statements),
            namespace,
            embedder,
            is_prepared: readiness != Readiness::Empty,
        };
        if readiness == Readiness::Incomplete {
            store.fill().await?;
        }
        Ok(store)
    }
}

/// A [`VectorStore`] in a Postgres database, created by [`Postgres::vectors`].
#[derive(Clone)]
pub struct PostgresVectorStore {
    engine: Engine,
    indexes: Arc<IndexBuilder>,
    statements: Arc<Statements>,
    namespace: Namespace,
    embedder: Option<Arc<dyn Embedder>>,
    /// False if the database has no documents, and may not be prepared for them.
    is_prepared: bool,
}

store! {
    PostgresVectorStore as store,
    shows: { engine: &store.engine, embedder: &store.embedder.is_some() },
    capabilities: store.engine.capabilities(),
    options: [SearchFilter, SearchScoreMin],
    erase: {
        store.engine
            .transaction("vectors.erase", &store.namespace, |connection, namespace| {
                Box::pin(write::erase(connection, namespace))
            })
            .await?;
        store.indexes.start(&store.namespace, None);
        Ok(())
    },
}

#[async_trait]
impl VectorStore for PostgresVectorStore {
    async fn put(
        &self,
        collection: &CollectionName,
        documents: Vec<Document>,
        mode: PutMode,
    ) -> Result<PutReport> {
        let documents = prepare(documents, self.embedder.as_deref()).await?;
        if !self.is_prepared {
            return Err(unprepared(PUT));
        }
        self.engine
            .transaction(
                PUT,
                &(self.scope(collection), &documents, mode),
                |connection, &(scope, documents, mode)| {
                    Box::pin(write::put(connection, scope, documents, mode))
                },
            )
            .await
    }

    async fn update_metadata(
        &self,
        collection: &CollectionName,
        updates: Vec<MetadataUpdate>,
        mode: MetadataMode,
    ) -> Result<MetadataReport> {
        check_metadata_updates(&updates)?;
        self.engine
            .transaction(
                "vectors.update_metadata",
                &(&self.namespace, collection, &updates),
                move |connection, &(namespace, collection, updates)| {
                    Box::pin(metadata::update(connection, namespace, collection, updates, mode))
                },
            )
            .await
    }

    async fn get(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<Vec<Option<Document>>> {
        const OPERATION: &str = "vectors.get";
        check_ids(OPERATION, ids)?;
        self.engine
            .read(
                OPERATION,
                &(&self.namespace, collection, ids),
                |connection, &(namespace, collection, ids)| {
                    Box::pin(read::get(connection, namespace, collection, ids))
                },
            )
            .await
    }

    async fn search(&self, collection: &CollectionName, request: &SearchRequest) -> Result<Vec<SearchHit>> {
        check_search(SEARCH, request)?;
        let mut answers = self.run(SEARCH, collection, std::slice::from_ref(request)).await?;
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
        self.run(SEARCH_BATCH, collection, requests).await
    }

    async fn delete(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<u64> {
        const OPERATION: &str = "vectors.delete";
        check_ids(OPERATION, ids)?;
        self.engine
            .transaction(
                OPERATION,
                &(&self.namespace, collection, ids),
                |connection, &(namespace, collection, ids)| {
                    Box::pin(write::delete(connection, namespace, collection, ids))
                },
            )
            .await
    }

    async fn delete_matching(&self, collection: &CollectionName, filter: &Filter) -> Result<u64> {
        const OPERATION: &str = "vectors.delete_matching";
        filter.check(OPERATION)?;
        self.engine
            .transaction(
                OPERATION,
                &(&self.namespace, collection, filter),
                |connection, &(namespace, collection, filter)| {
                    Box::pin(write::delete_matching(connection, namespace, collection, filter))
                },
            )
            .await
    }

    async fn count(&self, collection: &CollectionName, filter: Option<&Filter>) -> Result<u64> {
        const OPERATION: &str = "vectors.count";
        let Some(filter) = filter else {
            return self
                .engine
                .read(OPERATION, &(&self.namespace, collection), |connection, &(namespace, collection)| {
                    Box::pin(read::count(connection, namespace, collection))
                })
                .await;
        };
        filter.check(OPERATION)?;
        self.engine
            .snapshot(
                OPERATION,
                &(&self.namespace, collection, filter),
                |connection, &(namespace, collection, filter)| {
                    Box::pin(matching::count(connection, namespace, collection, filter))
                },
            )
            .await
    }

    async fn list(
        &self,
        collection: &CollectionName,
        page: PageRequest<DocumentId>,
    ) -> Result<Page<Document, DocumentId>> {
        const OPERATION: &str = "vectors.list";
        page.check(OPERATION)?;
        self.engine
            .read(
                OPERATION,
                &(&self.namespace, collection, &page),
                |connection, &(namespace, collection, page)| {
                    Box::pin(read::list(connection, namespace, collection, page))
                },
            )
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
        self.engine
            .snapshot(
                OPERATION,
                &(&self.namespace, collection, filter, &page),
                |connection, &(namespace, collection, filter, page)| {
                    Box::pin(matching::list(connection, namespace, collection, filter, page))
                },
            )
            .await
    }

    async fn list_collections(
        &self,
        page: PageRequest<CollectionName>,
    ) -> Result<Page<CollectionInfo, CollectionName>> {
        const OPERATION: &str = "vectors.list_collections";
        page.check(OPERATION)?;
        self.engine
            .read(OPERATION, &(&self.namespace, &page), |connection, &(namespace, page)| {
                Box::pin(read::list_collections(connection, namespace, page))
            })
            .await
    }

    async fn drop_collection(&self, collection: &CollectionName) -> Result<bool> {
        let dropped = self
            .engine
            .transaction(
                "vectors.drop_collection",
                &(&self.namespace, collection),
                |connection, &(namespace, collection)| {
                    Box::pin(write::drop_collection(connection, namespace, collection))
                },
            )
            .await?;
        self.indexes.start(&self.namespace, None);
        Ok(dropped)
    }
}

/// A collection, and the statements that search it.
#[derive(Clone, Copy)]
struct Scope<'a> {
    statements: &'a Statements,
    namespace: &'a Namespace,
    collection: &'a CollectionName,
}

impl PostgresVectorStore {
    fn scope<'a>(&'a self, collection: &'a CollectionName) -> Scope<'a> {
        Scope { statements: &self.statements, namespace: &self.namespace, collection }
    }

    /// Builds the index of a collection of any size now, and waits until it is ready. Returns true if the
    /// collection has an index afterwards. An empty collection and one with more than 4,000 dimensions get
    /// none.
    ///
    /// Calling this is optional: a search that finds a large collection without an index starts the build.
    ///
    /// # Errors
    /// `Unsupported` if the database was opened without `vector_index=hnsw`; `PermissionDenied` if the user
    /// does not own the tables.
    ///
    /// # Cancellation
    /// The index is complete, or the next call builds it again.
    pub async fn build_index(&self, collection: &CollectionName) -> Result<bool> {
        let made = self.indexes.build(&self.namespace, collection).await;
        made.map_err(|failure| failure.into_error(BUILD_INDEX).with_idempotent(true))
    }

    /// Computes the column of directions, if pgvector and its column were removed from the database.
    async fn fill(&self) -> Result<()> {
        while !self
            .engine
            .transaction(OPEN, &(), |connection, ()| Box::pin(extension::fill(connection)))
            .await?
        {}
        Ok(())
    }
}
