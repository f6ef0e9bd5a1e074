//! The byte quota of a backend, for concurrent threads.
//!
//! A single counter would move between cores with each write. The quota therefore has stripes. Each stripe
//! takes a small reserve from the quota, and the threads that use the stripe count it down. A reserve does
//! not count as used. Close to the cap the reserves are collected, so the cap is exact to the byte.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// More stripes than most machines have cores would bring little benefit.
const STRIPES: usize = 16;
/// The size of a stripe's reserve, in bytes.
const RESERVE_BYTES: u64 = 64 * 1024;

/// The used bytes and their limit.
pub(super) struct Quota {
    /// The used bytes plus the reserves of the stripes.
    taken: AtomicU64,
    stripes: [Stripe; STRIPES],
    /// Held while bytes move between a stripe and `taken`, so that a call that fails does not read an
    /// intermediate state.
    moving: Mutex<()>,
    bytes_max: u64,
}

/// The reserve of one stripe, on a separate cache line.
#[derive(Default)]
#[repr(align(128))]
struct Stripe(AtomicU64);

impl Quota {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { taken: AtomicU64::new(0), stripes: Default::default(), moving: Mutex::new(()), bytes_max }
    }

    /// Returns the used bytes; approximate during concurrent writes.
    pub(super) fn bytes(&self) -> u64 {
        let reserve: u64 = self.stripes.iter().map(|stripe| stripe.0.load(Ordering::Acquire)).sum();
        self.taken.load(Ordering::Acquire).saturating_sub(reserve)
    }

    pub(super) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Reserves `bytes`. If they exceed the cap, returns the used bytes as the error.
    pub(super) fn try_reserve(&self, bytes: u64) -> Result<(), u64> {
        let stripe = self.stripe();
        let spend = |reserve: u64| reserve.checked_sub(bytes);
        if stripe.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, spend).is_ok() {
            return Ok(());
        }
        let moving = self.moving();
        if self.take(bytes.saturating_add(RESERVE_BYTES)) {
            stripe.0.fetch_add(RESERVE_BYTES, Ordering::AcqRel);
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

    /// Reserves `bytes` regardless of the cap. Beyond the cap no reserve remains for other calls.
    pub(super) fn count(&self, bytes: u64) {
        if self.taken.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes) > self.bytes_max {
            self.collect(&self.moving());
        }
    }

    /// Releases `bytes`.
    pub(super) fn release(&self, bytes: u64) {
        if self.taken.load(Ordering::Acquire) > self.bytes_max {
            self.give_back(bytes);
            return;
        }
        let stripe = &self.stripe().0;
        if stripe.fetch_add(bytes, Ordering::AcqRel).saturating_add(bytes) > 2 * RESERVE_BYTES {
            let _moving = self.moving();
            self.give_back(stripe.swap(0, Ordering::AcqRel));
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
        // The closure never returns `None`, so the update cannot fail.
        let _ = self.taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, subtract);
    }

    /// Returns the reserves of all stripes to the quota. Returns `false` if all were empty.
    fn collect(&self, _moving: &MutexGuard<'_, ()>) -> bool {
        let reserve = self.stripes.iter().map(|stripe| stripe.0.swap(0, Ordering::AcqRel)).sum();
        self.give_back(reserve);
        reserve > 0
    }

    /// Returns the stripe of this thread.
    fn stripe(&self) -> &Stripe {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        thread_local! {
            static STRIPE: Cell<Option<usize>> = const { Cell::new(None) };
        }
        let stripe = STRIPE.get().unwrap_or_else(|| {
            let stripe = NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES;
            STRIPE.set(Some(stripe));
            stripe
        });
        &self.stripes[stripe]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cap_is_exact_to_the_byte_for_every_stripe_with_a_reserve() {
        let quota = Quota::new(STRIPES as u64 * RESERVE_BYTES);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| quota.try_reserve(1).unwrap());
            }
        });
        assert_eq!(quota.bytes(), 4);
        let rest = quota.bytes_max() - 4;
        assert_eq!(quota.try_reserve(rest + 1), Err(4));
        quota.try_reserve(rest).unwrap();
        assert_eq!(quota.try_reserve(1), Err(quota.bytes_max()));
        quota.count(1);
        quota.release(quota.bytes_max() + 1);
        assert_eq!(quota.bytes(), 0);
    }

    #[test]
    fn beyond_the_cap_no_reserve_is_spent() {
        let quota = Quota::new(200_000);
        quota.try_reserve(1).unwrap();
        quota.try_reserve(130_000).unwrap();
        quota.count(70_000);
        assert_eq!(quota.try_reserve(60_000), Err(200_001));
        quota.release(10_001);
        quota.try_reserve(10_000).unwrap();
        assert_eq!(quota.try_reserve(1), Err(200_000));
    }

    #[test]
    fn reserves_of_other_callers_refuse_no_call() {
        let quota = Quota::new(STRIPES as u64 * RESERVE_BYTES);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let quarter = quota.bytes_max() / 4;
                        quota.try_reserve(quarter).unwrap();
                        quota.release(quarter);
                    }
                });
            }
        });
        assert_eq!(quota.bytes(), 0);
    }

    #[test]
    fn accounts_of_threads_add_up() {
        let quota = Quota::new(1 << 20);
        std::thread::scope(|scope| {
            for each in 1..=8 {
                let quota = &quota;
                scope.spawn(move || {
                    for _ in 0..10_000 {
                        quota.try_reserve(each * 100).unwrap();
                        quota.release(each * 100);
                    }
                    quota.try_reserve(each).unwrap();
                });
            }
        });
        assert_eq!(quota.bytes(), 36);
    }
}
