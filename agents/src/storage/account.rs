//! How many bytes a place holds, counted by many threads of the program at once.
//!
//! A single count would go from processor to processor with each write. So each of some parts takes a little in advance, and
//! is counted down by the threads that use it; what is in advance is not held. Close to the cap it comes back, so that the
//! cap is met to the byte.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// More than the processors that most machines have would be of little use.
const PARTS: usize = 16;
/// What a part takes in advance.
const ADVANCE_BYTES: u64 = 64 * 1024;

/// Bytes that are held, and how many may be.
pub(super) struct Account {
    /// What is held, and what the parts have in advance.
    taken: AtomicU64,
    parts: [Part; PARTS],
    /// Held while bytes go from a part to `taken` or back, so that nobody who is refused looks in between.
    moving: Mutex<()>,
    bytes_max: u64,
}

/// What one part has in advance, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Part(AtomicU64);

impl Account {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { taken: AtomicU64::new(0), parts: Default::default(), moving: Mutex::new(()), bytes_max }
    }

    /// What is held; while others write, about that.
    pub(super) fn bytes(&self) -> u64 {
        let advance: u64 = self.parts.iter().map(|part| part.0.load(Ordering::Acquire)).sum();
        self.taken.load(Ordering::Acquire).saturating_sub(advance)
    }

    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Counts `bytes` more, or gives what is held where that would be too many.
    pub(super) fn try_reserve(&self, bytes: u64) -> Result<(), u64> {
        let part = self.part();
        let spend = |advance: u64| advance.checked_sub(bytes);
        if part.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, spend).is_ok() {
            return Ok(());
        }
        let moving = self.moving();
        if self.take(bytes.saturating_add(ADVANCE_BYTES)) {
            part.0.fetch_add(ADVANCE_BYTES, Ordering::AcqRel);
            return Ok(());
        }
        loop {
            if self.take(bytes) {
                return Ok(());
            }
            if !self.collect(&moving) {
                return Err(self.bytes());
            }
        }
    }

    /// Counts `bytes` more whatever the cap. Beyond it nothing is left in advance that somebody could still spend.
    pub(super) fn count(&self, bytes: u64) {
        if self.taken.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes) > self.bytes_max {
            self.collect(&self.moving());
        }
    }

    /// Counts `bytes` less.
    pub(super) fn release(&self, bytes: u64) {
        if self.taken.load(Ordering::Acquire) > self.bytes_max {
            self.give_back(bytes);
            return;
        }
        let part = &self.part().0;
        if part.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes) > 2 * ADVANCE_BYTES {
            let _moving = self.moving();
            self.give_back(part.swap(0, Ordering::AcqRel));
        }
    }

    fn moving(&self) -> MutexGuard<'_, ()> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, bytes: u64) -> bool {
        let add = |taken: u64| taken.checked_add(bytes).filter(|sum| *sum <= self.bytes_max);
        self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        let subtract = |taken: u64| Some(taken.saturating_sub(bytes));
        // The closure never refuses, so neither does the update.
        let _ = self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, subtract);
    }

    /// Gives back what is in advance. False where nothing was.
    fn collect(&self, _moving: &MutexGuard<'_, ()>) -> bool {
        let advance = self.parts.iter().map(|part| part.0.swap(0, Ordering::AcqRel)).sum();
        self.give_back(advance);
        advance > 0
    }

    /// The part that this thread of the program uses.
    fn part(&self) -> &Part {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static PLACE: Cell<Option<usize>> = const { Cell::new(None) };
        }
        let place = PLACE.get().unwrap_or_else(|| {
            let place = NEXT.fetch_add(1, Ordering::Relaxed) % PARTS;
            PLACE.set(Some(place));
            place
        });
        &self.parts[place]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cap_is_met_to_the_byte_whoever_has_something_in_advance() {
        let account = Account::new(PARTS as u64 * ADVANCE_BYTES);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| account.try_reserve(1).unwrap());
            }
        });
        assert_eq!(account.bytes(), 4);
        let rest = account.bytes_max() - 4;
        assert_eq!(account.try_reserve(rest + 1), Err(4));
        account.try_reserve(rest).unwrap();
        assert_eq!(account.try_reserve(1), Err(account.bytes_max()));
        account.count(1);
        account.release(account.bytes_max() + 1);
        assert_eq!(account.bytes(), 0);
    }

    #[test]
    fn beyond_the_cap_nothing_is_spent_that_was_taken_in_advance() {
        let account = Account::new(200_000);
        account.try_reserve(1).unwrap();
        account.try_reserve(130_000).unwrap();
        account.count(70_000);
        assert_eq!(account.try_reserve(60_000), Err(200_001));
        account.release(10_001);
        account.try_reserve(10_000).unwrap();
        assert_eq!(account.try_reserve(1), Err(200_000));
    }

    #[test]
    fn nobody_is_refused_for_what_others_have_in_advance() {
        let account = Account::new(PARTS as u64 * ADVANCE_BYTES);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let quarter = account.bytes_max() / 4;
                        account.try_reserve(quarter).unwrap();
                        account.release(quarter);
                    }
                });
            }
        });
        assert_eq!(account.bytes(), 0);
    }

    #[test]
    fn what_threads_hold_and_release_adds_up() {
        let account = Account::new(1 << 20);
        std::thread::scope(|scope| {
            for each in 1..=8 {
                let account = &account;
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        account.try_reserve(each * 100).unwrap();
                        account.release(each * 100);
                    }
                    account.try_reserve(each).unwrap();
                });
            }
        });
        assert_eq!(account.bytes(), 36);
    }
}
