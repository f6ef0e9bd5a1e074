//! Argument and result types of [`VectorStore`](super::VectorStore).

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::check;
use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::id::{CollectionName, DocumentId};
use crate::limits::{DIMENSIONS_MAX, EMBEDDING_NORM_SQUARED_MAX, EMBEDDING_NORM_SQUARED_MIN};
use crate::metadata::Metadata;
use crate::storage::options::{OptionSet, RequestOption};

/// A vector of 1 to 16,000 finite 32-bit floats whose direction 32-bit arithmetic can express.
///
/// An embedding cannot contain NaN or infinities, and it cannot be the zero vector. Its squared length must
/// be in the normal range of `f32`. For other vectors the cosine is undefined or differs between backends.
/// Cloning shares the numbers.
///
/// ```
/// use larder_kernel::{Embedding, ErrorKind};
///
/// let embedding = Embedding::new(vec![0.6, 0.8])?;
/// assert_eq!(embedding.dimensions(), 2);
/// assert_eq!(Embedding::new(vec![0.0, 0.0]).unwrap_err().kind(), ErrorKind::InvalidInput);
/// # Ok::<(), larder_kernel::Error>(())
/// ```
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<f32>", into = "Vec<f32>")]
pub struct Embedding(Arc<[f32]>);

impl Embedding {
    /// Checks the numbers and creates the embedding.
    ///
    /// # Errors
    /// `InvalidInput` naming `embedding`, with the limit if the number of dimensions is wrong.
    pub fn new(values: impl Into<Arc<[f32]>>) -> Result<Self> {
        const OPERATION: &str = "embedding.new";
        let values = values.into();
        check::batch(OPERATION, "embedding", values.len(), DIMENSIONS_MAX)?;
        if !values.iter().all(|value| value.is_finite()) {
            return Err(Error::invalid(
                OPERATION,
                "embedding",
                "contains NaN or an infinity; pass finite numbers",
            ));
        }
        let norm_squared: f64 = values.iter().map(|value| f64::from(*value) * f64::from(*value)).sum();
        if norm_squared < EMBEDDING_NORM_SQUARED_MIN {
            return Err(Error::invalid(
                OPERATION,
                "embedding",
                "has a length of 0 or close to 0; pass an embedding with a direction",
            ));
        }
        if norm_squared > EMBEDDING_NORM_SQUARED_MAX {
            return Err(Error::invalid(
                OPERATION,
                "embedding",
                "has a length whose square overflows; scale the embedding down",
            ));
        }
        Ok(Self(values))
    }

    /// Returns the number of dimensions.
    #[must_use]
    pub fn dimensions(&self) -> usize {
        self.0.len()
    }

    /// Returns the numbers.
    #[must_use]
    pub fn as_slice(&self) -> &[f32] {
        &self.0
    }

    /// Returns the cosine of the angle between two embeddings, in 64-bit arithmetic, within [-1, 1]; `None`
    /// if their dimensions differ. Search scores equal this value to within 1e-5.
    #[must_use]
    pub fn cosine(&self, other: &Self) -> Option<f64> {
        if self.dimensions() != other.dimensions() {
            return None;
        }
        let (mut dot, mut left, mut right) = (0.0, 0.0, 0.0);
        for (a, b) in self.0.iter().zip(other.0.iter()) {
            let (a, b) = (f64::from(*a), f64::from(*b));
            dot += a * b;
            left += a * a;
            right += b * b;
        }
        Some((dot / (left.sqrt() * right.sqrt())).clamp(-1.0, 1.0))
    }
}

impl std::fmt::Debug for Embedding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Embedding({} dimensions)", self.0.len())
    }
}

impl From<&Self> for Embedding {
    fn from(embedding: &Self) -> Self {
        embedding.clone()
    }
}

impl TryFrom<&[f32]> for Embedding {
    type Error = Error;
    fn try_from(values: &[f32]) -> Result<Self> {
        Self::new(values)
    }
}

impl<const N: usize> TryFrom<[f32; N]> for Embedding {
    type Error = Error;
    fn try_from(values: [f32; N]) -> Result<Self> {
        Self::new(values)
    }
}

impl TryFrom<Vec<f32>> for Embedding {
    type Error = Error;
    fn try_from(values: Vec<f32>) -> Result<Self> {
        Self::new(values)
    }
}

