//! Exact search: one pass over the rows, whatever the number of queries.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use larder_kernel::{Filter, SearchHit, SearchRequest};
use ndarray::{Array1, ArrayView1, Axis};

use super::matrix::{Block, Record, norm_inverse};

/// Products summed in 32-bit arithmetic before the sum moves to 64 bits: keeps the rounding of 16,000 dimensions well
/// within the 1e-5 of the contract.
const PRODUCTS_PER_SUM: usize = 512;
/// What the evaluation of a filter costs, in multiplications.
const FILTER_STEPS: usize = 64;

/// A search, made ready.
pub(super) struct Query {
    /// The request's embedding, of length one.
    direction: Array1<f32>,
    limit: usize,
    filter: Option<Filter>,
    score_min: Option<f32>,
}

impl Query {
    pub(super) fn new(request: &SearchRequest) -> Self {
        let numbers = request.embedding.as_slice();
        let scale = norm_inverse(numbers);
        // A number of a vector of length one is in the range of f32; only its last bits go.
        #[allow(clippy::cast_possible_truncation)]
        let direction = numbers.iter().map(|number| (f64::from(*number) * scale) as f32).collect();
        Self { direction, limit: request.limit, filter: request.filter.clone(), score_min: request.score_min }
    }

    /// How many steps the search of `rows` rows takes, roughly.
    pub(super) fn steps(&self, rows: usize) -> usize {
        let filter = if self.filter.is_some() { FILTER_STEPS } else { 0 };
        rows.saturating_mul(self.direction.len() + filter)
    }
}

/// A document that may become a hit. The greater of two is the worse one.
struct Candidate<'a> {
    score: f32,
    record: &'a Record,
}

impl Ord for Candidate<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.score.total_cmp(&self.score).then_with(|| self.record.id.cmp(&other.record.id))
    }
}

impl PartialOrd for Candidate<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate<'_> {}

/// The best candidates so far of one query, the worst on top.
struct Best<'a> {
    query: &'a Query,
    heap: BinaryHeap<Candidate<'a>>,
}

impl<'a> Best<'a> {
    fn new(query: &'a Query) -> Self {
        Self { query, heap: BinaryHeap::new() }
    }

    fn offer(&mut self, block: &'a Block, row: usize) {
        let record: &'a Record = &block.records[row];
        let query = self.query;
        if query.limit == 0 || query.filter.as_ref().is_some_and(|filter| !filter.matches(&record.metadata)) {
            return;
        }
        let score = score(&block.row(row), block.norm_inverse(row), &query.direction);
        if query.score_min.is_some_and(|least| score < least) {
            return;
        }
        let candidate = Candidate { score, record };
        if self.heap.len() < query.limit {
            self.heap.push(candidate);
        } else if let Some(mut worst) = self.heap.peek_mut()
            && candidate < *worst
        {
            *worst = candidate;
        }
    }

    fn into_hits(self) -> Vec<SearchHit> {
        let hit = |Candidate { score, record }: Candidate<'_>| SearchHit {
            id: record.id.clone(),
            score,
            content: record.content.clone(),
            metadata: record.metadata.clone(),
        };
        self.heap.into_sorted_vec().into_iter().map(hit).collect()
    }
}

/// The cosine of a row and a direction. Every row takes the same steps in the same order, so equal rows score equal to
/// the bit.
fn score(row: &ArrayView1<'_, f32>, norm_inverse: f64, direction: &Array1<f32>) -> f32 {
    let pieces = row.axis_chunks_iter(Axis(0), PRODUCTS_PER_SUM);
    let others = direction.axis_chunks_iter(Axis(0), PRODUCTS_PER_SUM);
    let dot: f64 = pieces.zip(others).map(|(piece, other)| f64::from(piece.dot(&other))).sum();
    #[allow(clippy::cast_possible_truncation)]
    let cosine = (dot * norm_inverse).clamp(-1.0, 1.0) as f32;
    // Adding zero turns -0 into 0, which would else come after it.
    cosine + 0.0
}

/// The hits of each query, best first, ties in the byte order of ids.
pub(super) fn search(blocks: &[Arc<Block>], queries: &[Query]) -> Vec<Vec<SearchHit>> {
    let mut best: Vec<Best<'_>> = queries.iter().map(Best::new).collect();
    for block in blocks {
        for row in 0..block.records.len() {
            for best in &mut best {
                best.offer(block, row);
            }
        }
    }
    best.into_iter().map(Best::into_hits).collect()
}
