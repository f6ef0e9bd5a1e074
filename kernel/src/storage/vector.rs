//! Semantic search: the contract of [`VectorStore`].
//!
//! Documents are stored in collections. Each document has an embedding, and all embeddings of a collection
//! have the same dimension. Searches rank by cosine similarity.

mod check;
mod types;

use async_trait::async_trait;

pub use check::{PreparedDocument, check_dimension, check_ids, check_search, check_search_batch, prepare};
pub use types::{
    CollectionInfo, Document, Embedding, PutMode, PutReport, SEARCH_LIMIT_DEFAULT, SearchHit, SearchRequest,
};

use super::Store;
use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::id::{CollectionName, DocumentId};
use crate::page::{Page, PageRequest};

/// A store of documents with embeddings that finds the most similar documents.
///
/// A store may be opened with an [`Embedder`](crate::Embedder), which then computes missing embeddings from
/// the text.
// The default bodies do not use their arguments.
#[allow(unused_variables)]
#[async_trait]
pub trait VectorStore: Store {
    /// Writes documents: all of them, or only those with new ids.
    ///
    /// - **VEC-001** A document reads back equal: text byte for byte, metadata by JSON equality, embedding bit for bit.
    /// - **VEC-002** With `IfAbsent`, documents whose ids are there stay as they are, and the answer names the ids
    ///   written and the ids left alone.
    /// - **VEC-003** With `Upsert`, documents are replaced whole: nothing of the old text, metadata or embedding stays.
    /// - **VEC-004** A batch is stored whole or not at all.
    /// - **VEC-005** The first embedding fixes the collection's dimension; another dimension is `InvalidInput` and the
    ///   batch writes nothing.
    /// - **VEC-006** A batch that mixes dimensions, or names an id twice, is `InvalidInput` and writes nothing.
    /// - **VEC-007** A document without an embedding gets the embedder's, computed from its text.
    /// - **VEC-008** Without an embedder, a document without an embedding is `InvalidInput` and the batch writes nothing.
    /// - **VEC-009** Collections are separate: the same id in two of them is two documents, each with its own dimension.
    /// - **VEC-010** Of concurrent `IfAbsent` puts of one id, one writes it.
    /// - **VEC-011** Of concurrent first puts with different dimensions, one fixes the dimension and the others are
    ///   `InvalidInput`.
    /// - **VEC-012** A collection takes embeddings from 1 dimension to 16,000.
    ///
    /// # Errors
    /// `InvalidInput` for 0 or more than 1,000 documents, a text over 1 MiB, refused metadata, or the reasons
    /// above; the error of the embedder; `ResourceExhausted` if a quota is reached.
    ///
    /// # Cancellation
    /// The batch is written completely or not at all.
    ///
    /// # Complexity
    /// O(batch × dimensions) plus the cost of an index.
    async fn put(
        &self,
        collection: &CollectionName,
        documents: Vec<Document>,
        mode: PutMode,
    ) -> Result<PutReport> {
        Err(Error::not_implemented("vectors.put"))
    }

