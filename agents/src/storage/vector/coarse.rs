//! The first pass of a search: it selects the rows that can be among the best, by bounds from their codes.
//!
//! Every row has an upper and a lower bound of its score. A row whose upper bound is below `limit` lower
//! bounds cannot be among the best `limit`, whatever its exact score. All other rows are kept for the second
//! pass, which scores them exactly. The result is therefore that of a full search.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::block::{Block, Blocks};
use super::query_group::QueryGroup;
use super::row_set::RowSet;
use super::simd::{Level, PANEL_ROWS};
use super::sq8::Code;

/// The number of queries whose products one step computes.
const QUERIES_AT_ONCE: usize = 4;
/// The number of rows by which the codes of scattered rows are prefetched.
const ROWS_AHEAD: usize = 8;
/// A value below the upper bound of every existing row.
const NOTHING: f32 = -2.0;
/// The number of surplus rows after which the kept rows are pruned.
const SURPLUS_MAX: usize = 4_096;

/// A score with a total order. Every bound is a number.
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

/// The state of the first pass for one query.
#[derive(Debug)]
pub(super) struct Prefilter {
    limit: usize,
    /// The lowest upper bound of a row that is kept.
    threshold: f32,
    /// The best `limit` lower bounds, with the smallest on top.
    lower: BinaryHeap<Reverse<Bound>>,
    kept: Vec<Kept>,
}

impl Prefilter {
    /// Creates the prefilter of a search for `limit` rows, at least one, with a score of at least `least`.
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
            // If most rows still qualify, pruning again soon is useless.
            self.kept.reserve(SURPLUS_MAX);
        }
        self.kept.push(kept);
    }

    /// Merges the results of another thread for other blocks.
    pub(super) fn join(&mut self, other: Self) {
        for Reverse(Bound(lower)) in other.lower {
            self.raise(lower);
        }
        self.threshold = self.threshold.max(other.threshold);
        self.kept.extend(other.kept);
    }

    /// Returns up to `count` rows that may be among the best, the most promising first.
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

/// Queries prepared for the first pass.
pub(super) struct Queries {
    level: Level,
    groups: Vec<QueryGroup<QUERIES_AT_ONCE>>,
    singles: Vec<QueryGroup<1>>,
}

/// The state of a step: a block, and the rows in it that count for each query.
struct Step<'a> {
    level: Level,
    block: &'a Block,
    index: usize,
    rows: &'a [Option<RowSet>],
}

impl Queries {
    /// Prepares the queries of these codes: in groups, and one by one if they fill less than half of a group.
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

    /// Examines a block for each query. `rows` limits the rows if not all of them count.
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

    /// Keeps the rows of a panel whose upper bounds are high enough.
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

/// Examines scattered rows, for one query.
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
