//! Ivf of like vectors, for searches that look at the nearest of them only.
//!
//! An inverted file: every row belongs to the cell whose center lies nearest to its direction, and an approximate search
//! looks at the rows of those cells whose centers score nearly as well as the best one does. How nearly is measured when the
//! cells are made, so that as many of the true neighbours are found as [`RECALL_AIMED`] says.
//!
//! The inverted file is that of Sivic and Zisserman, *Video Google* (ICCV 2003), and the bound by the best center's score
//! that of Chen et al., *SPANN: Highly-efficient Billion-scale Approximate Nearest Neighbor Search* (NeurIPS 2021). Centers are
//! kept in codes of 8 bits, as rows are, and compared by the same kernels.

mod train;

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use super::SPARSE_SHARE;
use super::query_group::QueryGroup;
use super::row_set::RowSet;
use super::simd::{Level, Line, PANEL_ROWS};
use super::sq8::{Code, Codes};

/// What part of the true neighbours of a collection's own vectors is to be found.
const RECALL_AIMED: f64 = 0.99;
/// For how many neighbours it is measured how far a search has to reach. One that wants more of them is exact.
const MEASURED_LIMITS: [usize; 2] = [10, 100];
/// Of so many rows of a block, one may be written before its members are found out anew, and no more than
const STALE_SHARE: usize = 32;
/// so many.
const STALE_ROWS_MAX: usize = 32;
/// Centers that one step compares a panel of rows with.
const CENTERS_AT_ONCE: usize = 4;

/// The cells of a collection as it was when they were made; later rows belong to the nearest of them.
#[derive(Debug)]
pub(super) struct Ivf {
    centers: Centers,
    /// How many rows of a sample each cell holds, and how many the sample has.
    sizes: Vec<usize>,
    sampled: usize,
    probe_margins: [ProbeMargin; MEASURED_LIMITS.len()],
    /// Whether the cells within reach hold so few rows that it is worth while to look for them.
    pub(super) worth_while: bool,
    /// How many rows there were.
    pub(super) rows: usize,
}

/// How far a center's score may be below the best one's, for a search that wants so many rows at most.
#[derive(Debug, Clone, Copy)]
struct ProbeMargin {
    limit: usize,
    below: f32,
}

/// Directions, as a query is held against them and as rows are.
#[derive(Debug)]
struct Centers {
    count: usize,
    codes: Codes,
    groups: Vec<QueryGroup<CENTERS_AT_ONCE>>,
}

impl Centers {
    /// The centers in these directions, each of length one and of one number of dimensions.
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

    /// What each center scores with a direction, about.
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

    /// The centers nearest to the rows of a panel.
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
    /// The cells that a search for so many rows in this direction looks at; `None` where it wants too many, or they hold too
    /// many.
    pub(super) fn probe(&self, level: Level, direction: &Code, limit: usize) -> Option<Vec<usize>> {
        let margin = self.probe_margins.iter().find(|margin| limit <= margin.limit)?;
        let chosen = within(&self.centers.scores(level, direction), margin.below);
        let held: usize = chosen.iter().map(|cell| self.sizes[*cell]).sum();
        (held * SPARSE_SHARE <= self.sampled).then_some(chosen)
    }

    /// Numbers that are multiplied to find the cells of a search.
    pub(super) fn numbers(&self, dimensions: usize) -> usize {
        self.centers.count.saturating_mul(dimensions)
    }
}

/// The cells whose centers score no further than this below the best one.
fn within(scores: &[f32], below: f32) -> Vec<usize> {
    let least = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max) - below;
    (0..scores.len()).filter(|cell| scores[*cell] >= least).collect()
}

/// The rows of a block, by their cells.
#[derive(Debug)]
struct Members {
    ivf: Arc<Ivf>,
    /// Where the rows of each cell begin, and the end of the last one's.
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

    /// The rows in some of the cells.
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

/// Which rows of a block are in which cells, once a search has asked. A copy of a block takes it along.
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

    /// Notes that a row of a block of so many was written.
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

    /// Whether the members of these cells are known.
    pub(super) fn is_of(&self, ivf: &Arc<Ivf>) -> bool {
        self.divided().as_ref().is_some_and(|divided| Arc::ptr_eq(&divided.members.ivf, ivf))
    }

    /// Finds out the members of these cells among the rows with these codes.
    pub(super) fn divide(&self, level: Level, ivf: &Arc<Ivf>, codes: &Codes, rows: usize) {
        let members = Arc::new(Members::of(level, ivf, codes, rows));
        *self.0.write().unwrap_or_else(PoisonError::into_inner) =
            Some(Divided { members, stale: Vec::new() });
    }

    /// The rows in some of the cells, and those that were written since it was found out; `None` where it is not known.
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
