//! Exact search: rows that cannot be among the best are left out by their bounds, all others are scored.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as Atomic};

use larder_kernel::{Filter, SearchHit, SearchRequest};

use super::block::{Block, Record, norm_inverse};
use super::codes::{CODED_DIMENSIONS_MIN, Code};
use super::columns::RowSet;
use super::first::{self, Front, Queries};
use super::kernel::{Level, ask_for};
use super::matrix::Blocks;

/// What holding one document's metadata against one condition costs, in steps.
const FILTER_STEPS: usize = 64;
/// What answering one condition from a block's columns costs, in steps.
const COLUMN_STEPS: usize = 256;
/// Of so many blocks one is asked whether it has a filter's columns.
const BLOCKS_ASKED: usize = 8;
/// Numbers of embeddings that cost as much as one step: they are read one after the other and multiplied many at once.
const NUMBERS_PER_STEP: usize = 2;
/// As many times more codes do.
const CODES_PER_NUMBER: usize = 4;
/// Multiplications that make a further thread worth its start.
const STEPS_PER_THREAD: usize = 16 * 1024 * 1024;
/// Blocks that a thread takes at a time, at most; few enough to end at about the same time as the others.
const BLOCKS_AT_ONCE_MAX: usize = 64;
/// How many rows ahead of its turn a row is asked for.
const ROWS_AHEAD: usize = 4;
/// Where fewer than one in so many rows satisfy a filter, only those are looked at, one by one.
const FILTER_SHARE: usize = 4;
/// As many times the limit must the rows be for the first pass to be worth while.
const LIMIT_SHARE: usize = 8;

/// How a search goes about it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub(super) level: Level,
    /// Whether bounds may leave out rows.
    pub(super) first_pass: bool,
    /// Threads that one call may use.
    pub(super) threads: usize,
}

/// A search, made ready.
pub(super) struct Query {
    /// The request's embedding, of length one.
    direction: Vec<f32>,
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
    level: Level,
    heap: BinaryHeap<Candidate<'a>>,
}

impl<'a> Best<'a> {
    fn new(query: &'a Query, level: Level) -> Self {
        Self { query, level, heap: BinaryHeap::new() }
    }

