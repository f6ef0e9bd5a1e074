//! Cells of like vectors, for searches that look at the nearest of them only.
//!
//! An inverted file: every row belongs to the cell whose center lies nearest to its direction, and an approximate search
//! looks at the rows of those cells whose centers score nearly as well as the best one does. How nearly is measured when the
//! cells are made, so that as many of the true neighbours are found as [`RECALL_AIMED`] says.
//!
//! The inverted file is that of Sivic and Zisserman, *Video Google* (ICCV 2003), and the bound by the best center's score
//! that of Chen et al., *SPANN: Highly-efficient Billion-scale Approximate Nearest Neighbor Search* (NeurIPS 2021). Centers are
//! kept in codes of 8 bits, as rows are, and compared by the same kernels.

mod train;

use std::sync::{Arc, PoisonError, RwLock};

use super::codes::{Code, Codes};
use super::columns::RowSet;
use super::first::Group;
use super::kernel::{Level, Line, PANEL_ROWS};

/// What part of the true neighbours of a collection's own vectors is to be found.
const RECALL_AIMED: f64 = 0.99;
/// Centers that one step compares a panel of rows with.
const CENTERS_AT_ONCE: usize = 4;

/// The cells of a collection as it was when they were made; later rows belong to the nearest of them.
#[derive(Debug)]
pub(super) struct Cells {
    centers: Centers,
    /// How far a center's score may be below the best one's.
    reach: f32,
    /// Whether the cells within reach hold so few rows that it is worth while to look for them.
    pub(super) worth_while: bool,
    /// How many rows there were.
    pub(super) rows: usize,
}

/// Directions, as a query is held against them and as rows are.
#[derive(Debug)]
struct Centers {
    count: usize,
    codes: Codes,
    groups: Vec<Group<CENTERS_AT_ONCE>>,
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
        let groups = made.chunks(CENTERS_AT_ONCE).map(Group::of).collect();
        Self { count: made.len(), codes, groups }
    }

    /// What each center scores with a direction, about.
    fn scores(&self, level: Level, direction: &Code) -> Vec<f32> {
        let single = Group::<1>::of(std::slice::from_ref(direction));
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

impl Cells {
    /// The cells that a search in this direction looks at.
    pub(super) fn near(&self, level: Level, direction: &Code) -> Vec<usize> {
        let scores = self.centers.scores(level, direction);
        let least = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max) - self.reach;
        (0..scores.len()).filter(|cell| scores[*cell] >= least).collect()
    }

    /// Numbers that are multiplied to find the cells of a search.
    pub(super) fn numbers(&self, dimensions: usize) -> usize {
        self.centers.count.saturating_mul(dimensions)
    }
}

/// The rows of a block, by their cells.
#[derive(Debug)]
pub(super) struct Members {
    cells: Arc<Cells>,
    /// Where the rows of each cell begin, and the end of the last one's.
    starts: Vec<u16>,
    rows: Vec<u16>,
}

impl Members {
    fn of(level: Level, cells: &Arc<Cells>, codes: &Codes, rows: usize) -> Self {
        let mut nearest = Vec::with_capacity(codes.panels() * PANEL_ROWS);
        for panel in 0..codes.panels() {
            nearest.extend(cells.centers.nearest(level, codes.panel(panel)));
        }
        nearest.truncate(rows);
        let mut starts = vec![0; cells.centers.count + 1];
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
        Self { cells: Arc::clone(cells), starts, rows: members }
    }

    /// The rows in some of the cells.
    pub(super) fn rows(&self, cells: &[usize]) -> RowSet {
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

/// The members of a block's cells, once a search has asked for them. A copy of a block takes them along.
#[derive(Debug, Default)]
pub(super) struct Membership(RwLock<Option<Arc<Members>>>);

impl Clone for Membership {
    fn clone(&self) -> Self {
        Self(RwLock::new(self.members()))
    }
}

impl Membership {
    fn members(&self) -> Option<Arc<Members>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members().is_none()
    }

    /// Whether the members of these cells are known.
    pub(super) fn is_of(&self, cells: &Arc<Cells>) -> bool {
        self.members().is_some_and(|members| Arc::ptr_eq(&members.cells, cells))
    }

    /// The members of these cells, found out where they are not known.
    pub(super) fn of(&self, level: Level, cells: &Arc<Cells>, codes: &Codes, rows: usize) -> Arc<Members> {
        let known = self.members().filter(|members| Arc::ptr_eq(&members.cells, cells));
        known.unwrap_or_else(|| {
            let made = Arc::new(Members::of(level, cells, codes, rows));
            *self.0.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&made));
            made
        })
    }
}

#[cfg(test)]
mod tests;
