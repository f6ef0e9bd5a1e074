//! A short wait before a batched statement, so that closed-loop callers end up in one batch.
//!
//! Otherwise such callers split into two alternating groups: one group's statement runs while the other group
//! waits, and each group pays for a separate statement and fsync. So a batcher waits for the callers that it
//! just answered, but for less time than their statement took. It does not wait after a batch of one. After a
//! wait that timed out, it skips the next wait.

use std::time::{Duration, Instant};

/// The maximum wait.
const WAIT_MAX: Duration = Duration::from_micros(500);
/// A wait takes at most the last statement's duration divided by this.
const WAIT_DIVISOR: u32 = 2;

/// Waits until `waiting` returns at least `expected` callers, or until the limit for a statement that `took`
/// this long. The expected callers are the callers just answered and the callers that queued during the
/// statement. Returns true if all came. Other tasks of the thread run during the wait.
pub(super) async fn wait_for_batch(expected: usize, took: Duration, waiting: impl Fn() -> usize) -> bool {
    if expected < 2 {
        return true;
    }
    let (begun, limit) = (Instant::now(), (took / WAIT_DIVISOR).min(WAIT_MAX));
    while waiting() < expected {
        if begun.elapsed() >= limit {
            return false;
        }
        // A wake-up for each caller would cost more than the wait.
        tokio::task::yield_now().await;
    }
    true
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn the_wait_ends_when_the_batch_is_complete() {
        let looks = Cell::new(0);
        let waiting = || {
            looks.set(looks.get() + 1);
            looks.get()
        };
        assert!(wait_for_batch(3, LONG, waiting).await);
        assert!(looks.get() <= 3, "{}", looks.get());
    }

    #[tokio::test]
    async fn the_wait_for_a_missing_caller_is_limited() {
        let begun = Instant::now();
        assert!(!wait_for_batch(2, LONG, || 1).await);
        assert!((WAIT_MAX..LONG).contains(&begun.elapsed()));
    }

    #[tokio::test]
    async fn the_writer_does_not_wait_for_a_single_caller() {
        let looks = Cell::new(0);
        let waiting = || {
            looks.set(looks.get() + 1);
            0
        };
        assert!(wait_for_batch(1, LONG, waiting).await);
        assert_eq!(looks.get(), 0);
    }
}
