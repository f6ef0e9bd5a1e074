//! The rows that a query examines.

use std::sync::Arc;

use super::SPARSE_SHARE;
use super::block::{Block, Blocks};
use super::ivf::Ivf;
use super::query::Query;
use super::row_set::RowSet;
use super::simd::Level;
use super::sq8::Code;

/// The rows of each block that a query examines: all rows, the rows that match its filter, or the rows in the
/// nearest cells.
pub(super) struct Candidates {
    pub(super) rows: Option<Vec<RowSet>>,
    /// `true` if the rows with the best scores by code may be returned instead of the best ones.
    pub(super) approximate: bool,
    /// The number of these rows.
    pub(super) count: usize,
    /// The number of all rows.
    pub(super) total: usize,
}

impl Candidates {
    pub(super) fn of(query: &Query, blocks: &Blocks) -> Self {
        let mut total = 0;
        let blocks = blocks.iter().inspect(|block| total += block.len());
        let Some(filter) = &query.filter else {
            blocks.for_each(drop);
            return Self { rows: None, approximate: false, count: total, total };
        };
        let mut count = 0;
        let matching = |block: &Arc<Block>| {
            let rows = block.matching(filter);
            count += rows.len();
            rows
        };
        let rows = blocks.map(matching).collect();
        Self { rows: Some(rows), approximate: false, count, total }
    }

    /// Returns the rows in the cells nearest to a query, if they are few and enough for its limit.
    pub(super) fn near(level: Level, query: &Query, blocks: &Blocks, ivf: &Arc<Ivf>) -> Option<Self> {
        let chosen = ivf.probe(level, &Code::of(&query.direction, 1.0), query.limit)?;
        let rows: Vec<RowSet> = blocks.iter().map(|block| block.in_cells(level, ivf, &chosen)).collect();
        let count = rows.iter().map(RowSet::len).sum();
        let total: usize = blocks.iter().map(|block| block.len()).sum();
        let few = count < total / SPARSE_SHARE;
        (few && count >= query.limit).then_some(Self { rows: Some(rows), approximate: true, count, total })
    }

    pub(super) fn block(&self, block: usize) -> Option<RowSet> {
        self.rows.as_ref().map(|rows| rows[block])
    }
}
