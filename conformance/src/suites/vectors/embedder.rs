//! Documents without embeddings, with and without an embedder in the store.

use std::sync::Arc;

use async_trait::async_trait;
use larder_kernel::{
    Document, Embedder, Embedding, Error, ErrorKind, Metadata, PageRequest, PutMode, Result, SearchRequest,
    VectorStore,
};

use super::support::{collection, document, holds, id, read, same_document};
use crate::case::CaseResult;
use crate::context::{Context, Handles};
use crate::expect;
use crate::harness::OpenOptions;

const DIMENSIONS: usize = 4;

/// Embeds a text by its first bytes, so that different texts of the cases get different embeddings.
#[derive(Debug)]
struct ByBytes {
    dimensions: usize,
}

fn by_bytes(text: &str, dimensions: usize) -> Result<Embedding> {
    let byte = |place: usize| f32::from(text.as_bytes().get(place).copied().unwrap_or(1)) + 0.25;
    Embedding::new((0..dimensions).map(byte).collect::<Vec<f32>>())
}

#[async_trait]
impl Embedder for ByBytes {
    fn dimensions(&self) -> usize {
        self.dimensions
    }

    async fn embed(&self, texts: &[&str]) -> Result<Vec<Embedding>> {
        // A model returns its result after a wait.
        tokio::task::yield_now().await;
        texts.iter().map(|text| by_bytes(text, self.dimensions)).collect()
    }
}

#[derive(Debug)]
struct OutOfCredit;

#[async_trait]
impl Embedder for OutOfCredit {
    fn dimensions(&self) -> usize {
        DIMENSIONS
    }

    async fn embed(&self, _: &[&str]) -> Result<Vec<Embedding>> {
        Err(Error::new(ErrorKind::ResourceExhausted, "embedder.embed", "out of credit"))
    }
}

async fn opened(context: &Context, embedder: Arc<dyn Embedder>) -> CaseResult<Arc<dyn VectorStore>> {
    let options = OpenOptions::default().with_embedder(embedder);
    Ok(context.open_with(&context.namespace, &options).await?.vectors()?)
}

pub(super) async fn missing_embeddings_are_computed(context: Context) -> CaseResult {
    let store = opened(&context, Arc::new(ByBytes { dimensions: DIMENSIONS })).await?;
    let Handles { b, .. } = context.vectors().await?;
    let notes = collection("notes")?;
    let given = document("given", &[1.0, -1.0, 0.5, 0.25])?;
    let batch = vec![
        Document::new(id("zebra")?, "zebra crossing"),
        given.clone(),
        Document::new(id("apple")?, "apple tree").with_metadata(Metadata::new().with("kind", "fruit")),
        Document::new(id("empty")?, ""),
    ];
    store.put(&notes, batch.clone(), PutMode::IfAbsent).await?;
    let mut expected = Vec::new();
    for one in [&batch[2], &batch[3], &batch[1], &batch[0]] {
        let computed = one.embedding.clone().map_or_else(|| by_bytes(&one.content, DIMENSIONS), Ok)?;
        expected.push(one.clone().with_embedding(computed));
    }
    holds("each with the embedding of the document's text", &*b, &notes, 10, &expected).await?;
    let query = SearchRequest::new(by_bytes("zebra crossing", DIMENSIONS)?).with_limit(1);
    let hits = b.search(&notes, &query).await?;
    let found: Vec<_> = hits.iter().map(|hit| hit.id.as_str()).collect();
    expect::equal("found by the computed embedding", &found, &vec!["zebra"])?;
    let replaced = Document::new(id("zebra")?, "quagga");
    store.put(&notes, vec![replaced.clone()], PutMode::Upsert).await?;
    let expected = replaced.with_embedding(by_bytes("quagga", DIMENSIONS)?);
    same_document("embedded again with the new text", &read(&*b, &notes, &expected.id).await?, &expected)
}

pub(super) async fn computed_embeddings_have_the_dimension_of_the_collection(context: Context) -> CaseResult {
    let store = opened(&context, Arc::new(ByBytes { dimensions: DIMENSIONS + 1 })).await?;
    let notes = collection("notes")?;
    let kept = document("kept", &[1.0, 2.0, 3.0, 4.0])?;
    store.put(&notes, vec![kept.clone()], PutMode::IfAbsent).await?;
    let batch = vec![Document::new(id("new")?, "text"), Document::new(id("other")?, "more")];
    let refused = store.put(&notes, batch, PutMode::Upsert).await;
    expect::invalid("embeddings computed with another dimension", refused, "embedding")?;
    let mixed = vec![document("given", &[1.0, 2.0, 3.0, 4.0])?, Document::new(id("new")?, "text")];
    let refused = store.put(&notes, mixed, PutMode::Upsert).await;
    expect::invalid("a batch of given and computed dimensions", refused, "embedding")?;
    holds("the stored data", &*store, &notes, 10, &[kept]).await
}

pub(super) async fn an_embedder_error_writes_nothing(context: Context) -> CaseResult {
    let store = opened(&context, Arc::new(OutOfCredit)).await?;
    let notes = collection("notes")?;
    let batch = vec![document("given", &[1.0, 2.0, 3.0, 4.0])?, Document::new(id("new")?, "text")];
    let failed = store.put(&notes, batch, PutMode::Upsert).await;
    expect::error("the embedder's own error", failed, ErrorKind::ResourceExhausted)?;
    expect::equal("documents", &store.count(&notes, None).await?, &0)?;
    let given = document("given", &[1.0, 2.0, 3.0, 4.0])?;
    store.put(&notes, vec![given.clone()], PutMode::Upsert).await?;
    holds("a put that needs no embedder", &*store, &notes, 10, &[given]).await
}

pub(super) async fn without_an_embedder_embeddings_must_be_given(context: Context) -> CaseResult {
    let Handles { a, b } = context.vectors().await?;
    let notes = collection("notes")?;
    for mode in [PutMode::IfAbsent, PutMode::Upsert] {
        let batch = vec![document("given", &[1.0, 2.0])?, Document::new(id("lacking")?, "text")];
        expect::invalid(
            "one document lacks its embedding",
            a.put(&notes, batch, mode).await,
            "document.embedding",
        )?;
    }
    expect::equal("documents", &b.count(&notes, None).await?, &0)?;
    expect::equal("collections", &b.list_collections(PageRequest::default()).await?.items, &Vec::new())?;
    let kept = document("given", &[1.0, 2.0])?;
    a.put(&notes, vec![kept.clone()], PutMode::IfAbsent).await?;
    let batch = vec![Document::new(id("given")?, "text")];
    expect::invalid("the id exists", a.put(&notes, batch, PutMode::IfAbsent).await, "document.embedding")?;
    holds("the stored data", &*b, &notes, 10, &[kept]).await
}
