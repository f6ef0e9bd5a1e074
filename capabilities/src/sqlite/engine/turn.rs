//! Turns at the lock. SQLite keeps no queue of those who wait: they look again and again, and a writer that never pauses
//! can take the lock each time before they do, until their patience ends.

use std::time::{Duration, Instant};

/// How long the lock is held, transaction after transaction, before others get their turn.
const HELD_MAX: Duration = Duration::from_millis(100);
/// How long the lock is left alone then: longer than anybody who waits sleeps between two looks.
const PAUSE: Duration = Duration::from_millis(3);

/// How long one writer has held the lock without a pause.
pub(super) struct Turn {
    taken: Option<Instant>,
    released: Instant,
    held: Duration,
}

impl Turn {
    pub(super) fn new() -> Self {
        Self { taken: None, released: Instant::now(), held: Duration::ZERO }
    }

    /// When the lock was last let go.
    pub(super) fn released(&self) -> Instant {
        self.released
    }

    /// Waits before the lock is taken, where others are due.
    pub(super) fn wait(&mut self) {
        let left_alone = self.released.elapsed();
        if left_alone < PAUSE {
            if self.held < HELD_MAX {
                return;
            }
            std::thread::sleep(PAUSE.saturating_sub(left_alone));
        }
        self.held = Duration::ZERO;
    }

    /// Notes that the lock is held from now on.
    pub(super) fn take(&mut self) {
        self.taken.get_or_insert_with(Instant::now);
    }

    /// Notes that the lock, where it was held, is no more.
    pub(super) fn release(&mut self) {
        if let Some(taken) = self.taken.take() {
            self.released = Instant::now();
            self.held += self.released.duration_since(taken);
        }
    }
}
