//! What in a place expires, and when: so that it leaves the memory though nobody names it again.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use super::backend::MemoryBackend;

/// A record of which something expires.
pub(crate) trait Mortal: Send + Sync {
    /// Takes away what has expired by `now_ms`, and answers when to look again, if ever. It was to be looked at at `at_ms`;
    /// where it is to be by now at another time, somebody else does that.
    fn look(&self, place: &MemoryBackend, now_ms: i64, at_ms: i64) -> Option<i64>;
}

/// Records by when they are to be looked at.
pub(super) struct Dues {
    /// The first of them. Read without the lock, as each write looks here.
    first_ms: AtomicI64,
    queue: Mutex<BinaryHeap<Due>>,
}

pub(super) struct Due {
    pub(super) at_ms: i64,
    pub(super) record: Weak<dyn Mortal>,
}

/// The earliest is the greatest.
impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at_ms.cmp(&self.at_ms)
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.at_ms == other.at_ms
    }
}

impl Eq for Due {}

impl Dues {
    pub(super) fn new() -> Self {
        Self { first_ms: AtomicI64::new(i64::MAX), queue: Mutex::default() }
    }

    /// Whether nothing expires at all, so that the clock need not be asked.
    pub(super) fn is_empty(&self) -> bool {
        self.first_ms.load(Relaxed) == i64::MAX
    }

    pub(super) fn push(&self, due: Due) {
        let mut queue = self.lock();
        queue.push(due);
        self.note_first(&queue);
    }

    /// Takes out the first of those that are to be looked at by now.
    pub(super) fn take(&self, now_ms: i64, at_most: usize) -> Vec<Due> {
        if self.first_ms.load(Relaxed) > now_ms {
            return Vec::new();
        }
        let mut queue = self.lock();
        let mut taken = Vec::new();
        while taken.len() < at_most && queue.peek().is_some_and(|due| due.at_ms <= now_ms) {
            taken.extend(queue.pop());
        }
        self.note_first(&queue);
        taken
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn note_first(&self, queue: &BinaryHeap<Due>) {
        self.first_ms.store(queue.peek().map_or(i64::MAX, |due| due.at_ms), Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, BinaryHeap<Due>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
