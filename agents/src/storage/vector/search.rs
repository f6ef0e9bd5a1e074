//! The search: it skips rows that cannot be among the best by their bounds, and scores all others.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use larder_kernel::SearchHit;

use super::SPARSE_SHARE;
use super::block::Blocks;
use super::candidates::Candidates;
use super::coarse::{self, Prefilter, Queries};
use super::query::{CODES_PER_NUMBER, NUMBERS_PER_STEP, Query};
use super::simd::Level;
use super::sq8::{CODED_DIMENSIONS_MIN, Code};
use super::topk::TopK;

/// The number of multiplications that justifies starting a further thread.
const STEPS_PER_THREAD: usize = 16 * 1024 * 1024;
/// The largest number of blocks that a thread takes at a time. It is small, so that all threads end at about
/// the same time.
const BLOCKS_AT_ONCE_MAX: usize = 64;
/// An approximate search scores this multiple of the limit, from the rows that are best by their codes,
const SCORED_SHARE: usize = 2;
/// plus this many rows, because codes are far more precise than their bounds.
const SCORED_MIN: usize = 8;
/// The first pass is used if the number of rows is at least this multiple of the limit.
const LIMIT_SHARE: usize = 8;

/// The options of a search.
#[derive(Debug, Clone, Copy)]
pub(super) struct SearchOptions {
    pub(super) level: Level,
    /// `true` if bounds may exclude rows.
    pub(super) first_pass: bool,
    /// The number of threads that one call may use.
    pub(super) threads: usize,
    /// `true` if a search may examine only the nearest cells.
    pub(super) approximate: bool,
}

impl SearchOptions {
    /// Returns `true` if searches use an index. They do not if the first pass is turned off, because then no
    /// row may be skipped.
    pub(super) fn has_index(&self) -> bool {
        self.approximate && self.first_pass
    }
}

/// The state that the threads of a search share.
pub(super) struct Search<'a> {
    pub(super) options: SearchOptions,
    pub(super) blocks: &'a Blocks,
    pub(super) queries: &'a [Query],
    pub(super) candidates: &'a [Candidates],
}

impl<'a> Search<'a> {
    /// Estimates the steps of the search. `copy_steps` is the cost of copying a hit.
    pub(super) fn steps(&self, copy_steps: usize) -> usize {
        let steps = |query: usize| {
            let count = self.candidates[query].count;
            let numbers = count.saturating_mul(self.queries[query].direction.len());
            let share = if self.by_bounds(query) { CODES_PER_NUMBER } else { 1 };
            let hits = count.min(self.queries[query].limit);
            (numbers / NUMBERS_PER_STEP / share).saturating_add(hits.saturating_mul(copy_steps))
        };
        (0..self.queries.len()).map(steps).fold(0, usize::saturating_add)
    }

    /// Returns the hits of each query, best first, with ties in the byte order of ids.
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

