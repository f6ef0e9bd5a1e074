//! A search, made ready, and what it costs to find the rows that it looks at.

use std::sync::Arc;

use larder_kernel::{Filter, SearchHit, SearchRequest};

use super::SPARSE_SHARE;
use super::block::{Block, Blocks};
use super::ivf::Ivf;
use super::row::norm_inverse;

/// What holding one document's metadata against one condition costs, in steps.
pub(super) const FILTER_STEPS: usize = 64;
/// What answering one condition from a block's columns costs, in steps.
pub(super) const COLUMN_STEPS: usize = 256;
/// Of so many blocks one is asked whether it has a filter's columns.
const BLOCKS_ASKED: usize = 8;
/// Numbers of embeddings that cost as much as one step: they are read one after the other and multiplied many at once.
pub(super) const NUMBERS_PER_STEP: usize = 2;
/// As many times more codes do.
pub(super) const CODES_PER_NUMBER: usize = 4;

/// A search, made ready.
#[derive(Clone)]
pub(super) struct Query {
    /// The request's embedding, of length one.
    pub(super) direction: Vec<f32>,
    pub(super) limit: usize,
    pub(super) filter: Option<Filter>,
    pub(super) score_min: Option<f32>,
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

    /// Whether it may look at the nearest cells only.
    pub(super) fn may_be_approximate(&self) -> bool {
        self.filter.is_none() && self.limit > 0
    }

    /// Whether more hits than these may be wanted.
    pub(super) fn wants_more(&self, hits: &[SearchHit]) -> bool {
        hits.len() < self.limit
    }

    /// How many steps it takes to find the rows of the cells that are near, roughly.
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

    /// How many steps it takes to find the rows that its filter wants, roughly.
    pub(super) fn filter_steps(&self, blocks: &Blocks) -> usize {
        let Some(filter) = &self.filter else { return 0 };
        let (by_row, by_column) = (filter_steps(filter), conditions(filter).saturating_mul(COLUMN_STEPS));
        let steps = |block: &Block| {
            if block.covers(filter) { by_column } else { block.len().saturating_mul(by_row) }
        };
        // A column is made for all blocks at once, and lost where many rows are written: so the blocks are of one kind for the
        // most part, and some of them speak for all.
        let mut asked = blocks.iter().step_by(BLOCKS_ASKED);
        match blocks.first() {
            Some(first) if !first.covers(filter) => blocks.len().saturating_mul(steps(first)),
            Some(_) if asked.all(|block| block.covers(filter)) => blocks.len().saturating_mul(by_column),
            _ => blocks.iter().map(|block| steps(block)).fold(0, usize::saturating_add),
        }
    }
}

/// How many conditions a filter has, each value of a list for one.
fn conditions(filter: &Filter) -> usize {
    match filter {
        Filter::And(filters) | Filter::Or(filters) => filters.iter().map(conditions).sum::<usize>().max(1),
        Filter::Not(filter) => conditions(filter),
        Filter::In(_, values) => values.len().max(1),
        _ => 1,
    }
}

/// What holding one document's metadata against a filter costs, in steps.
pub(super) fn filter_steps(filter: &Filter) -> usize {
    conditions(filter).saturating_mul(FILTER_STEPS)
}
