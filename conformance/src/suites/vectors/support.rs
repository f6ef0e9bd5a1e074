//! The data of the cases, and functions that compare results.

use larder_kernel::{
    CollectionName, Document, DocumentId, Embedding, Metadata, PageRequest, PutMode, SearchHit,
    SearchRequest, VectorStore,
};
use tokio::task::JoinSet;

use crate::case::{CaseResult, implemented};
use crate::context::Context;
use crate::expect;

/// The largest difference between a score and the cosine.
pub(super) const TOLERANCE: f64 = 1e-5;

pub(super) fn collection(name: &str) -> CaseResult<CollectionName> {
    Ok(CollectionName::new(name)?)
}

pub(super) fn id(text: &str) -> CaseResult<DocumentId> {
    Ok(DocumentId::new(text)?)
}

pub(super) fn ids<T: AsRef<str>>(texts: &[T]) -> CaseResult<Vec<DocumentId>> {
    texts.iter().map(|text| id(text.as_ref())).collect()
}

pub(super) fn embedding(values: &[f32]) -> CaseResult<Embedding> {
    Ok(Embedding::new(values.to_vec())?)
}

/// Returns a document whose text is derived from its id.
pub(super) fn document(text_id: &str, values: &[f32]) -> CaseResult<Document> {
    Ok(Document::new(id(text_id)?, format!("text of {text_id}")).with_embedding(embedding(values)?))
}

pub(super) fn tagged(text_id: &str, values: &[f32], metadata: Metadata) -> CaseResult<Document> {
    Ok(document(text_id, values)?.with_metadata(metadata))
}

/// Returns numbers in (-1, 1) from the case's seed, none of them zero.
pub(super) fn random_values(context: &Context, draw: u64, dimensions: u64) -> Vec<f32> {
    let number = |place: u64| {
        let bits = context.random(draw.wrapping_mul(100_003).wrapping_add(place)) & 0xFFFF;
        (f32::from(u16::try_from(bits).unwrap_or_default()) + 0.5) / 32_768.0 - 1.0
    };
    (0..dimensions).map(number).collect()
}

/// Returns `count` documents with embeddings from the case's seed. The order of their ids differs from the
/// order of creation.
pub(super) fn random_documents(context: &Context, count: u64, dimensions: u64) -> CaseResult<Vec<Document>> {
    let one = |number: u64| {
        let name = format!("{:04x}-{number}", context.random(900_000 + number) & 0xFFFF);
        document(&name, &random_values(context, number + 1, dimensions))
    };
    (0..count).map(one).collect()
}

/// Writes all documents as new ones, in batches.
pub(super) async fn put_all(
    store: &dyn VectorStore,
    collection: &CollectionName,
    documents: &[Document],
) -> CaseResult {
    for batch in documents.chunks(500) {
        let report = store.put(collection, batch.to_vec(), PutMode::IfAbsent).await?;
        expect::equal("documents written", &report.written.len(), &batch.len())?;
    }
    Ok(())
}

/// Returns every document of the collection, page by page, and checks that each page respects its limit and
/// advances.
pub(super) async fn list_all(
    store: &dyn VectorStore,
    collection: &CollectionName,
    limit: usize,
) -> CaseResult<Vec<Document>> {
    let mut all: Vec<Document> = Vec::new();
    let mut request = PageRequest::first(limit);
    loop {
        let page = store.list(collection, request.clone()).await?;
        expect::that(page.items.len() <= limit, format!("a page of at most {limit}"), page.items.len())?;
        all.extend(page.items);
        let Some(next) = page.next else { return Ok(all) };
        let moved = request.after.as_ref().is_none_or(|before| *before < next);
        expect::that(moved, "a next page after this one", &next)?;
        request = PageRequest::after(next, limit);
    }
}

/// Checks that the collection contains exactly these documents, in this order, read in pages of `limit`. A
/// store that cannot list yet is asked for each of them.
pub(super) async fn holds(
    what: &str,
    store: &dyn VectorStore,
    collection: &CollectionName,
    limit: usize,
    expected: &[Document],
) -> CaseResult {
    if implemented(store.list(collection, PageRequest::first(1)).await)?.is_some() {
        return same_documents(what, &list_all(store, collection, limit).await?, expected);
    }
    let ids: Vec<_> = expected.iter().map(|document| document.id.clone()).collect();
    let found = store.get(collection, &ids).await?;
    same_documents(what, &found.into_iter().flatten().collect::<Vec<_>>(), expected)
}

fn bits(document: &Document) -> Option<Vec<u32>> {
    let embedding = document.embedding.as_ref()?;
    Some(embedding.as_slice().iter().map(|value| value.to_bits()).collect())
}

