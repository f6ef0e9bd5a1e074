//! Fairness of the write lock between processes. SQLite has no queue of waiters: each waiter polls. A writer
//! that never pauses can retake the lock before they poll again, until their busy timeout ends.

use std::time::{Duration, Instant};

/// The time for which the writer holds the lock over consecutive transactions before it yields to other
/// processes.
const HELD_MAX: Duration = Duration::from_millis(100);
/// The time for which the lock then stays free. It is longer than the sleep of a waiter between two polls.
const PAUSE: Duration = Duration::from_millis(3);

/// The time for which this writer has held the lock without a pause.
pub(super) struct FairLock {
    acquired_at: Option<Instant>,
    released_at: Instant,
    held: Duration,
}

impl FairLock {
    pub(super) fn new() -> Self {
        Self { acquired_at: None, released_at: Instant::now(), held: Duration::ZERO }
    }

    /// Returns the instant at which the lock was last released.
    pub(super) fn last_release(&self) -> Instant {
        self.released_at
    }

    /// Leaves the lock free for a moment if it was held for long.
    pub(super) fn yield_if_due(&mut self) {
        let left_free = self.released_at.elapsed();
        if left_free < PAUSE {
            if self.held < HELD_MAX {
                return;
            }
            std::thread::sleep(PAUSE.saturating_sub(left_free));
        }
        self.held = Duration::ZERO;
    }

    /// Records that the lock is now held.
    pub(super) fn note_acquired(&mut self) {
        self.acquired_at.get_or_insert_with(Instant::now);
    }

    /// Records that the lock, if it was held, is released.
    pub(super) fn note_released(&mut self) {
        if let Some(acquired_at) = self.acquired_at.take() {
            self.released_at = Instant::now();
            self.held += self.released_at.duration_since(acquired_at);
        }
    }
}
