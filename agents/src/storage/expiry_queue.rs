//! Records ordered by the time of their next expiry, so that expired data leaves memory even if no caller
//! names it again.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Records in the order of their next check for expired data.
pub(super) struct ExpiryQueue<R> {
    /// The time of the first check. It is read without the lock, because each write reads it.
    first_ms: AtomicI64,
    queue: Mutex<BinaryHeap<Expiry<R>>>,
}

/// A record and the time of its next check.
pub(super) struct Expiry<R> {
    pub(super) at_ms: i64,
    pub(super) record: R,
}

/// The earliest time is the greatest.
impl<R> Ord for Expiry<R> {
    fn cmp(&self, other: &Self) -> Ordering {
        other.at_ms.cmp(&self.at_ms)
    }
}

impl<R> PartialOrd for Expiry<R> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<R> PartialEq for Expiry<R> {
    fn eq(&self, other: &Self) -> bool {
        self.at_ms == other.at_ms
    }
}

impl<R> Eq for Expiry<R> {}

impl<R> ExpiryQueue<R> {
    pub(super) fn new() -> Self {
        Self { first_ms: AtomicI64::new(i64::MAX), queue: Mutex::default() }
    }

    /// Returns `true` if no record expires, so that the clock is not needed.
    pub(super) fn is_empty(&self) -> bool {
        self.first_ms.load(Relaxed) == i64::MAX
    }

    pub(super) fn push(&self, expiry: Expiry<R>) {
        let mut queue = self.lock();
        queue.push(expiry);
        self.note_first(&queue);
    }

    /// Removes and returns the first records whose check is due.
    pub(super) fn take(&self, now_ms: i64, at_most: usize) -> Vec<Expiry<R>> {
        if self.first_ms.load(Relaxed) > now_ms {
            return Vec::new();
        }
        let mut queue = self.lock();
        let mut taken = Vec::new();
        while taken.len() < at_most && queue.peek().is_some_and(|expiry| expiry.at_ms <= now_ms) {
            taken.extend(queue.pop());
        }
        self.note_first(&queue);
        taken
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    fn note_first(&self, queue: &BinaryHeap<Expiry<R>>) {
        self.first_ms.store(queue.peek().map_or(i64::MAX, |expiry| expiry.at_ms), Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, BinaryHeap<Expiry<R>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