    /// Reads documents by their ids.
    ///
    /// - **VEC-013** The answer has one place for each id asked, in that order; a document that is not there is `None`.
    ///
    /// # Errors
    /// `InvalidInput` for more than 10,000 ids.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(ids).
    async fn get(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<Vec<Option<Document>>> {
        Err(Error::not_implemented("vectors.get"))
    }

    /// Finds the documents most similar to an embedding.
    ///
    /// - **VEC-020** Hits come in descending order of score, and the score is the cosine of the two embeddings to within
    ///   1e-5, whatever their lengths.
    /// - **VEC-021** Every score lies in [-1, 1].
    /// - **VEC-022** Documents with the same embedding have the same score and come in the byte order of their ids.
    /// - **VEC-023** A search returns as many hits as the limit and the matching documents allow, whatever index serves
    ///   it.
    /// - **VEC-024** Only documents that match the filter are returned, and the limit counts matching documents.
    /// - **VEC-025** With a score floor, only hits with at least that score are returned.
    /// - **VEC-026** A limit of 0 returns nothing.
    /// - **VEC-027** A collection that does not exist returns nothing.
    /// - **VEC-028** A query of another dimension than the collection's is `InvalidInput` naming `embedding`.
    /// - **VEC-029** Filters follow [`Filter::matches`]: `true` is not `1`, `1` equals `1.0`, absent equals nothing.
    /// - **VEC-030** A hit carries the document's text and metadata.
    /// - **VEC-031** A replaced document is found by its new embedding and not by its old one; a deleted one not at all.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000, a score floor that is NaN, or a filter that [`Filter::check`]
    /// refuses.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(matching documents × dimensions) for an exact search. Long computations never block the async
    /// runtime.
    async fn search(&self, collection: &CollectionName, request: &SearchRequest) -> Result<Vec<SearchHit>> {
        Err(Error::not_implemented("vectors.search"))
    }

    /// Runs several searches of one collection.
    ///
    /// - **VEC-032** The answers are those of the single searches, in the order of the requests.
    /// - **VEC-033** One bad request makes the whole call `InvalidInput`.
    ///
    /// # Errors
    /// The errors of [`search`](Self::search); `InvalidInput` for more than 256 requests.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// At most the cost of the single searches. A backend that can do so makes one pass over the data.
    async fn search_batch(
        &self,
        collection: &CollectionName,
        requests: &[SearchRequest],
    ) -> Result<Vec<Vec<SearchHit>>> {
        Err(Error::not_implemented("vectors.search_batch"))
    }

    /// Deletes documents by their ids.
    ///
    /// - **VEC-034** The answer says how many of the ids were there; an id named twice counts once.
    /// - **VEC-035** Ids that are not there, and collections that do not exist, are no error.
    ///
    /// # Errors
    /// `InvalidInput` for more than 10,000 ids.
    ///
    /// # Cancellation
    /// Either all of the documents are deleted or none.
    ///
    /// # Complexity
    /// O(ids).
    async fn delete(&self, collection: &CollectionName, ids: &[DocumentId]) -> Result<u64> {
        Err(Error::not_implemented("vectors.delete"))
    }

    /// Deletes the documents that match a filter.
    ///
    /// - **VEC-036** Exactly the documents that match go, and the answer says how many.
    ///
    /// # Errors
    /// `InvalidInput` for a filter that [`Filter::check`] refuses.
    ///
    /// # Cancellation
    /// Either all of the documents are deleted or none.
    ///
    /// # Complexity
    /// O(documents of the collection).
    async fn delete_matching(&self, collection: &CollectionName, filter: &Filter) -> Result<u64> {
        Err(Error::not_implemented("vectors.delete_matching"))
    }

    /// Counts the documents of a collection, optionally only the documents that match a filter.
    ///
    /// - **VEC-037** The count is the number of documents that match; 0 for a collection that does not exist.
    ///
    /// # Errors
    /// `InvalidInput` for a filter that [`Filter::check`] refuses.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(1) without a filter if the backend maintains a counter, otherwise O(documents).
    async fn count(&self, collection: &CollectionName, filter: Option<&Filter>) -> Result<u64> {
        Err(Error::not_implemented("vectors.count"))
    }

    /// Lists documents in the byte order of their ids.
    ///
    /// - **VEC-038** Paging with any limit visits each document that exists throughout exactly once, in byte order.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(limit) plus the cost of finding the start.
    async fn list(
        &self,
        collection: &CollectionName,
        page: PageRequest<DocumentId>,
    ) -> Result<Page<Document, DocumentId>> {
        Err(Error::not_implemented("vectors.list"))
    }

    /// Lists collections in the byte order of their names.
    ///
    /// - **VEC-039** Each collection is listed once with its dimension and the number of its documents, and stays listed
    ///   when its documents are deleted.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(limit) plus the cost of finding the start and of counting.
    async fn list_collections(
        &self,
        page: PageRequest<CollectionName>,
    ) -> Result<Page<CollectionInfo, CollectionName>> {
        Err(Error::not_implemented("vectors.list_collections"))
    }

    /// Removes a collection with all its documents. Returns `true` if the collection existed.
    ///
    /// - **VEC-040** A dropped collection is empty and not listed, and other collections stay.
    /// - **VEC-041** A collection made anew after a drop may have another dimension; deleting all documents does not free
    ///   the dimension.
    /// - **VEC-042** Dropping a collection that does not exist answers that it was not there.
    ///
    /// # Errors
    /// Only errors of the backend itself.
    ///
    /// # Cancellation
    /// The collection is dropped completely or not at all.
    ///
    /// # Complexity
    /// O(documents of the collection).
    async fn drop_collection(&self, collection: &CollectionName) -> Result<bool> {
        Err(Error::not_implemented("vectors.drop_collection"))
    }
}