impl From<Embedding> for Vec<f32> {
    fn from(embedding: Embedding) -> Self {
        embedding.0.to_vec()
    }
}

/// A text with its embedding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Document {
    /// The id in the collection.
    pub id: DocumentId,
    /// The text: any UTF-8 up to 1 MiB.
    pub content: String,
    /// The embedding; `None` asks the store's embedder to compute it. A document that was read from a store
    /// has one, except in [`list_matching`](super::VectorStore::list_matching), which leaves embeddings out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embedding: Option<Embedding>,
    /// The metadata that filters match.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
}

impl Document {
    /// Creates a document without an embedding and without metadata.
    #[must_use]
    pub fn new(id: DocumentId, content: impl Into<String>) -> Self {
        Self { id, content: content.into(), embedding: None, metadata: Metadata::new() }
    }

    /// Sets the embedding.
    #[must_use]
    pub fn with_embedding(mut self, embedding: impl Into<Option<Embedding>>) -> Self {
        self.embedding = embedding.into();
        self
    }

    /// Sets the metadata.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }
}

/// The handling of existing ids in a put.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PutMode {
    /// Leaves existing documents unchanged.
    IfAbsent,
    /// Replaces existing documents completely.
    Upsert,
}

/// The result of a put, in the order of the documents given.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[non_exhaustive]
pub struct PutReport {
    /// The ids of the written documents.
    pub written: Vec<DocumentId>,
    /// The ids of the existing documents that were left unchanged.
    pub ignored: Vec<DocumentId>,
}

impl PutReport {
    /// Creates the result of a put.
    #[must_use]
    pub fn new(written: Vec<DocumentId>, ignored: Vec<DocumentId>) -> Self {
        Self { written, ignored }
    }
}

/// The default number of hits of a search.
pub const SEARCH_LIMIT_DEFAULT: usize = 5;

/// A search request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SearchRequest {
    /// The query.
    pub embedding: Embedding,
    /// The maximum number of hits, 0 to 10,000.
    pub limit: usize,
    /// The filter that hits must match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Filter>,
    /// The minimum score of a hit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score_min: Option<f32>,
}

impl SearchRequest {
    /// Creates a request for the five documents most similar to `embedding`.
    #[must_use]
    pub fn new(embedding: Embedding) -> Self {
        Self { embedding, limit: SEARCH_LIMIT_DEFAULT, filter: None, score_min: None }
    }

    /// Sets the maximum number of hits.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the filter that hits must match.
    #[must_use]
    pub fn with_filter(mut self, filter: impl Into<Option<Filter>>) -> Self {
        self.filter = filter.into();
        self
    }

    /// Sets the minimum score of a hit.
    #[must_use]
    pub fn with_score_min(mut self, score_min: f32) -> Self {
        self.score_min = Some(score_min);
        self
    }

    /// Returns the options that are set.
    #[must_use]
    pub fn options(&self) -> OptionSet {
        // Names every field, so that a new field is a compile error here.
        let Self { embedding: _, limit: _, filter, score_min } = self;
        OptionSet::NONE
            .with_if(filter.is_some(), RequestOption::SearchFilter)
            .with_if(score_min.is_some(), RequestOption::SearchScoreMin)
    }
}

/// A hit of a search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SearchHit {
    /// The document's id.
    pub id: DocumentId,
    /// The cosine of the document's embedding and the query, in [-1, 1].
    pub score: f32,
    /// The document's text.
    pub content: String,
    /// The document's metadata.
    #[serde(default, skip_serializing_if = "Metadata::is_empty")]
    pub metadata: Metadata,
}

impl SearchHit {
    /// Creates a hit without metadata.
    #[must_use]
    pub fn new(id: DocumentId, score: f32, content: impl Into<String>) -> Self {
        Self { id, score, content: content.into(), metadata: Metadata::new() }
    }

    /// Sets the metadata.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Metadata) -> Self {
        self.metadata = metadata;
        self
    }
}

/// A collection in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CollectionInfo {
    /// The collection.
    pub collection: CollectionName,
    /// The dimension of the embeddings.
    pub dimensions: usize,
    /// The number of documents.
    pub documents: u64,
}

impl CollectionInfo {
    /// Creates an item of a listing.
    #[must_use]
    pub fn new(collection: CollectionName, dimensions: usize, documents: u64) -> Self {
        Self { collection, dimensions, documents }
    }
}
