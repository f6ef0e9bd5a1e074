//! Documents and similarity search.
// The size of the error type is given by `rig`.
#![allow(clippy::result_large_err)]

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use larder_kernel::limits::{BATCH_DOCUMENTS_MAX, PAGE_ITEMS_MAX, SEARCH_LIMIT_MAX};
use larder_kernel::{
    CollectionName, Document, DocumentId, Embedding, Error, ErrorKind, Metadata, PutMode, Result, SearchHit,
    SearchRequest, VectorStore, canonical_json,
};
use rig_core::driver::DynModel;
use rig_core::embeddings::{Embed, Embedding as RigEmbedding};
use rig_core::operation::Embedding as EmbeddingOp;
use rig_core::vector_store::request::{Filter as RigFilter, VectorSearchRequest};
use rig_core::vector_store::{
    InsertDocuments, VectorSearchIdResult, VectorSearchResult, VectorStoreError, VectorStoreIndex,
};
use rig_core::wasm_compat::WasmCompatSend;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::filter::{DOCUMENT, converted};
use larder_agents::hex::hex;

/// The metadata key of the number of embeddings of the document.
const PARTS: &str = "parts";
/// Separates a document's id from the number of an additional embedding.
const SEPARATOR: char = '\u{1f}';

/// A collection of a [`VectorStore`] as a [`VectorStoreIndex`] and [`InsertDocuments`].
///
/// ```
/// use larder::{Stores, adapters::rig_0_44::VectorIndex};
/// use larder::CollectionName;
/// use rig_core::{DynModel, embeddings::EmbeddingsBuilder, operation::Embedding};
/// use rig_core::vector_store::{InsertDocuments, VectorStoreIndex, request::VectorSearchRequest};
///
/// # async fn example(model: DynModel<Embedding>) -> Result<(), Box<dyn std::error::Error>> {
/// let stores = larder::open("sqlite:./larder.db").await?;
/// let index = VectorIndex::new(stores.vectors()?, CollectionName::new("notes")?, model.clone());
/// let notes = EmbeddingsBuilder::new(model).documents(["pears in autumn", "figs in summer"])?;
/// index.insert_documents(notes.build().await?).await?;
/// let request = VectorSearchRequest::builder().query("fruit for July").samples(1).build();
/// assert_eq!(index.top_n::<String>(request).await?[0].document, "figs in summer");
/// # Ok(())
/// # }
/// ```
///
/// # Documents
/// A document is any value that serializes to JSON. Its id is its field `id` if that is a text or a whole
/// number, and otherwise a digest of the document, so inserting it again changes nothing. Inserting another
/// document under an id replaces it. A search finds a document with several embeddings once, by the nearest
/// of them.
///
/// The embedded text is stored as the text, and the document as metadata: at most 64 KiB and 31 levels,
/// without NUL. Filters apply to its top-level fields and match as
/// [`Filter::satisfies`](RigFilter::satisfies) does.
///
/// # Scores
/// Scores are cosines in [-1, 1], highest first; `threshold` is the minimum. Embeddings are stored with 32
/// bits per number.
///
/// # Errors
/// `DatastoreError`, whose source is a [`larder_kernel::Error`]:
///
/// - `InvalidInput` for an embedding without a direction or with another dimension than the collection's, for
///   a document without embeddings or over its limits, or for an id over its limit;
/// - `Corrupt` for documents in the collection that no [`VectorIndex`] wrote.
///
/// `SamplesOutOfRange` above 10,000 samples, `JsonError` for a document that does not have the requested
/// type, and the model's own error.
///
/// # Cancellation
/// Documents are written in batches of up to 1,000 embeddings, each batch all or none. Inserting the
/// documents again completes an interrupted insert.
#[derive(Clone)]
pub struct VectorIndex {
    vectors: Arc<dyn VectorStore>,
    collection: CollectionName,
    model: DynModel<EmbeddingOp>,
}

