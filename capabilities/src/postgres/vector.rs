//! Documents and their embeddings in Postgres, ranked by pgvector.
//!
//! A search compares every document that it may return: right at any filter and limit, and fast to some hundred thousand
//! documents a collection. Opened with `vector_index=hnsw`, larger collections of up to 4,000 dimensions get an index: a
//! search then finds nearly all of the nearest documents, at least 99 in 100 of them as measured on clustered data, and
//! still as many as the limit and the filter allow.

mod approximate;
mod embedding;
mod extension;
mod filtered;
mod index_builder;
mod prefilter;
mod read;
mod search;
mod statement;
mod write;

use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::storage::vector::{check_ids, check_search, check_search_batch, prepare};
use larder_kernel::{
    CollectionInfo, CollectionName, Document, DocumentId, Embedder, Error, ErrorKind, Filter, Namespace,
    Page, PageRequest, PutMode, PutReport, Result, SearchHit, SearchRequest, VectorStore,
};

use super::Postgres;
use super::engine::Engine;
pub(crate) use extension::is_new_enough;
pub(crate) use index_builder::IndexBuilder;
pub(crate) use statement::Statements;

const OPEN: &str = "vectors.open";
const PUT: &str = "vectors.put";
const SEARCH: &str = "vectors.search";
const SEARCH_BATCH: &str = "vectors.search_batch";
const BUILD_INDEX: &str = "vectors.build_index";

impl Postgres {
    /// The vector store in `namespace`, which computes missing embeddings with `embedder` where there is one.
    ///
    /// # Errors
    /// `Unsupported` where the server has no pgvector, or one older than 0.8.0; `PermissionDenied` where the user may not
    /// add it to the database.
    pub async fn vectors(
        &self,
        namespace: Namespace,
        embedder: Option<Arc<dyn Embedder>>,
    ) -> Result<PostgresVectorStore> {
        let store = PostgresVectorStore {
            engine: self.engine.clone(),
            indexes: Arc::clone(&self.indexes),
            statements: Arc::clone(&self.statements),
            namespace,
            embedder,
        };
        let migrate = self.engine.migrate();
        let complete = store
            .engine
            .transaction(OPEN, &migrate, |connection, migrate| {
                Box::pin(extension::ensure(connection, *migrate))
            })
            .await
            // Whatever was made is found by the next opening.
            .map_err(|error| error.with_idempotent(true))?;
        if !complete {
            store.fill().await?;
        }
        Ok(store)
    }
}

/// A [`VectorStore`] in a Postgres database. Made by [`Postgres::vectors`].
#[derive(Clone)]
pub struct PostgresVectorStore {
    engine: Engine,
    indexes: Arc<IndexBuilder>,
    statements: Arc<Statements>,
    namespace: Namespace,
    embedder: Option<Arc<dyn Embedder>>,
}

store! {
    PostgresVectorStore as store,
    shows: { engine: &store.engine, embedder: &store.embedder.is_some() },
    capabilities: store.engine.capabilities(),
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
        answers.pop().ok_or_else(|| Error::new(ErrorKind::Unexpected, SEARCH, "a search without an answer"))
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
                    Box::pin(read::count_matching(connection, namespace, collection, filter))
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

    /// Makes the index of a collection now, however small it is, and waits until it is ready. Says whether the collection
    /// has one then: not where it is empty or has more than 4,000 dimensions.
    ///
    /// There is no need to call this: a search that finds a collection large and without an index has it made.
    ///
    /// # Errors
    /// `Unsupported` where the database was opened without `vector_index=hnsw`; `PermissionDenied` where the user does not
    /// own the tables.
    ///
    /// # Cancellation
    /// The index is made, or is made anew by the next call.
    pub async fn build_index(&self, collection: &CollectionName) -> Result<bool> {
        let made = self.indexes.build(&self.namespace, collection).await;
        made.map_err(|failure| failure.into_error(BUILD_INDEX).with_idempotent(true))
    }

    /// Computes the column of directions where pgvector was removed from the database, and its column with it.
    async fn fill(&self) -> Result<()> {
        while !self
            .engine
            .transaction(OPEN, &(), |connection, ()| Box::pin(extension::fill(connection)))
            .await?
        {}
        Ok(())
    }

    async fn by_index(
        &self,
        operation: &'static str,
        collection: &CollectionName,
        requests: &[SearchRequest],
    ) -> Result<Vec<Vec<SearchHit>>> {
        let rows_min = self.indexes.rows_min();
        let (answers, wanted) = self
            .engine
            .snapshot(
                operation,
                &(self.scope(collection), requests),
                move |connection, &(scope, requests)| {
                    Box::pin(approximate::search(connection, scope, requests, operation, rows_min))
                },
            )
            .await?;
        if wanted {
            self.indexes.start(&self.namespace, Some(collection));
        }
        Ok(answers)
    }

    /// The answer of a single search with a filter, where one statement is enough for it.
    async fn filtered(
        &self,
        operation: &'static str,
        collection: &CollectionName,
        requests: &[SearchRequest],
    ) -> Result<Option<Vec<SearchHit>>> {
        let [request] = requests else { return Ok(None) };
        if request.filter.is_none() {
            return Ok(None);
        }
        let indexed = self.indexes.is_on();
        self.engine
            .read(operation, &(self.scope(collection), request), move |connection, &(scope, request)| {
                Box::pin(filtered::search(connection, scope, request, indexed, operation))
            })
            .await
    }

    async fn run(
        &self,
        operation: &'static str,
        collection: &CollectionName,
        requests: &[SearchRequest],
    ) -> Result<Vec<Vec<SearchHit>>> {
        if let Some(hits) = self.filtered(operation, collection, requests).await? {
            return Ok(vec![hits]);
        }
        if self.indexes.is_on() {
            return self.by_index(operation, collection, requests).await;
        }
        // One search without a filter is one statement, which is a snapshot by itself.
        if let [request] = requests
            && request.filter.is_none()
        {
            return self
                .engine
                .read(
                    operation,
                    &(self.scope(collection), requests),
                    move |connection, &(scope, requests)| {
                        Box::pin(search::search(connection, scope, requests, operation))
                    },
                )
                .await;
        }
        self.engine
            .snapshot(
                operation,
                &(self.scope(collection), requests),
                move |connection, &(scope, requests)| {
                    Box::pin(search::search(connection, scope, requests, operation))
                },
            )
            .await
    }
}
