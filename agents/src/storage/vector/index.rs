//! The index of a collection: its cells, and when they are made.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::block::Blocks;
use super::ivf::Ivf;
use super::simd::Level;
use super::sq8::CODED_DIMENSIONS_MIN;

/// Documents that make a collection large: an exact search of fewer takes about as long as an approximate one.
const INDEXED_ROWS_MIN: usize = 10_000;
/// Where of so many rows one was written or deleted, the cells are made anew.
const OUTGROWN: usize = 2;

/// The cells of a collection, if it has any yet.
#[derive(Debug, Default)]
pub(super) struct Index {
    ivf: RwLock<Option<Arc<Ivf>>>,
    at_work: AtomicBool,
    /// Rows that were written or deleted since the cells were made, or begun to be.
    changed: AtomicUsize,
}

impl Index {
    #[cfg(test)]
    pub(super) fn is_made(&self) -> bool {
        self.ivf().is_some()
    }

    fn ivf(&self) -> Option<Arc<Ivf>> {
        self.ivf.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The cells for a search of these blocks, where there are any that are worth while. Has them made in the background where
    /// that is due: on a thread that no runtime waits for when it ends.
    pub(super) fn ivf_for(
        self: &Arc<Self>,
        level: Level,
        blocks: &Arc<Blocks>,
        dimensions: usize,
    ) -> Option<Arc<Ivf>> {
        let rows = blocks.iter().map(|block| block.len()).sum();
        if let Some(making) = self.due(rows, dimensions) {
            let blocks = Arc::clone(blocks);
            // Where no thread can be had, a later search tries again.
            drop(std::thread::Builder::new().spawn(move || making.0.make(level, &blocks, dimensions)));
        }
        self.ivf().filter(|ivf| ivf.worth_while)
    }

    /// Notes that a row was written or deleted.
    pub(super) fn note_change(&self) {
        self.changed.fetch_add(1, Ordering::Relaxed);
    }

    /// The task of making the cells of a collection of so many rows, where that is due and nobody is at it.
    fn due(self: &Arc<Self>, rows: usize, dimensions: usize) -> Option<Making> {
        let is_due = || match self.ivf() {
            Some(ivf) => self.changed.load(Ordering::Relaxed) > ivf.rows / OUTGROWN,
            None => rows >= INDEXED_ROWS_MIN && dimensions >= CODED_DIMENSIONS_MIN,
        };
        if !is_due() || self.at_work.swap(true, Ordering::AcqRel) {
            return None;
        }
        let making = Making(Arc::clone(self));
        // They may have been made in between.
        is_due().then_some(making)
    }

    /// Makes the cells for these blocks, and says whether searches use them.
    pub(super) fn make(&self, level: Level, blocks: &Blocks, dimensions: usize) -> bool {
        self.changed.store(0, Ordering::Relaxed);
        let made = (dimensions >= CODED_DIMENSIONS_MIN && !blocks.is_empty())
            .then(|| Arc::new(Ivf::of(level, blocks, dimensions)));
        let used = made.as_ref().filter(|ivf| ivf.worth_while);
        if let Some(ivf) = used {
            // So that no search has to.
            blocks.iter().for_each(|block| block.divide(level, ivf));
        }
        let is_used = used.is_some();
        *self.ivf.write().unwrap_or_else(PoisonError::into_inner) = made;
        is_used
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
