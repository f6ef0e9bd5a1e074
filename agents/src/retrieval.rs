//! Searches whose hits differ from each other.
//!
//! The nearest documents often repeat one another: versions of one text, or parts that overlap. A
//! [`DiverseSearch`] takes more candidates than it returns. It chooses candidates that are similar to the
//! query and unlike the ones already chosen.
//!
//! # Source
//! Maximal marginal relevance is from Carbonell and Goldstein, *The Use of MMR, Diversity-Based Reranking for
//! Reordering Documents and Producing Summaries* (SIGIR 1998).

use larder_kernel::limits::SEARCH_LIMIT_MAX;
use larder_kernel::storage::vector::check_dimension;
use larder_kernel::{
    CollectionName, DocumentId, Embedding, Error, Result, SearchHit, SearchRequest, VectorStore, check,
};

use crate::internal::offload;

/// The default number of candidates for each hit that a search returns.
pub const CANDIDATES_PER_HIT_DEFAULT: usize = 4;
/// The minimum of the default number of candidates.
pub const CANDIDATES_DEFAULT_MIN: usize = 20;
/// The maximum number of candidates of a search.
pub const CANDIDATES_MAX: usize = 1_000;
/// The default weight of relevance compared with diversity.
pub const LAMBDA_DEFAULT: f64 = 0.5;

const RERANK: &str = "retrieval.maximal_marginal_relevance";
const SEARCH: &str = "retrieval.diverse_search";

/// Returns the positions of up to `limit` candidates, in the order of their choice.
///
/// The first is the candidate most similar to the query. Each further one has the greatest `lambda × s − (1 −
/// lambda) × d`, where `s` is its cosine with the query and `d` its greatest cosine with a chosen candidate.
/// Of equal candidates, the first is chosen. With a `lambda` of 1, the order is that of a plain search,
/// except for scores that differ only by rounding; with 0, only the first choice depends on the query.
///
/// ```
/// use larder_agents::retrieval::maximal_marginal_relevance;
/// use larder_kernel::Embedding;
///
/// let query = Embedding::new([1.0, 0.0])?;
/// let candidates = [[1.0, 0.1], [1.0, 0.11], [0.8, -0.6]].map(|values| Embedding::new(values).unwrap());
/// assert_eq!(maximal_marginal_relevance(&query, &candidates, 2, 1.0)?, [0, 1]);
/// assert_eq!(maximal_marginal_relevance(&query, &candidates, 2, 0.5)?, [0, 2]);
/// # Ok::<(), larder_kernel::Error>(())
/// ```
///
/// # Errors
/// `InvalidInput` for more than 10,000 candidates, a `lambda` outside 0 to 1, or a candidate with another
/// dimension than the query.
///
/// # Complexity
/// O(limit × candidates × dimensions), on the caller's thread.
pub fn maximal_marginal_relevance(
    query: &Embedding,
    candidates: &[Embedding],
    limit: usize,
    lambda: f64,
) -> Result<Vec<usize>> {
    check::at_most(RERANK, "candidates", candidates.len(), SEARCH_LIMIT_MAX)?;
    check_lambda(RERANK, lambda)?;
    for candidate in candidates {
        check_dimension(RERANK, candidate.dimensions(), query.dimensions())?;
    }
    // The dimensions are equal, so there is a cosine.
    let cosine = |left: &Embedding, right: &Embedding| left.cosine(right).unwrap_or_default();
    let relevance: Vec<f64> = candidates.iter().map(|candidate| cosine(candidate, query)).collect();
    let mut redundancy = vec![f64::NEG_INFINITY; candidates.len()];
    let mut left: Vec<usize> = (0..candidates.len()).collect();
    let mut chosen = Vec::with_capacity(limit.min(candidates.len()));
    while chosen.len() < limit {
        let value = |at: usize| match chosen.is_empty() {
            true => relevance[at],
            false => lambda * relevance[at] - (1.0 - lambda) * redundancy[at],
        };
        // The last of the greatest in reverse order is the first.
        let best = left.iter().rev().copied().max_by(|one, other| value(*one).total_cmp(&value(*other)));
        let Some(best) = best else { break };
        left.retain(|at| *at != best);
        for at in &left {
            redundancy[*at] = redundancy[*at].max(cosine(&candidates[*at], &candidates[best]));
        }
        chosen.push(best);
    }
    Ok(chosen)
}

fn check_lambda(operation: &'static str, lambda: f64) -> Result<()> {
    if (0.0..=1.0).contains(&lambda) {
        return Ok(());
    }
    Err(Error::invalid(operation, "lambda", "is not from 0 to 1; pass 1 for relevance alone"))
}