    /// Scores rows that lie apart, asking for each a little before its turn, until `enough` says so of one.
    fn offer_each(
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
                ask_for(blocks[*block].row(*row));
            }
            self.offer(&blocks[block], row);
        }
    }

    /// Scores all rows of a block, in the order in which they lie.
    fn offer_all(&mut self, block: &'a Block) {
        for row in 0..block.len() {
            let dot = self.level.dot_in_order(block.row(row), &self.query.direction);
            self.offer_scored(block, row, dot);
        }
    }

    fn offer(&mut self, block: &'a Block, row: usize) {
        let dot = self.level.dot(block.row(row), &self.query.direction);
        self.offer_scored(block, row, dot);
    }

    /// Scores a row. Every row takes the same steps in the same order, so equal rows score equal to the bit.
    fn offer_scored(&mut self, block: &'a Block, row: usize, dot: f64) {
        #[allow(clippy::cast_possible_truncation)]
        let cosine = (dot * block.norm_inverse(row)).clamp(-1.0, 1.0) as f32;
        // Adding zero turns -0 into 0, which would else come after it.
        let score = cosine + 0.0;
        if self.query.score_min.is_some_and(|least| score < least) || self.beyond(score) {
            return;
        }
        self.take(Candidate { score, record: block.record(row) });
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

    /// Whether no row with at most this score gets in any more.
    fn beyond(&self, score: f32) -> bool {
        self.heap.len() == self.query.limit && self.heap.peek().is_none_or(|worst| score < worst.score)
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

/// Which rows of which blocks a query looks at: all, or those that satisfy its filter.
pub(super) struct Scope {
    rows: Option<Vec<RowSet>>,
    /// How many those are.
    count: usize,
    /// Of how many.
    total: usize,
}

impl Scope {
    pub(super) fn of(query: &Query, blocks: &Blocks) -> Self {
        let mut total = 0;
        let blocks = blocks.iter().inspect(|block| total += block.len());
        let Some(filter) = &query.filter else {
            blocks.for_each(drop);
            return Self { rows: None, count: total, total };
        };
        let mut count = 0;
        let matching = |block: &Arc<Block>| {
            let rows = block.matching(filter);
            count += rows.len();
            rows
        };
        let rows = blocks.map(matching).collect();
        Self { rows: Some(rows), count, total }
    }

    fn block(&self, block: usize) -> Option<RowSet> {
        self.rows.as_ref().map(|rows| rows[block])
    }
}

/// What the threads of a search share.
pub(super) struct Search<'a> {
    pub(super) way: Way,
    pub(super) blocks: &'a Blocks,
    pub(super) queries: &'a [Query],
    pub(super) scopes: &'a [Scope],
}

impl<'a> Search<'a> {
    /// How many steps the search takes, roughly, where copying what a hit has takes `copy_steps`.
    pub(super) fn steps(&self, copy_steps: usize) -> usize {
        let steps = |query: usize| {
            let count = self.scopes[query].count;
            let numbers = count.saturating_mul(self.queries[query].direction.len());
            let share = if self.by_bounds(query) { CODES_PER_NUMBER } else { 1 };
            let hits = count.min(self.queries[query].limit);
            (numbers / NUMBERS_PER_STEP / share).saturating_add(hits.saturating_mul(copy_steps))
        };
        (0..self.queries.len()).map(steps).fold(0, usize::saturating_add)
    }

    /// The hits of each query, best first, ties in the byte order of ids.
    pub(super) fn hits(&self) -> Vec<Vec<SearchHit>> {
        let wanted = (0..self.queries.len()).filter(|query| self.queries[*query].limit > 0);
        let (bounded, full): (Vec<usize>, Vec<usize>) = wanted.partition(|query| self.by_bounds(*query));
        let mut hits = vec![Vec::new(); self.queries.len()];
        for (chosen, best) in [(&bounded, self.bounded(&bounded)), (&full, self.full(&full))] {
            for (query, best) in chosen.iter().zip(best) {
                hits[*query] = best.into_hits();
            }
        }
        hits
    }

    /// Runs `work` on as many threads as its steps are worth.
    fn spread<T: Send>(&self, steps: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
        let threads = self.way.threads.min(steps.div_ceil(STEPS_PER_THREAD)).max(1);
        std::thread::scope(|scope| {
            let others: Vec<_> = (1..threads)
                .filter_map(|_| std::thread::Builder::new().spawn_scoped(scope, &work).ok())
                .collect();
            let mut done = vec![work()];
            for other in others {
                match other.join() {
                    Ok(other) => done.push(other),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            done
        })
    }

    /// Calls `visit` for blocks that no other thread of this work has visited, until there are none.
    fn visit(&self, next: &AtomicUsize, mut visit: impl FnMut(Range<usize>)) {
        let count = self.blocks.len();
        let at_once = (count / (self.way.threads * 8).max(1)).clamp(1, BLOCKS_AT_ONCE_MAX);
        loop {
            let first = next.fetch_add(at_once, Atomic::Relaxed);
            if first >= count {
                return;
            }
            visit(first..count.min(first + at_once));
        }
    }

    /// Whether bounds are worth while for a query.
    fn by_bounds(&self, query: usize) -> bool {
        let (query, scope) = (&self.queries[query], &self.scopes[query]);
        self.way.first_pass
            && query.direction.len() >= CODED_DIMENSIONS_MIN
            && scope.count / LIMIT_SHARE >= query.limit
    }

    /// Whether so few rows satisfy a query's filter that it is no use to look at others beside them.
    fn sparse(&self, query: usize) -> bool {
        let scope = &self.scopes[query];
        scope.rows.is_some() && scope.count < scope.total / FILTER_SHARE
    }

    /// The rows of some blocks that satisfy a query's filter; `None` where it has none.
    fn listed(&self, query: usize, part: Range<usize>) -> Option<Vec<(usize, usize)>> {
        let rows = self.scopes[query].rows.as_ref()?;
        let mut listed = Vec::new();
        for (block, rows) in part.clone().zip(&rows[part]) {
            rows.each(|row| listed.push((block, row)));
        }
        Some(listed)
    }

    /// Scores every row in the scopes of some queries.
    fn full(&self, chosen: &[usize]) -> Vec<Best<'a>> {
        let steps = chosen
            .iter()
            .map(|query| self.scopes[*query].count.saturating_mul(self.queries[*query].direction.len()));
        let next = AtomicUsize::new(0);
        let parts = self.spread(steps.fold(0, usize::saturating_add), || {
            let mut best: Vec<_> =
                chosen.iter().map(|query| Best::new(&self.queries[*query], self.way.level)).collect();
            self.visit(&next, |part| {
                for (best, query) in best.iter_mut().zip(chosen) {
                    if let Some(rows) = self.listed(*query, part.clone()) {
                        best.offer_each(self.blocks, &rows, |_, _| false);
                    }
                }
                // Block by block, so that several queries find a block's rows in the cache.
                for block in &self.blocks[part] {
                    for (best, query) in best.iter_mut().zip(chosen) {
                        if self.scopes[*query].rows.is_none() {
                            best.offer_all(block);
                        }
                    }
                }
            });
            best
        });
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or_default();
        for part in parts {
            for (all, part) in all.iter_mut().zip(part) {
                part.heap.into_iter().for_each(|candidate| all.take(candidate));
            }
        }
        all
    }

    /// What the first pass leaves of some queries.
    fn fronts(&self, chosen: &[usize]) -> Vec<Front> {
        if chosen.is_empty() {
            return Vec::new();
        }
        let query = |at: &usize| &self.queries[*at];
        let codes: Vec<Code> =
            chosen.iter().map(query).map(|query| Code::of(&query.direction, 1.0)).collect();
        let queries = Queries::new(self.way.level, &codes);
        let steps = chosen.iter().map(|at| self.scopes[*at].total.saturating_mul(query(at).direction.len()));
        let next = AtomicUsize::new(0);
        let parts = self.spread(steps.fold(0, usize::saturating_add), || {
            let mut fronts: Vec<Front> =
                chosen.iter().map(query).map(|query| Front::new(query.limit, query.score_min)).collect();
            self.visit(&next, |part| {
                for (index, block) in part.clone().zip(&self.blocks[part]) {
                    let rows: Vec<_> = chosen.iter().map(|query| self.scopes[*query].block(index)).collect();
                    queries.look(index, block, &rows, &mut fronts);
                }
            });
            fronts
        });
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or_default();
        for part in parts {
            all.iter_mut().zip(part).for_each(|(all, part)| all.join(part));
        }
        all
    }

    /// What the first pass leaves of a query whose filter few rows satisfy.
    fn sparse_front(&self, chosen: usize) -> Front {
        let query = &self.queries[chosen];
        let code = Code::of(&query.direction, 1.0);
        let steps = self.scopes[chosen].count.saturating_mul(query.direction.len());
        let next = AtomicUsize::new(0);
        let parts = self.spread(steps, || {
            let mut front = Front::new(query.limit, query.score_min);
            self.visit(&next, |part| {
                if let Some(rows) = self.listed(chosen, part) {
                    first::look_at(self.way.level, self.blocks, &rows, &code, &mut front);
                }
            });
            front
        });
        let mut all = Front::new(query.limit, query.score_min);
        parts.into_iter().for_each(|part| all.join(part));
        all
    }

    /// The best of some queries, scoring only rows that their bounds allow.
    fn bounded(&self, chosen: &[usize]) -> Vec<Best<'a>> {
        let together: Vec<usize> = chosen.iter().copied().filter(|query| !self.sparse(*query)).collect();
        let mut together = self.fronts(&together).into_iter();
        let front = |query: &usize| {
            if self.sparse(*query) { Some(self.sparse_front(*query)) } else { together.next() }
        };
        let fronts: Vec<Front> = chosen.iter().filter_map(front).collect();
        let left = fronts.into_iter().zip(chosen);
        left.map(|(front, query)| {
            let mut best = Best::new(&self.queries[*query], self.way.level);
            let kept = front.into_kept();
            let rows: Vec<_> = kept.iter().map(|kept| (kept.block, kept.row)).collect();
            // Where one promises too little, the next ones do too.
            best.offer_each(self.blocks, &rows, |best, at| best.beyond(kept[at].upper));
            best
        })
        .collect()
    }
}

#[cfg(test)]
mod tests;
