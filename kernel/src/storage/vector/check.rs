//! Checks that every backend runs before its first I/O, and the computation of missing embeddings.

use super::types::{Document, Embedding, SearchRequest};
use crate::agent::model::Embedder;
use crate::check;
use crate::error::{Error, ErrorKind, Result};
use crate::id::DocumentId;
use crate::limits::{
    BATCH_DOCUMENTS_MAX, BATCH_SEARCHES_MAX, DOCUMENT_BYTES_MAX, PAGE_ITEMS_MAX, SEARCH_LIMIT_MAX,
};
use crate::metadata::Metadata;

const PUT: &str = "vectors.put";

/// A checked document that has its embedding.
#[derive(Debug, Clone, PartialEq)]
pub struct PreparedDocument {
    /// The id.
    pub id: DocumentId,
    /// The text.
    pub content: String,
    /// The embedding. All embeddings of a batch have the same dimension.
    pub embedding: Embedding,
    /// The metadata.
    pub metadata: Metadata,
}

impl From<PreparedDocument> for Document {
    fn from(document: PreparedDocument) -> Self {
        Self {
            id: document.id,
            content: document.content,
            embedding: Some(document.embedding),
            metadata: document.metadata,
        }
    }
}

/// Checks the arguments of [`put`](super::VectorStore::put) and computes the missing embeddings.
///
/// # Errors
/// `InvalidInput` naming the field and the limit; the error of the embedder; `Unexpected` if the embedder
/// does not return one embedding for each text. In all cases nothing has been written.
pub async fn prepare(
    documents: Vec<Document>,
    embedder: Option<&dyn Embedder>,
) -> Result<Vec<PreparedDocument>> {
    check::batch(PUT, "documents", documents.len(), BATCH_DOCUMENTS_MAX)?;
    check::distinct(PUT, "documents.id", documents.iter().map(|document| &document.id))?;
    for document in &documents {
        check::text(PUT, "document.content", &document.content, DOCUMENT_BYTES_MAX)?;
        document.metadata.check(PUT, "document.metadata")?;
    }
    check_dimensions(documents.iter().filter_map(|document| document.embedding.as_ref()))?;
    let missing: Vec<&str> = documents
        .iter()
        .filter(|document| document.embedding.is_none())
        .map(|document| document.content.as_str())
        .collect();
    let mut computed = embed(&missing, embedder).await?.into_iter();
    let mut prepared = Vec::with_capacity(documents.len());
    for Document { id, content, embedding, metadata } in documents {
        let embedding = match embedding {
            Some(embedding) => embedding,
            None => computed.next().ok_or_else(wrong_count)?,
        };
        prepared.push(PreparedDocument { id, content, embedding, metadata });
    }
    check_dimensions(prepared.iter().map(|document| &document.embedding))?;
    Ok(prepared)
}

fn check_dimensions<'a>(embeddings: impl Iterator<Item = &'a Embedding>) -> Result<()> {
    let mut first = None;
    for embedding in embeddings {
        let expected = *first.get_or_insert(embedding.dimensions());
        check_dimension(PUT, embedding.dimensions(), expected)?;
    }
    Ok(())
}

/// Refuses an embedding with another dimension than the collection's.
///
/// # Errors
/// `InvalidInput` naming `embedding`, with the actual and the expected dimension.
pub fn check_dimension(operation: &'static str, actual: usize, expected: usize) -> Result<()> {
    if actual == expected {
        return Ok(());
    }
    Err(Error::invalid(
        operation,
        "embedding",
        "differs from the collection's dimension; pass an embedding of that dimension",
    )
    .with_limit(check::size(actual), check::size(expected)))
}

async fn embed(texts: &[&str], embedder: Option<&dyn Embedder>) -> Result<Vec<Embedding>> {
    if texts.is_empty() {
        return Ok(Vec::new());
    }
    let Some(embedder) = embedder else {
        return Err(Error::invalid(
            PUT,
            "document.embedding",
            "is missing, and the store has no embedder; pass an embedding",
        ));
    };
    let embeddings = embedder.embed(texts).await?;
    if embeddings.len() == texts.len() { Ok(embeddings) } else { Err(wrong_count()) }
}

fn wrong_count() -> Error {
    Error::new(
        ErrorKind::Unexpected,
        PUT,
        "the embedder returned another number of embeddings than texts; check the embedder",
    )
    .with_outcome(crate::Outcome::NotApplied)
}

/// Checks the request of a search, except its dimension. The store checks the dimension once it has read the
/// collection.
///
/// # Errors
/// `InvalidInput` naming the field and the limit.
pub fn check_search(operation: &'static str, request: &SearchRequest) -> Result<()> {
    check::at_most(operation, "limit", request.limit, SEARCH_LIMIT_MAX)?;
    if request.score_min.is_some_and(f32::is_nan) {
        return Err(Error::invalid(operation, "score_min", "not a number"));
    }
    request.filter.as_ref().map_or(Ok(()), |filter| filter.check(operation))
}

/// Checks the arguments of [`search_batch`](super::VectorStore::search_batch).
///
/// # Errors
/// `InvalidInput` naming `requests` if there are more than 256, or the invalid field of a request.
pub fn check_search_batch(requests: &[SearchRequest]) -> Result<()> {
    const OPERATION: &str = "vectors.search_batch";
    check::at_most(OPERATION, "requests", requests.len(), BATCH_SEARCHES_MAX)?;
    requests.iter().try_for_each(|request| check_search(OPERATION, request))
}

/// Checks a list of ids to read or delete.
///
/// # Errors
/// `InvalidInput` naming `ids` if there are more than 10,000.
pub fn check_ids<T>(operation: &'static str, ids: &[T]) -> Result<()> {
    check::at_most(operation, "ids", ids.len(), PAGE_ITEMS_MAX)
}
