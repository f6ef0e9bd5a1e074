//! Cells of similar vectors, for searches that examine only the nearest ones.
//!
//! The index is an inverted file: every row belongs to the cell with the center nearest to its direction. An
//! approximate search examines the rows of the cells whose centers score nearly as well as the best one. The
//! margin is measured when the cells are built, so that the share of true neighbors found is
//! [`RECALL_AIMED`].
//!
//! The inverted file is that of Sivic and Zisserman, *Video Google* (ICCV 2003). The bound by the best
//! center's score is that of Chen et al., *SPANN: Highly-efficient Billion-scale Approximate Nearest Neighbor
//! Search* (NeurIPS 2021). Centers are stored as 8-bit codes, like rows, and compared by the same kernels.

mod train;

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use super::SPARSE_SHARE;
use super::query_group::QueryGroup;
use super::row_set::RowSet;
use super::simd::{Level, Line, PANEL_ROWS};
use super::sq8::{Code, Codes};

/// The target recall: the share of the true nearest neighbors that a search finds.
const RECALL_AIMED: f64 = 0.99;
/// The numbers of neighbors for which the reach of a search is measured. A search for more is exact.
const MEASURED_LIMITS: [usize; 2] = [10, 100];
/// The members of a block are recomputed after one in this many rows was written, and after at most
const STALE_SHARE: usize = 32;
/// this many rows.
const STALE_ROWS_MAX: usize = 32;
/// The number of centers with which one step compares a panel of rows.
const CENTERS_AT_ONCE: usize = 4;

/// The cells of a collection at the time of their construction. Later rows belong to the nearest cell.
#[derive(Debug)]
pub(super) struct Ivf {
    centers: Centers,
    /// The number of sampled rows in each cell, and the size of the sample.
    sizes: Vec<usize>,
    sampled: usize,
    probe_margins: [ProbeMargin; MEASURED_LIMITS.len()],
    /// `true` if the cells within reach contain so few rows that using them is faster.
    pub(super) worth_while: bool,
    /// The number of rows at the time of construction.
    pub(super) rows: usize,
}

/// The largest difference between a center's score and the best one's, for a search with at most `limit`
/// rows.
#[derive(Debug, Clone, Copy)]
struct ProbeMargin {
    limit: usize,
    below: f32,
}

/// Directions, in the form of queries and in the form of rows.
#[derive(Debug)]
struct Centers {
    count: usize,
    codes: Codes,
    groups: Vec<QueryGroup<CENTERS_AT_ONCE>>,
}

impl Centers {
    /// Creates the centers from these directions, each of length one, with the given dimensions.
    fn of(directions: &[f32], dimensions: usize) -> Self {
        let made: Vec<Code> =
            directions.chunks(dimensions).map(|direction| Code::of(direction, 1.0)).collect();
        let mut codes = Codes::new(dimensions);
        for (at, code) in made.iter().enumerate() {
            codes.set(at, code);
        }
        let groups = made.chunks(CENTERS_AT_ONCE).map(QueryGroup::of).collect();
        Self { count: made.len(), codes, groups }
    }

    /// Returns the approximate score of each center with a direction.
    fn scores(&self, level: Level, direction: &Code) -> Vec<f32> {
        let single = QueryGroup::<1>::of(std::slice::from_ref(direction));
        let mut scores = Vec::with_capacity(self.codes.panels() * PANEL_ROWS);
        let mut dots = [[0; PANEL_ROWS]];
        for panel in 0..self.codes.panels() {
            level.tile(self.codes.panel(panel), single.codes(), &mut dots);
            let scales = self.codes.scales(panel);
            scores.extend(dots[0].iter().zip(scales).map(|(dot, scale)| single.score(0, *dot, *scale)));
        }
        scores.truncate(self.count);
        scores
    }

    /// Returns the centers nearest to the rows of a panel.
    fn nearest(&self, level: Level, panel: &[Line]) -> [u16; PANEL_ROWS] {
        let mut best = [f32::NEG_INFINITY; PANEL_ROWS];
        let mut nearest = [0; PANEL_ROWS];
        let mut dots = [[0; PANEL_ROWS]; CENTERS_AT_ONCE];
        for (first, group) in (0..self.count).step_by(CENTERS_AT_ONCE).zip(&self.groups) {
            level.tile(panel, group.codes(), &mut dots);
            for (at, center) in (first..self.count).take(CENTERS_AT_ONCE).enumerate() {
                let center = u16::try_from(center).unwrap_or(u16::MAX);
                for lane in 0..PANEL_ROWS {
                    // A row's own scale is the same for all centers.
                    let score = group.score(at, dots[at][lane], 1.0);
                    let better = score > best[lane];
                    best[lane] = if better { score } else { best[lane] };
                    nearest[lane] = if better { center } else { nearest[lane] };
                }
            }
        }
        nearest
    }
}