impl VectorIndex {
    /// Creates an index over a collection. The model embeds the queries, and must be the model that embedded
    /// the documents.
    #[must_use]
    pub fn new(
        vectors: impl Into<Arc<dyn VectorStore>>,
        collection: CollectionName,
        model: impl Into<DynModel<EmbeddingOp>>,
    ) -> Self {
        Self { vectors: vectors.into(), collection, model: model.into() }
    }

    async fn write(&self, documents: Vec<Insert>) -> Result<()> {
        let mut batch: Vec<Insert> = Vec::new();
        let mut size = 0;
        for document in documents {
            if size + document.embeddings.len() > BATCH_DOCUMENTS_MAX && !batch.is_empty() {
                self.write_batch(std::mem::take(&mut batch)).await?;
                size = 0;
            }
            size += document.embeddings.len();
            batch.push(document);
        }
        if batch.is_empty() { Ok(()) } else { self.write_batch(batch).await }
    }

    async fn write_batch(&self, batch: Vec<Insert>) -> Result<()> {
        let ids = batch.iter().map(|insert| part_id(&insert.id, 0)).collect::<Result<Vec<_>>>()?;
        let before = self.vectors.get(&self.collection, &ids).await?;
        let mut stale = Vec::new();
        for (insert, before) in batch.iter().zip(&before) {
            let had = before.as_ref().and_then(|before| before.metadata.get(PARTS)).and_then(Value::as_u64);
            let had = usize::try_from(had.unwrap_or_default()).unwrap_or_default().min(PAGE_ITEMS_MAX);
            for part in insert.embeddings.len()..had {
                stale.push(part_id(&insert.id, part)?);
            }
        }
        let documents = batch.into_iter().map(Insert::documents).collect::<Result<Vec<_>>>()?.concat();
        self.vectors.put(&self.collection, documents, PutMode::Upsert).await?;
        for ids in stale.chunks(PAGE_ITEMS_MAX) {
            self.vectors.delete(&self.collection, ids).await?;
        }
        Ok(())
    }

    /// Returns the nearest documents, each once.
    async fn search(
        &self,
        request: &VectorSearchRequest<RigFilter<Value>>,
    ) -> Result<Vec<SearchHit>, VectorStoreError> {
        let out_of_range = || VectorStoreError::SamplesOutOfRange {
            requested: request.samples(),
            max: SEARCH_LIMIT_MAX as u64,
        };
        let samples = usize::try_from(request.samples()).map_err(|_| out_of_range())?;
        if samples > SEARCH_LIMIT_MAX {
            return Err(out_of_range());
        }
        if samples == 0 {
            return Ok(Vec::new());
        }
        let query = self.model.embed_text(request.query()).await?;
        let embedding = narrowed(&query.vec).map_err(VectorStoreError::datastore)?;
        let mut search = SearchRequest::new(embedding);
        search.filter = request.filter().map(converted);
        search.score_min = request.threshold().map(nearest);
        let mut limit = samples;
        loop {
            let search = search.clone().with_limit(limit);
            let found = self.vectors.search(&self.collection, &search).await;
            let mut hits = found.map_err(VectorStoreError::datastore)?;
            let (asked, got) = (limit, hits.len());
            let mut seen = HashSet::new();
            hits.retain(|hit| seen.insert(document_id(&hit.id).to_owned()));
            // Several embeddings of one document may have filled the result.
            if hits.len() >= samples || got < asked || asked == SEARCH_LIMIT_MAX {
                hits.truncate(samples);
                return Ok(hits);
            }
            limit = (asked * 2).min(SEARCH_LIMIT_MAX);
        }
    }
}

/// A document to insert.
struct Insert {
    id: String,
    document: Value,
    embeddings: Vec<RigEmbedding>,
}

impl Insert {
    fn new(document: Value, embeddings: Vec<RigEmbedding>) -> Result<Self> {
        let id = match document.get("id") {
            Some(Value::String(id)) => id.clone(),
            Some(Value::Number(id)) if id.is_i64() || id.is_u64() => id.to_string(),
            _ => digest(&document)?,
        };
        if id.contains(SEPARATOR) {
            return Err(Error::invalid(
                "rig.insert",
                "document.id",
                "contains the character U+001F; remove it",
            ));
        }
        if embeddings.is_empty() || embeddings.len() > BATCH_DOCUMENTS_MAX {
            let error = Error::invalid(
                "rig.insert",
                "embeddings",
                "has no embedding or more than 1,000; pass 1 to 1,000 embeddings",
            );
            return Err(error.with_limit(embeddings.len() as u64, BATCH_DOCUMENTS_MAX as u64));
        }
        Ok(Self { id, document, embeddings })
    }