    /// Runs `work` on as many threads as its steps justify.
    fn spread<T: Send>(&self, steps: usize, work: impl Fn() -> T + Sync) -> Vec<T> {
        let threads = self.options.threads.min(steps.div_ceil(STEPS_PER_THREAD)).max(1);
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

    /// Calls `visit` for blocks that no other thread has visited, until none remain.
    fn visit(&self, next: &AtomicUsize, mut visit: impl FnMut(Range<usize>)) {
        let count = self.blocks.len();
        let at_once = (count / (self.options.threads * 8).max(1)).clamp(1, BLOCKS_AT_ONCE_MAX);
        loop {
            let first = next.fetch_add(at_once, Ordering::Relaxed);
            if first >= count {
                return;
            }
            visit(first..count.min(first + at_once));
        }
    }

    /// Returns `true` if bounds speed up a query.
    fn by_bounds(&self, query: usize) -> bool {
        let (query, candidates) = (&self.queries[query], &self.candidates[query]);
        self.options.first_pass
            && query.direction.len() >= CODED_DIMENSIONS_MIN
            && candidates.count / LIMIT_SHARE >= query.limit
    }

    /// Returns `true` if so few rows match a query's filter that other rows are not worth reading.
    fn sparse(&self, query: usize) -> bool {
        let candidates = &self.candidates[query];
        candidates.rows.is_some() && candidates.count < candidates.total / SPARSE_SHARE
    }

    /// Returns the rows of some blocks that match a query's filter, or `None` without a filter.
    fn listed(&self, query: usize, part: Range<usize>) -> Option<Vec<(usize, usize)>> {
        let rows = self.candidates[query].rows.as_ref()?;
        let mut listed = Vec::new();
        for (block, rows) in part.clone().zip(&rows[part]) {
            rows.each(|row| listed.push((block, row)));
        }
        Some(listed)
    }

    /// Scores every row in the candidates of some queries.
    fn full(&self, chosen: &[usize]) -> Vec<TopK<'a>> {
        let steps = chosen
            .iter()
            .map(|query| self.candidates[*query].count.saturating_mul(self.queries[*query].direction.len()));
        let next = AtomicUsize::new(0);
        let parts = self.spread(steps.fold(0, usize::saturating_add), || {
            let mut best: Vec<_> =
                chosen.iter().map(|query| TopK::new(&self.queries[*query], self.options.level)).collect();
            self.visit(&next, |part| {
                for (best, query) in best.iter_mut().zip(chosen) {
                    if let Some(rows) = self.listed(*query, part.clone()) {
                        best.offer_each(self.blocks, &rows, |_, _| false);
                    }
                }
                // The loop goes block by block, so that several queries find a block's rows in the cache.
                for block in &self.blocks[part] {
                    for (best, query) in best.iter_mut().zip(chosen) {
                        if self.candidates[*query].rows.is_none() {
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
                all.join(part);
            }
        }
        all
    }

    /// Runs the first pass for some queries.
    fn prefilters(&self, chosen: &[usize]) -> Vec<Prefilter> {
        if chosen.is_empty() {
            return Vec::new();
        }
        let query = |at: &usize| &self.queries[*at];
        let codes: Vec<Code> =
            chosen.iter().map(query).map(|query| Code::of(&query.direction, 1.0)).collect();
        let queries = Queries::new(self.options.level, &codes);
        let steps =
            chosen.iter().map(|at| self.candidates[*at].total.saturating_mul(query(at).direction.len()));
        let next = AtomicUsize::new(0);
        let parts = self.spread(steps.fold(0, usize::saturating_add), || {
            let mut prefilters: Vec<Prefilter> =
                chosen.iter().map(query).map(|query| Prefilter::new(query.limit, query.score_min)).collect();
            self.visit(&next, |part| {
                for (index, block) in part.clone().zip(&self.blocks[part]) {
                    let rows: Vec<_> =
                        chosen.iter().map(|query| self.candidates[*query].block(index)).collect();
                    queries.look(index, block, &rows, &mut prefilters);
                }
            });
            prefilters
        });
        let mut parts = parts.into_iter();
        let mut all = parts.next().unwrap_or_default();
        for part in parts {
            all.iter_mut().zip(part).for_each(|(all, part)| all.join(part));
        }
        all
    }

    /// Runs the first pass for a query whose filter few rows match.
    fn sparse_prefilter(&self, chosen: usize) -> Prefilter {
        let query = &self.queries[chosen];
        let code = Code::of(&query.direction, 1.0);
        let steps = self.candidates[chosen].count.saturating_mul(query.direction.len());
        let next = AtomicUsize::new(0);
        let parts = self.spread(steps, || {
            let mut prefilter = Prefilter::new(query.limit, query.score_min);
            self.visit(&next, |part| {
                if let Some(rows) = self.listed(chosen, part) {
                    coarse::look_at(self.options.level, self.blocks, &rows, &code, &mut prefilter);
                }
            });
            prefilter
        });
        let mut all = Prefilter::new(query.limit, query.score_min);
        parts.into_iter().for_each(|part| all.join(part));
        all
    }

    /// Returns the best rows of some queries, and scores only rows that their bounds allow.
    fn bounded(&self, chosen: &[usize]) -> Vec<TopK<'a>> {
        let together: Vec<usize> = chosen.iter().copied().filter(|query| !self.sparse(*query)).collect();
        let mut together = self.prefilters(&together).into_iter();
        let prefilter = |query: &usize| {
            if self.sparse(*query) { Some(self.sparse_prefilter(*query)) } else { together.next() }
        };
        let prefilters: Vec<Prefilter> = chosen.iter().filter_map(prefilter).collect();
        let left = prefilters.into_iter().zip(chosen);
        left.map(|(prefilter, query)| {
            let (candidates, query) = (&self.candidates[*query], &self.queries[*query]);
            let mut best = TopK::new(query, self.options.level);
            let scored = if candidates.approximate {
                query.limit.saturating_mul(SCORED_SHARE).saturating_add(SCORED_MIN)
            } else {
                usize::MAX
            };
            let kept = prefilter.into_most_promising(scored);
            let rows: Vec<_> = kept.iter().map(|kept| (kept.block, kept.row)).collect();
            // The rows are sorted by upper bound, so the first one that is too low ends the loop.
            best.offer_each(self.blocks, &rows, |best, at| best.beyond(kept[at].upper));
            best
        })
        .collect()
    }
}

#[cfg(test)]
pub(super) mod tests;