impl Ivf {
    /// Returns the cells that a search for `limit` rows in this direction examines. Returns `None` if the
    /// limit is too large or the cells contain too many rows.
    pub(super) fn probe(&self, level: Level, direction: &Code, limit: usize) -> Option<Vec<usize>> {
        let margin = self.probe_margins.iter().find(|margin| limit <= margin.limit)?;
        let chosen = within(&self.centers.scores(level, direction), margin.below);
        let held: usize = chosen.iter().map(|cell| self.sizes[*cell]).sum();
        (held * SPARSE_SHARE <= self.sampled).then_some(chosen)
    }

    /// Returns the number of multiplications for finding the cells of a search.
    pub(super) fn numbers(&self, dimensions: usize) -> usize {
        self.centers.count.saturating_mul(dimensions)
    }
}

/// Returns the cells whose centers score at most `below` less than the best one.
fn within(scores: &[f32], below: f32) -> Vec<usize> {
    let least = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max) - below;
    (0..scores.len()).filter(|cell| scores[*cell] >= least).collect()
}

/// The rows of a block, by cell.
#[derive(Debug)]
struct Members {
    ivf: Arc<Ivf>,
    /// The start of the rows of each cell, and the end of the last cell's rows.
    starts: Vec<u16>,
    rows: Vec<u16>,
}

impl Members {
    fn of(level: Level, ivf: &Arc<Ivf>, codes: &Codes, rows: usize) -> Self {
        let mut nearest = Vec::with_capacity(codes.panels() * PANEL_ROWS);
        for panel in 0..codes.panels() {
            nearest.extend(ivf.centers.nearest(level, codes.panel(panel)));
        }
        nearest.truncate(rows);
        let mut starts = vec![0; ivf.centers.count + 1];
        for cell in &nearest {
            starts[usize::from(*cell) + 1] += 1;
        }
        for cell in 1..starts.len() {
            starts[cell] += starts[cell - 1];
        }
        let (mut next, mut members) = (starts.clone(), vec![0; nearest.len()]);
        for (row, cell) in (0..).zip(&nearest) {
            let place = &mut next[usize::from(*cell)];
            members[usize::from(*place)] = row;
            *place += 1;
        }
        Self { ivf: Arc::clone(ivf), starts, rows: members }
    }

    /// Returns the rows in some of the cells.
    fn rows(&self, cells: &[usize]) -> RowSet {
        let mut rows = RowSet::first(0);
        for cell in cells {
            let (start, end) = (self.starts[*cell], self.starts[*cell + 1]);
            for row in &self.rows[usize::from(start)..usize::from(end)] {
                rows.set(usize::from(*row), true);
            }
        }
        rows
    }
}

/// The assignment of a block's rows to cells, computed on demand. A copy of a block includes it.
#[derive(Debug, Default)]
pub(super) struct Membership(RwLock<Option<Divided>>);

#[derive(Debug, Clone)]
struct Divided {
    members: Arc<Members>,
    /// The rows that were written since.
    stale: Vec<usize>,
}

impl Clone for Membership {
    fn clone(&self) -> Self {
        Self(RwLock::new(self.divided().clone()))
    }
}

impl Membership {
    fn divided(&self) -> RwLockReadGuard<'_, Option<Divided>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a row of a block of `rows` rows was written.
    pub(super) fn touch(&mut self, row: usize, rows: usize) {
        let place = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(divided) = place else { return };
        if !divided.stale.contains(&row) {
            divided.stale.push(row);
            if divided.stale.len() > (rows / STALE_SHARE).clamp(1, STALE_ROWS_MAX) {
                *place = None;
            }
        }
    }

    /// Returns `true` if the members of these cells are known.
    pub(super) fn is_of(&self, ivf: &Arc<Ivf>) -> bool {
        self.divided().as_ref().is_some_and(|divided| Arc::ptr_eq(&divided.members.ivf, ivf))
    }

    /// Computes the members of these cells from the rows' codes.
    pub(super) fn divide(&self, level: Level, ivf: &Arc<Ivf>, codes: &Codes, rows: usize) {
        let members = Arc::new(Members::of(level, ivf, codes, rows));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) =
            Some(Divided { members, stale: Vec::new() });
    }

    /// Returns the rows in some of the cells, and the rows that were written since the assignment. Returns
    /// `None` if the assignment is unknown.
    pub(super) fn rows(&self, ivf: &Arc<Ivf>, chosen: &[usize]) -> Option<RowSet> {
        let divided = self.divided();
        let divided = divided.as_ref().filter(|divided| Arc::ptr_eq(&divided.members.ivf, ivf))?;
        let mut rows = divided.members.rows(chosen);
        divided.stale.iter().for_each(|row| rows.set(*row, true));
        Some(rows)
    }
}

#[cfg(test)]
mod tests;
