//! The best rows of a query so far, scored in full.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use larder_kernel::SearchHit;

use super::block::{Block, Blocks};
use super::query::Query;
use super::row::Record;
use super::simd::{Level, prefetch};

/// The number of rows by which a row is prefetched.
const ROWS_AHEAD: usize = 4;

/// A document that may become a hit. The greater of two candidates is the worse one.
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

/// The best candidates of one query so far, with the worst on top.
pub(super) struct TopK<'a> {
    query: &'a Query,
    level: Level,
    heap: BinaryHeap<Candidate<'a>>,
}

impl<'a> TopK<'a> {
    pub(super) fn new(query: &'a Query, level: Level) -> Self {
        Self { query, level, heap: BinaryHeap::new() }
    }

    /// Scores scattered rows, and prefetches each. Stops when `enough` returns `true` for a row.
    pub(super) fn offer_each(
        &mut self,
        blocks: &'a Blocks,
        rows: &[(usize, usize)],
        mut enough: impl FnMut(&Self, usize) -> bool,
    ) {
        for (at, (block, row)) in rows.iter().copied().enumerate() {
            if enough(self, at) {
                return;
            }
            if let Some((block, row)) = rows.get(at + ROWS_AHEAD) {
                prefetch(blocks[*block].row(*row));
            }
            self.offer(&blocks[block], row);
        }
    }

    /// Scores all rows of a block, in memory order.
    pub(super) fn offer_all(&mut self, block: &'a Block) {
        for row in 0..block.len() {
            let dot = self.level.dot_in_order(block.row(row), &self.query.direction);
            self.offer_scored(block, row, dot);
        }
    }

    fn offer(&mut self, block: &'a Block, row: usize) {
        let dot = self.level.dot(block.row(row), &self.query.direction);
        self.offer_scored(block, row, dot);
    }

    /// Scores a row. Every row takes the same steps in the same order, so equal rows have bit-identical
    /// scores.
    fn offer_scored(&mut self, block: &'a Block, row: usize, dot: f64) {
        #[allow(clippy::cast_possible_truncation)]
        let cosine = (dot * block.norm_inverse(row)).clamp(-1.0, 1.0) as f32;
        // Adding zero turns -0 into 0, which would otherwise sort after it.
        let score = cosine + 0.0;
        if self.query.score_min.is_some_and(|least| score < least) || self.beyond(score) {
            return;
        }
        self.take(Candidate { score, record: block.record(row) });
    }

    /// Merges the results of another thread.
    pub(super) fn join(&mut self, other: Self) {
        other.heap.into_iter().for_each(|candidate| self.take(candidate));
    }

    fn take(&mut self, candidate: Candidate<'a>) {
        if self.heap.len() < self.query.limit {
            self.heap.push(candidate);
        } else if let Some(mut worst) = self.heap.peek_mut()
            && candidate < *worst
        {
            *worst = candidate;
        }
    }

    /// Returns `true` if no row with at most this score can still enter the result.
    pub(super) fn beyond(&self, score: f32) -> bool {
        self.heap.len() == self.query.limit && self.heap.peek().is_none_or(|worst| score < worst.score)
    }

    pub(super) fn into_hits(self) -> Vec<SearchHit> {
        let hit = |Candidate { score, record }: Candidate<'_>| {
            SearchHit::new(record.id.clone(), score, record.content.clone())
                .with_metadata(record.metadata.clone())
        };
        self.heap.into_sorted_vec().into_iter().map(hit).collect()
    }
}