    /// Returns one stored document per embedding.
    fn documents(self) -> Result<Vec<Document>> {
        let Self { id, document, embeddings } = self;
        let metadata = Metadata::new().with(DOCUMENT, document).with(PARTS, embeddings.len());
        let stored = embeddings.into_iter().enumerate().map(|(part, embedding)| {
            Ok(Document::new(part_id(&id, part)?, embedding.document)
                .with_embedding(narrowed(&embedding.vec)?)
                .with_metadata(metadata.clone()))
        });
        stored.collect()
    }
}

fn digest(document: &Value) -> Result<String> {
    Ok(hex(&Sha256::digest(canonical_json(document)?.as_bytes())))
}

fn part_id(id: &str, part: usize) -> Result<DocumentId> {
    if part == 0 { DocumentId::new(id) } else { DocumentId::new(format!("{id}{SEPARATOR}{part}")) }
}

fn document_id(id: &DocumentId) -> &str {
    let id = id.as_str();
    id.split_once(SEPARATOR).map_or(id, |(id, _)| id)
}

fn narrowed(values: &[f64]) -> Result<Embedding> {
    Embedding::new(values.iter().copied().map(nearest).collect::<Vec<_>>())
}

/// Stores keep 32 bits. A larger value becomes an infinity, which they refuse.
#[allow(clippy::cast_possible_truncation)]
fn nearest(value: f64) -> f32 {
    value as f32
}

fn document(hit: SearchHit) -> Result<Value> {
    hit.metadata.into_map().remove(DOCUMENT).ok_or_else(|| {
        Error::new(
            ErrorKind::Corrupt,
            "rig.search",
            "the collection contains documents of another writer; use another collection",
        )
    })
}

impl InsertDocuments for VectorIndex {
    async fn insert_documents<Doc: Serialize + Embed + WasmCompatSend>(
        &self,
        documents: Vec<(Doc, Vec<RigEmbedding>)>,
    ) -> Result<(), VectorStoreError> {
        let inserts = documents.into_iter().map(|(document, embeddings)| {
            let document = serde_json::to_value(&document)?;
            Insert::new(document, embeddings).map_err(VectorStoreError::datastore)
        });
        let inserts = inserts.collect::<Result<Vec<_>, _>>()?;
        self.write(inserts).await.map_err(VectorStoreError::datastore)
    }
}

impl VectorStoreIndex for VectorIndex {
    type Filter = RigFilter<Value>;

    async fn top_n<T: DeserializeOwned + WasmCompatSend>(
        &self,
        req: VectorSearchRequest<Self::Filter>,
    ) -> Result<Vec<VectorSearchResult<T>>, VectorStoreError> {
        let hits = self.search(&req).await?.into_iter().map(|hit| {
            let (score, id) = (f64::from(hit.score), document_id(&hit.id).to_owned());
            let document = document(hit).map_err(VectorStoreError::datastore)?;
            Ok(VectorSearchResult { score, id, document: serde_json::from_value(document)? })
        });
        hits.collect()
    }

    async fn top_n_ids(
        &self,
        req: VectorSearchRequest<Self::Filter>,
    ) -> Result<Vec<VectorSearchIdResult>, VectorStoreError> {
        let hits = self.search(&req).await?.into_iter();
        let named = |hit: SearchHit| {
            let id = document_id(&hit.id).to_owned();
            VectorSearchIdResult { score: f64::from(hit.score), id }
        };
        Ok(hits.map(named).collect())
    }
}

impl fmt::Debug for VectorIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VectorIndex").field("vectors", &self.vectors).finish_non_exhaustive()
    }
}
