//! The index of a collection: its cells, and the time of their construction.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use super::block::Blocks;
use super::ivf::Ivf;
use super::simd::Level;
use super::sq8::CODED_DIMENSIONS_MIN;

/// The number of documents of a large collection. An exact search of fewer takes about as long as an
/// approximate one.
const INDEXED_ROWS_MIN: usize = 10_000;
/// The cells are rebuilt after writes and deletions of one in this many rows.
const OUTGROWN: usize = 2;

/// The cells of a collection, if they are built.
#[derive(Debug, Default)]
pub(super) struct Index {
    ivf: RwLock<Option<Arc<Ivf>>>,
    at_work: AtomicBool,
    /// The number of rows written or deleted since the construction of the cells began.
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

    /// Returns the cells for a search of these blocks, if they make it faster. If a build is due, starts it
    /// on a background thread that does not delay the shutdown of a runtime.
    pub(super) fn ivf_for(
        self: &Arc<Self>,
        level: Level,
        blocks: &Arc<Blocks>,
        dimensions: usize,
    ) -> Option<Arc<Ivf>> {
        let rows = blocks.iter().map(|block| block.len()).sum();
        if let Some(making) = self.due(rows, dimensions) {
            let blocks = Arc::clone(blocks);
            // If no thread is available, a later search tries again.
            drop(std::thread::Builder::new().spawn(move || making.0.make(level, &blocks, dimensions)));
        }
        self.ivf().filter(|ivf| ivf.worth_while)
    }

    /// Records that a row was written or deleted.
    pub(super) fn note_change(&self) {
        self.changed.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the task of building the cells of a collection of `rows` rows, if it is due and not running.
    fn due(self: &Arc<Self>, rows: usize, dimensions: usize) -> Option<Making> {
        let is_due = || match self.ivf() {
            Some(ivf) => self.changed.load(Ordering::Relaxed) > ivf.rows / OUTGROWN,
            None => rows >= INDEXED_ROWS_MIN && dimensions >= CODED_DIMENSIONS_MIN,
        };
        if !is_due() || self.at_work.swap(true, Ordering::AcqRel) {
            return None;
        }
        let making = Making(Arc::clone(self));
        // Another caller may have built them in between.
        is_due().then_some(making)
    }

    /// Builds the cells for these blocks. Returns `true` if searches use them.
    pub(super) fn make(&self, level: Level, blocks: &Blocks, dimensions: usize) -> bool {
        self.changed.store(0, Ordering::Relaxed);
        let made = (dimensions >= CODED_DIMENSIONS_MIN && !blocks.is_empty())
            .then(|| Arc::new(Ivf::of(level, blocks, dimensions)));
        let used = made.as_ref().filter(|ivf| ivf.worth_while);
        if let Some(ivf) = used {
            // The rows are assigned here, so that no search has to do it.
            blocks.iter().for_each(|block| block.divide(level, ivf));
        }
        let is_used = used.is_some();
        *self.ivf.write().unwrap_or_else(PoisonError::into_inner) = made;
        is_used
    }
}

/// The exclusive task of building an index. It is released on drop.
#[derive(Debug)]
struct Making(Arc<Index>);

impl Drop for Making {
    fn drop(&mut self) {
        self.0.at_work.store(false, Ordering::Release);
    }
}
