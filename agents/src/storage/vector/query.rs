//! A prepared search, and the cost of finding its rows.

use std::sync::Arc;

use larder_kernel::{Filter, SearchHit, SearchRequest};

use super::SPARSE_SHARE;
use super::block::{Block, Blocks};
use super::ivf::Ivf;
use super::row::norm_inverse;

/// The cost of comparing one document's metadata with one condition, in steps.
pub(super) const FILTER_STEPS: usize = 64;
/// The cost of evaluating one condition with a block's columns, in steps.
pub(super) const COLUMN_STEPS: usize = 256;
/// One in this many blocks is checked for a filter's columns.
const BLOCKS_ASKED: usize = 8;
/// The numbers of embeddings that cost one step: they are read sequentially and multiplied in parallel.
pub(super) const NUMBERS_PER_STEP: usize = 2;
/// The number of codes that cost as much as one number.
pub(super) const CODES_PER_NUMBER: usize = 4;

/// A prepared search.
#[derive(Clone)]
pub(super) struct Query {
    /// The request's embedding, scaled to length one.
    pub(super) direction: Vec<f32>,
    pub(super) limit: usize,
    pub(super) filter: Option<Filter>,
    pub(super) score_min: Option<f32>,
}

impl Query {
    pub(super) fn new(request: &SearchRequest) -> Self {
        let numbers = request.embedding.as_slice();
        let scale = norm_inverse(numbers);
        // A number of a vector of length one is within the range of f32, so only its last bits are lost.
        #[allow(clippy::cast_possible_truncation)]
        let direction = numbers.iter().map(|number| (f64::from(*number) * scale) as f32).collect();
        Self { direction, limit: request.limit, filter: request.filter.clone(), score_min: request.score_min }
    }

    /// Returns `true` if the search may examine only the nearest cells.
    pub(super) fn may_be_approximate(&self) -> bool {
        self.filter.is_none() && self.limit > 0
    }

    /// Returns `true` if the search may need more hits than these.
    pub(super) fn wants_more(&self, hits: &[SearchHit]) -> bool {
        hits.len() < self.limit
    }

    /// Estimates the steps for finding the rows of the nearest cells.
    pub(super) fn cell_steps(&self, blocks: &Blocks, ivf: &Arc<Ivf>) -> usize {
        let of_centers = ivf.numbers(self.direction.len()) / NUMBERS_PER_STEP / CODES_PER_NUMBER;
        let steps = |block: &Arc<Block>| {
            if block.is_divided(ivf) {
                COLUMN_STEPS + block.len() / SPARSE_SHARE
            } else {
                block.len().saturating_mul(of_centers)
            }
        };
        blocks.iter().map(steps).fold(of_centers, usize::saturating_add)
    }

    /// Estimates the steps for finding the rows that match the filter.
    pub(super) fn filter_steps(&self, blocks: &Blocks) -> usize {
        let Some(filter) = &self.filter else { return 0 };
        let (by_row, by_column) = (filter_steps(filter), conditions(filter).saturating_mul(COLUMN_STEPS));
        let steps = |block: &Block| {
            if block.covers(filter) { by_column } else { block.len().saturating_mul(by_row) }
        };
        // A column is built for all blocks together, and lost if many rows are written. Most blocks are
        // therefore alike, and a sample represents all of them.
        let mut asked = blocks.iter().step_by(BLOCKS_ASKED);
        match blocks.first() {
            Some(first) if !first.covers(filter) => blocks.len().saturating_mul(steps(first)),
            Some(_) if asked.all(|block| block.covers(filter)) => blocks.len().saturating_mul(by_column),
            _ => blocks.iter().map(|block| steps(block)).fold(0, usize::saturating_add),
        }
    }
}

/// Counts the conditions of a filter. Each value of a list counts as one.
fn conditions(filter: &Filter) -> usize {
    match filter {
        Filter::And(filters) | Filter::Or(filters) => filters.iter().map(conditions).sum::<usize>().max(1),
        Filter::Not(filter) => conditions(filter),
        Filter::In(_, values) | Filter::ContainsAny(_, values) | Filter::ContainsAll(_, values) => {
            values.len().max(1)
        }
        _ => 1,
    }
}

/// Returns the cost of comparing one document's metadata with a filter, in steps.
pub(super) fn filter_steps(filter: &Filter) -> usize {
    conditions(filter).saturating_mul(FILTER_STEPS)
}
