//! The way that each search takes: exact, filtered in one statement, or by an index.

use larder_kernel::{CollectionName, Error, ErrorKind, Outcome, Result, SearchHit, SearchRequest};

use super::{PostgresVectorStore, approximate, extension, filtered, search};

impl PostgresVectorStore {
    /// Returns no hits, unless another program has prepared the database and stored documents since.
    async fn search_nothing(&self, operation: &'static str, requests: usize) -> Result<Vec<Vec<SearchHit>>> {
        let any =
            self.engine.read(operation, &(), |connection, ()| Box::pin(extension::has_documents(connection)));
        if any.await? {
            let message = "the database got its first documents after it was opened; open it again";
            let error = Error::new(ErrorKind::Unavailable, operation, message);
            return Err(error.with_outcome(Outcome::NotApplied));
        }
        Ok(vec![Vec::new(); requests])
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

    /// Returns the result of a single search with a filter, if one statement is enough for it.
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

    pub(super) async fn run(
        &self,
        operation: &'static str,
        collection: &CollectionName,
        requests: &[SearchRequest],
    ) -> Result<Vec<Vec<SearchHit>>> {
        if !self.is_prepared {
            return self.search_nothing(operation, requests.len()).await;
        }
        if let Some(hits) = self.filtered(operation, collection, requests).await? {
            return Ok(vec![hits]);
        }
        if self.indexes.is_on() {
            return self.by_index(operation, collection, requests).await;
        }
        // One search without a filter is one statement, and so one snapshot.
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
