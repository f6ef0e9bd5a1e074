//! Semantic search: the contract of [`VectorStore`].
//!
//! Documents are stored in collections. Each document has an embedding, and all embeddings of a collection
//! have the same dimension. Searches rank by cosine similarity.

mod check;
mod types;
mod update;

use async_trait::async_trait;

pub use check::{PreparedDocument, check_dimension, check_ids, check_search, check_search_batch, prepare};
pub use types::{
    CollectionInfo, Document, Embedding, PutMode, PutReport, SEARCH_LIMIT_DEFAULT, SearchHit, SearchRequest,
};
pub use update::{MetadataMode, MetadataReport, MetadataUpdate, check_metadata_updates};

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
    /// - **VEC-001** A document reads back equal: text byte for byte, metadata by JSON equality, embedding
    ///   bit for bit.
    /// - **VEC-002** With `IfAbsent`, documents whose ids exist do not change, and `put` returns the ids
    ///   written and the ids ignored.
    /// - **VEC-003** With `Upsert`, existing documents are replaced completely: no old text, metadata or
    ///   embedding remains.
    /// - **VEC-004** A batch is stored completely or not at all.
    /// - **VEC-005** The first embedding sets the dimension of the collection, and a batch with another
    ///   dimension fails with `InvalidInput` and writes nothing.
    /// - **VEC-006** A batch that mixes dimensions or repeats an id fails with `InvalidInput` and writes
    ///   nothing.
    /// - **VEC-007** A document without an embedding gets the embedding that the embedder computes from the
    ///   document's text.
    /// - **VEC-008** Without an embedder, a batch with a document that has no embedding fails with
    ///   `InvalidInput` and writes nothing.
    /// - **VEC-009** Collections are separate: the same id in two collections identifies two documents, each
    ///   with its own dimension.
    /// - **VEC-010** Of concurrent `IfAbsent` puts of one id, exactly one writes the document.
    /// - **VEC-011** Of concurrent first puts with different dimensions, exactly one sets the dimension, and
    ///   the others fail with `InvalidInput`.
    /// - **VEC-012** A collection accepts embeddings of 1 to 16,000 dimensions.
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

    /// Changes the metadata of documents without their texts and embeddings: replaces it, or merges keys into
    /// it.
    ///
    /// A merge works on the keys at the top level. It cannot remove a key; `null` is a value.
    ///
    /// - **VEC-043** With `Replace`, `update_metadata` replaces the metadata of each given document
    ///   completely, and the text and every bit of the embedding remain.
    /// - **VEC-044** With `Merge`, `update_metadata` replaces the top-level keys that it names and keeps all
    ///   other keys of each given document, and the text and every bit of the embedding remain.
    /// - **VEC-045** `update_metadata` creates no document and no collection, and returns the ids updated and
    ///   the ids without a document.
    /// - **VEC-046** A batch of updates is applied completely or not at all.
    /// - **VEC-047** A merge with a result that exceeds the limits of metadata fails with `InvalidInput` for
    ///   the field `document.metadata`, and changes no document of the batch.
    /// - **VEC-048** Concurrent merges of different keys into one document lose no key.
    /// - **VEC-049** Searches, counts, deletions and listings with a filter use the updated metadata, and
    ///   the scores of a search do not change.
    ///
    /// # Errors
    /// `InvalidInput` for 0 or more than 1,000 updates, a duplicate id, or refused metadata.
    ///
    /// # Cancellation
    /// The batch is applied completely or not at all.
    ///
    /// # Complexity
    /// O(metadata of the batch). A store that keeps the text in the row of its metadata also copies the texts
    /// of the updated documents. With an approximate index of Postgres, the server also indexes each updated
    /// document again.
    async fn update_metadata(
        &self,
        collection: &CollectionName,
        updates: Vec<MetadataUpdate>,
        mode: MetadataMode,
    ) -> Result<MetadataReport> {
        Err(Error::not_implemented("vectors.update_metadata"))
    }

    /// Reads documents by their ids.
    ///
    /// - **VEC-013** `get` returns one item for each requested id, in the order of the ids, and `None` for a
    ///   document that does not exist.
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
    /// - **VEC-020** Hits are returned in descending order of score, and each score equals the cosine of the
    ///   two embeddings to within 1e-5, whatever the lengths of the embeddings.
    /// - **VEC-021** Every score is in [-1, 1].
    /// - **VEC-022** Documents with the same embedding have the same score and are returned in the byte order
    ///   of their ids.
    /// - **VEC-023** A search returns as many hits as the limit and the matching documents allow, with every
    ///   index.
    /// - **VEC-024** Only documents that match the filter are returned, and the limit counts only matching
    ///   documents.
    /// - **VEC-025** With a score floor, only hits with at least that score are returned.
    /// - **VEC-026** A limit of 0 returns no hits.
    /// - **VEC-027** Searching a collection that does not exist returns no hits.
    /// - **VEC-028** A query whose dimension differs from the collection's dimension fails with
    ///   `InvalidInput` for the field `embedding`.
    /// - **VEC-029** Filters follow [`Filter::matches`]: `true` does not equal `1`, `1` equals `1.0`, and an
    ///   absent field equals nothing.
    /// - **VEC-050** `contains_any` matches an array with an element that equals one of the values,
    ///   `contains_all` matches an array with an equal element for each of the values, and neither matches a
    ///   value that is not an array.
    /// - **VEC-030** Each hit contains the document's text and metadata.
    /// - **VEC-031** A search finds a replaced document by its new embedding and not by its old one, and does
    ///   not find a deleted document.
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
    /// - **VEC-032** `search_batch` returns the results of the single searches, in the order of the requests.
    /// - **VEC-033** One invalid request makes the whole call fail with `InvalidInput`.
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
    /// - **VEC-034** `delete` returns the number of given ids that existed and counts a repeated id once.
    /// - **VEC-035** Deleting ids that do not exist, or from a collection that does not exist, succeeds.
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
    /// - **VEC-036** `delete_matching` deletes exactly the documents that match and returns their number.
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
    /// - **VEC-037** `count` returns the number of documents that match, and 0 for a collection that does not
    ///   exist.
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
    /// - **VEC-038** Paging with any limit returns every document that exists for the whole listing exactly
    ///   once, in the byte order of ids.
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

    /// Lists the documents that match a filter, in the byte order of their ids, without their embeddings.
    ///
    /// - **VEC-051** `list_matching` returns exactly the documents that match, with text and metadata and
    ///   without an embedding.
    /// - **VEC-052** Paging with any limit returns every document that exists and matches for the whole
    ///   listing exactly once, in the byte order of ids, and each page is as full as its limit and the
    ///   matching documents allow.
    ///
    /// # Errors
    /// `InvalidInput` for a limit over 10,000 or a filter that [`Filter::check`] refuses.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// O(documents between the start of the page and its end). A page is read from one snapshot.
    async fn list_matching(
        &self,
        collection: &CollectionName,
        filter: &Filter,
        page: PageRequest<DocumentId>,
    ) -> Result<Page<Document, DocumentId>> {
        Err(Error::not_implemented("vectors.list_matching"))
    }

    /// Lists collections in the byte order of their names.
    ///
    /// - **VEC-039** Each collection is listed once, with its dimension and the number of its documents, and
    ///   remains listed after its documents are deleted.
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
    /// - **VEC-040** A dropped collection is empty and not listed, and other collections do not change.
    /// - **VEC-041** A collection created again after a drop may have another dimension, but deleting all
    ///   documents does not release the dimension.
    /// - **VEC-042** Dropping a collection that does not exist returns `false`.
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
