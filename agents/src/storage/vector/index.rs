//! The index of a collection: its cells, and when they are made.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::cells::Cells;
use super::codes::CODED_DIMENSIONS_MIN;
use super::kernel::Level;
use super::matrix::Blocks;

/// Documents that make a collection large: an exact search of fewer takes about as long as an approximate one.
const INDEXED_ROWS_MIN: usize = 10_000;
/// Where the collection has as many times the rows that it had, or as many times fewer, the cells are made anew.
const OUTGROWN: usize = 2;

/// The cells of a collection, if it has any yet.
#[derive(Debug, Default)]
pub(super) struct Index {
    cells: RwLock<Option<Arc<Cells>>>,
    at_work: AtomicBool,
}

impl Index {
    #[cfg(test)]
    pub(super) fn is_made(&self) -> bool {
        self.cells().is_some()
    }

    fn cells(&self) -> Option<Arc<Cells>> {
        self.cells.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The cells for a search of these blocks, where there are any that are worth while. Has them made in the background where
    /// that is due: on a thread that no runtime waits for when it ends.
    pub(super) fn cells_for(
        self: &Arc<Self>,
        level: Level,
        blocks: &Arc<Blocks>,
        dimensions: usize,
    ) -> Option<Arc<Cells>> {
        let rows = blocks.iter().map(|block| block.len()).sum();
        if let Some(making) = self.due(rows, dimensions) {
            let blocks = Arc::clone(blocks);
            // Where no thread can be had, a later search tries again.
            drop(std::thread::Builder::new().spawn(move || making.0.make(level, &blocks, dimensions)));
        }
        self.cells().filter(|cells| cells.worth_while)
    }

    /// The task of making the cells of a collection of so many rows, where that is due and nobody is at it.
    fn due(self: &Arc<Self>, rows: usize, dimensions: usize) -> Option<Making> {
        let fits = |cells: Arc<Cells>| rows / OUTGROWN <= cells.rows && cells.rows / OUTGROWN <= rows;
        if rows < INDEXED_ROWS_MIN || dimensions < CODED_DIMENSIONS_MIN || self.cells().is_some_and(fits) {
            return None;
        }
        (!self.at_work.swap(true, Ordering::AcqRel)).then(|| Making(Arc::clone(self)))
    }

    /// Makes the cells for these blocks, and says whether searches use them.
    pub(super) fn make(&self, level: Level, blocks: &Blocks, dimensions: usize) -> bool {
        if dimensions < CODED_DIMENSIONS_MIN || blocks.is_empty() {
            return false;
        }
        let cells = Arc::new(Cells::of(level, blocks, dimensions));
        if cells.worth_while {
            // So that no search has to.
            blocks.iter().for_each(|block| drop(block.divide(level, &cells)));
        }
        let worth_while = cells.worth_while;
        *self.cells.write().unwrap_or_else(PoisonError::into_inner) = Some(cells);
        worth_while
    }
}

/// The task of making an index. While it is there, nobody else gets it.
#[derive(Debug)]
struct Making(Arc<Index>);

impl Drop for Making {
    fn drop(&mut self) {
        self.0.at_work.store(false, Ordering::Release);
    }
}
