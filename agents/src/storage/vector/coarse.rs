//! The first pass of a search: which rows can be among the best, by bounds from their codes.
//!
//! Every row has an upper and a lower bound of its score. A row whose upper bound is below `limit` lower bounds cannot
//! be among the best `limit`, whatever its exact score is; all others are kept for the second pass, which scores them
//! exactly. So the answer is that of a full search.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::block::{Block, Blocks};
use super::query_group::QueryGroup;
use super::row_set::RowSet;
use super::simd::{Level, PANEL_ROWS};
use super::sq8::Code;

/// Queries whose products one step computes.
const QUERIES_AT_ONCE: usize = 4;
/// How many rows ahead of its turn a row's codes are asked for, where rows lie apart.
const ROWS_AHEAD: usize = 8;
/// Below every upper bound of a row that is there.
const NOTHING: f32 = -2.0;
/// Rows kept beyond those that are wanted before those that were overtaken are dropped.
const SURPLUS_MAX: usize = 4_096;

/// A score that has an order, as every bound is a number.
#[derive(Debug, Clone, Copy)]
struct Bound(f32);

impl Ord for Bound {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Bound {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Bound {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Bound {}

/// A row that may be among the best.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kept {
    pub(super) upper: f32,
    pub(super) block: usize,
    pub(super) row: usize,
}

/// What the first pass knows of one query's answer.
#[derive(Debug)]
pub(super) struct Prefilter {
    limit: usize,
    /// What an upper bound must reach.
    threshold: f32,
    /// The best `limit` lower bounds, the least on top.
    lower: BinaryHeap<Reverse<Bound>>,
    kept: Vec<Kept>,
}

impl Prefilter {
    /// The prefilter of a search for `limit` rows, at least one, that score `least` or more.
    pub(super) fn new(limit: usize, least: Option<f32>) -> Self {
        let threshold = least.unwrap_or(NOTHING).max(NOTHING);
        Self { limit, threshold, lower: BinaryHeap::new(), kept: Vec::new() }
    }

    fn raise(&mut self, lower: f32) {
        if self.lower.len() < self.limit {
            self.lower.push(Reverse(Bound(lower)));
        } else if let Some(mut least) = self.lower.peek_mut()
            && least.0.0 < lower
        {
            *least = Reverse(Bound(lower));
        }
        if self.lower.len() == self.limit
            && let Some(Reverse(Bound(least))) = self.lower.peek()
        {
            self.threshold = self.threshold.max(*least);
        }
    }

    fn keep(&mut self, kept: Kept, lower: f32) {
        self.raise(lower);
        if self.kept.len() >= self.limit.saturating_mul(2).saturating_add(SURPLUS_MAX) {
            let threshold = self.threshold;
            self.kept.retain(|kept| kept.upper >= threshold);
            // Where most are still in the running, there is no use in looking again soon.
            self.kept.reserve(SURPLUS_MAX);
        }
        self.kept.push(kept);
    }

    /// Takes in what another thread found in other blocks.
    pub(super) fn join(&mut self, other: Self) {
        for Reverse(Bound(lower)) in other.lower {
            self.raise(lower);
        }
        self.threshold = self.threshold.max(other.threshold);
        self.kept.extend(other.kept);
    }

    /// The rows that may be among the best, the most promising first, and so many of them at most.
    pub(super) fn into_most_promising(mut self, count: usize) -> Vec<Kept> {
        let order = |left: &Kept, right: &Kept| right.upper.total_cmp(&left.upper);
        self.kept.retain(|kept| kept.upper >= self.threshold);
        if count < self.kept.len() {
            self.kept.select_nth_unstable_by(count, order);
            self.kept.truncate(count);
        }
        self.kept.sort_unstable_by(order);
        self.kept
    }
}

/// Queries made ready for the first pass.
pub(super) struct Queries {
    level: Level,
    groups: Vec<QueryGroup<QUERIES_AT_ONCE>>,
    singles: Vec<QueryGroup<1>>,
}

/// Where a step stands: a block and what of it counts for each query.
struct Step<'a> {
    level: Level,
    block: &'a Block,
    index: usize,
    rows: &'a [Option<RowSet>],
}

impl Queries {
    /// Gets the queries of these codes ready: in groups, and one by one those that fill less than half of one.
    pub(super) fn new(level: Level, codes: &[Code]) -> Self {
        let rest = codes.len() % QUERIES_AT_ONCE;
        let grouped = if rest * 2 < QUERIES_AT_ONCE { codes.len() - rest } else { codes.len() };
        let (grouped, singles) = codes.split_at(grouped);
        Self {
            level,
            groups: grouped.chunks(QUERIES_AT_ONCE).map(QueryGroup::of).collect(),
            singles: singles.chunks(1).map(QueryGroup::of).collect(),
        }
    }