/// Checks that the documents agree in id, text, metadata and every bit of the embedding.
pub(super) fn same_document(what: &str, got: &Document, expected: &Document) -> CaseResult {
    expect::equal(&format!("{what}: id"), &got.id, &expected.id)?;
    expect::equal(&format!("{what}: text"), &got.content, &expected.content)?;
    expect::equal(&format!("{what}: metadata"), &got.metadata, &expected.metadata)?;
    expect::equal(&format!("{what}: bits of the embedding"), &bits(got), &bits(expected))
}

pub(super) fn same_documents(what: &str, got: &[Document], expected: &[Document]) -> CaseResult {
    let names = |documents: &[Document]| documents.iter().map(|one| one.id.clone()).collect::<Vec<_>>();
    expect::equal(&format!("{what}: ids"), &names(got), &names(expected))?;
    got.iter().zip(expected).try_for_each(|(got, expected)| same_document(what, got, expected))
}

/// Reads one document that must exist.
pub(super) async fn read(
    store: &dyn VectorStore,
    collection: &CollectionName,
    id: &DocumentId,
) -> CaseResult<Document> {
    let mut found = store.get(collection, std::slice::from_ref(id)).await?;
    expect::equal("positions in the result", &found.len(), &1)?;
    expect::some("the document", found.pop().flatten())
}

pub(super) fn sorted(mut documents: Vec<Document>) -> Vec<Document> {
    documents.sort_by(|left, right| left.id.cmp(&right.id));
    documents
}

pub(super) fn hit_ids(hits: &[SearchHit]) -> Vec<DocumentId> {
    hits.iter().map(|hit| hit.id.clone()).collect()
}

/// Returns the exact result: matching documents with their cosines, best first, ties by id, cut to the limit.
pub(super) fn reference(documents: &[Document], request: &SearchRequest) -> Vec<(Document, f64)> {
    let mut scored: Vec<(Document, f64)> = documents
        .iter()
        .filter(|document| request.filter.as_ref().is_none_or(|filter| filter.matches(&document.metadata)))
        .filter_map(|document| {
            let score = document.embedding.as_ref()?.cosine(&request.embedding)?;
            Some((document.clone(), score))
        })
        .filter(|(_, score)| request.score_min.is_none_or(|least| *score >= f64::from(least)))
        .collect();
    scored.sort_by(|left, right| right.1.total_cmp(&left.1).then_with(|| left.0.id.cmp(&right.0.id)));
    scored.truncate(request.limit);
    scored
}

/// Checks that the hits are a valid result: the required number and, at each rank, the required score to
/// within the tolerance. Each hit must be a matching document with its score, text and metadata, and none may
/// repeat.
pub(super) fn same_answer(
    what: &str,
    hits: &[SearchHit],
    documents: &[Document],
    request: &SearchRequest,
) -> CaseResult {
    let exact = reference(documents, request);
    expect::equal(&format!("{what}: number of hits"), &hits.len(), &exact.len())?;
    let mut seen = std::collections::BTreeSet::new();
    for (rank, (hit, (_, score))) in hits.iter().zip(&exact).enumerate() {
        let place = format!("{what}: hit {rank}");
        expect::that(seen.insert(hit.id.clone()), format!("{place} once"), &hit.id)?;
        near(&format!("{place}: score of the rank"), hit.score, *score)?;
        let own = documents.iter().find(|document| document.id == hit.id);
        let own = expect::some(&format!("{place}: its document"), own)?;
        let matching = request.filter.as_ref().is_none_or(|filter| filter.matches(&own.metadata));
        expect::that(matching, format!("{place} to match the filter"), &hit.metadata)?;
        let cosine = own.embedding.as_ref().and_then(|embedding| embedding.cosine(&request.embedding));
        near(&format!("{place}: its own score"), hit.score, expect::some("a cosine", cosine)?)?;
        expect::equal(&format!("{place}: text"), &hit.content, &own.content)?;
        expect::equal(&format!("{place}: metadata"), &hit.metadata, &own.metadata)?;
    }
    let descending = hits.windows(2).all(|pair| pair[0].score >= pair[1].score);
    let scores: Vec<f32> = hits.iter().map(|hit| hit.score).collect();
    expect::that(descending, format!("{what}: scores in descending order"), scores)
}

/// Checks that the score is the cosine to within the tolerance.
pub(super) fn near(what: &str, score: f32, cosine: f64) -> CaseResult {
    let close = (f64::from(score) - cosine).abs() <= TOLERANCE;
    expect::that(close, format!("{what}: {cosine} within {TOLERANCE}"), score)
}

/// Returns the results of concurrent tasks, in the order in which they ended.
pub(crate) async fn joined<T: 'static>(mut tasks: JoinSet<CaseResult<T>>) -> CaseResult<Vec<T>> {
    let mut results = Vec::new();
    while let Some(ended) = tasks.join_next().await {
        results.push(ended??);
    }
    Ok(results)
}