/// A search whose hits are similar to the query and unlike each other.
///
/// ```
/// use larder_agents::retrieval::DiverseSearch;
/// use larder_agents::storage::InMemoryVectorStore;
/// use larder_kernel::{
///     CollectionName, Document, DocumentId, Embedding, PutMode, SearchRequest, VectorStore,
/// };
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let (store, notes) = (InMemoryVectorStore::new(), CollectionName::new("notes")?);
/// let note = |id: &str, values: [f32; 2]| {
///     Document::new(DocumentId::new(id).unwrap(), id).with_embedding(Embedding::new(values).unwrap())
/// };
/// let notes_of_ada =
///     vec![note("tea", [1.0, 0.1]), note("tea again", [1.0, 0.11]), note("train", [0.8, -0.6])];
/// store.put(&notes, notes_of_ada, PutMode::Upsert).await?;
///
/// let request = SearchRequest::new(Embedding::new([1.0, 0.0])?).with_limit(2);
/// let hits = DiverseSearch::new(request).search(&store, &notes).await?;
/// assert_eq!(hits.iter().map(|hit| hit.id.as_str()).collect::<Vec<_>>(), ["tea", "train"]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct DiverseSearch {
    request: SearchRequest,
    candidates: usize,
    lambda: f64,
}

impl DiverseSearch {
    /// Creates a search with the limit, filter and minimum score of `request`, four candidates for each hit
    /// but at least 20, and a `lambda` of 0.5.
    #[must_use]
    pub fn new(request: SearchRequest) -> Self {
        let candidates = request.limit.saturating_mul(CANDIDATES_PER_HIT_DEFAULT);
        let most = CANDIDATES_MAX.max(request.limit);
        Self { candidates: candidates.clamp(CANDIDATES_DEFAULT_MIN, most), lambda: LAMBDA_DEFAULT, request }
    }

    /// Sets the number of nearest documents from which the hits are chosen: from the limit of the request to
    /// 1,000.
    #[must_use]
    pub fn with_candidates(mut self, candidates: usize) -> Self {
        self.candidates = candidates;
        self
    }

    /// Sets the weight of relevance: 1 ranks by relevance alone, 0 by diversity alone.
    #[must_use]
    pub fn with_lambda(mut self, lambda: f64) -> Self {
        self.lambda = lambda;
        self
    }

    /// Returns up to the request's limit of hits, in the order of their choice. A hit's score is its cosine
    /// with the query, so scores need not descend.
    ///
    /// The search reads the candidates and then their embeddings. A candidate that was deleted in between is
    /// left out.
    ///
    /// # Errors
    /// The errors of [`search`](VectorStore::search); `InvalidInput` for fewer candidates than the limit, for
    /// more than 1,000 candidates, or for a `lambda` outside 0 to 1.
    ///
    /// # Cancellation
    /// Dropping the future needs no cleanup.
    ///
    /// # Complexity
    /// One search, one read by ids, and O(limit × candidates × dimensions).
    pub async fn search(
        &self,
        store: &(impl VectorStore + ?Sized),
        collection: &CollectionName,
    ) -> Result<Vec<SearchHit>> {
        check::at_most(SEARCH, "candidates", self.candidates, CANDIDATES_MAX)?;
        if self.candidates < self.request.limit {
            let (actual, limit) = (check::size(self.candidates), check::size(self.request.limit));
            return Err(Error::under_limit(SEARCH, "candidates", actual, limit));
        }
        check_lambda(SEARCH, self.lambda)?;
        let asked =
            self.request.clone().with_limit(if self.request.limit == 0 { 0 } else { self.candidates });
        let hits = store.search(collection, &asked).await?;
        let ids: Vec<DocumentId> = hits.iter().map(|hit| hit.id.clone()).collect();
        let found = if ids.is_empty() { Vec::new() } else { store.get(collection, &ids).await? };
        let (mut kept, mut embeddings) = (Vec::new(), Vec::new());
        for (hit, document) in hits.into_iter().zip(found) {
            if let Some(embedding) = document.and_then(|document| document.embedding) {
                kept.push(Some(hit));
                embeddings.push(embedding);
            }
        }
        let (query, limit, lambda) = (self.request.embedding.clone(), self.request.limit, self.lambda);
        let steps = limit.saturating_mul(embeddings.len()).saturating_mul(query.dimensions());
        let choose = move || maximal_marginal_relevance(&query, &embeddings, limit, lambda);
        let chosen = offload::run(SEARCH, steps, choose).await?;
        Ok(chosen.into_iter().filter_map(|at| kept.get_mut(at)?.take()).collect())
    }
}

#[cfg(test)]
mod tests;