    /// Looks through a block for each query, whose rows are given where not all of them count.
    pub(super) fn look(
        &self,
        index: usize,
        block: &Block,
        rows: &[Option<RowSet>],
        prefilters: &mut [Prefilter],
    ) {
        let step = |rows| Step { level: self.level, block, index, rows };
        for (at, group) in self.groups.iter().enumerate() {
            let at = at * QUERIES_AT_ONCE;
            let end = prefilters.len().min(at + QUERIES_AT_ONCE);
            step(&rows[at..end]).panels(group, &mut prefilters[at..end]);
        }
        let singles = prefilters.len() - self.singles.len().min(prefilters.len());
        for (at, single) in (singles..).zip(&self.singles) {
            step(&rows[at..=at]).panels(single, &mut prefilters[at..=at]);
        }
    }
}

impl Step<'_> {
    fn panels<const Q: usize>(&self, group: &QueryGroup<Q>, prefilters: &mut [Prefilter]) {
        let codes = self.block.codes();
        let mut dots = [[0; PANEL_ROWS]; Q];
        for panel in 0..codes.panels() {
            self.level.tile(codes.panel(panel), &group.codes, &mut dots);
            self.judge(panel, &dots, group, prefilters);
        }
    }

    /// Keeps the rows of a panel whose upper bounds reach far enough.
    fn judge<const Q: usize>(
        &self,
        panel: usize,
        dots: &[[i32; PANEL_ROWS]; Q],
        group: &QueryGroup<Q>,
        prefilters: &mut [Prefilter],
    ) {
        let codes = self.block.codes();
        let (scales, errors) = (codes.scales(panel), codes.errors(panel));
        for (query, prefilter) in prefilters.iter_mut().enumerate().take(Q) {
            let slack = &group.slack[query];
            let (best, upper) = self.level.bound(&dots[query], scales, errors, slack);
            if best < prefilter.threshold {
                continue;
            }
            for (lane, upper) in upper.into_iter().enumerate() {
                let row = panel * PANEL_ROWS + lane;
                let counts = self.rows[query].as_ref().is_none_or(|rows| rows.contains(row));
                if upper >= prefilter.threshold && counts {
                    let lower = upper - 2.0 * slack.error(errors[lane]);
                    prefilter.keep(Kept { upper, block: self.index, row }, lower);
                }
            }
        }
    }
}

/// Looks at rows that lie apart, for one query.
pub(super) fn look_at(
    level: Level,
    blocks: &Blocks,
    rows: &[(usize, usize)],
    query: &Code,
    prefilter: &mut Prefilter,
) {
    let group = QueryGroup::<1>::of(std::slice::from_ref(query));
    let slack = &group.slack[0];
    for (at, (index, row)) in rows.iter().copied().enumerate() {
        if let Some((block, row)) = rows.get(at + ROWS_AHEAD) {
            blocks[*block].codes().prefetch(*row);
        }
        let codes = blocks[index].codes();
        let (panel, lane) = (row / PANEL_ROWS, row % PANEL_ROWS);
        let (scale, error) = (codes.scales(panel)[lane], codes.errors(panel)[lane]);
        let upper = slack.upper(level.product(codes.row(row), &group.codes), scale, error);
        if upper >= prefilter.threshold {
            prefilter.keep(Kept { upper, block: index, row }, upper - 2.0 * slack.error(error));
        }
    }
}
