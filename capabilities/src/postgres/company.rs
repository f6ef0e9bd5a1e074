//! Callers who come again and again, and share a statement and its flush.
//!
//! They would be divided in two parties for ever: one is under way while the other waits, and each pays for a statement of
//! its own. So those who were just answered are waited for, though for less than their statement took, and where nobody
//! else was there for nobody. Where they did not come, the next statement goes without.

use std::time::{Duration, Instant};

/// How long callers are waited for: a part of what their statement took, and no longer than this.
const PATIENCE_MAX: Duration = Duration::from_micros(500);
const PATIENCE_SHARE: u32 = 2;

/// Waits until as many are `there` as the `company` has callers, those just answered and those who came meanwhile, or for
/// long enough after a statement that took so long. Says whether all came. Other tasks of the thread have their turn.
pub(super) async fn gather(company: usize, took: Duration, there: impl Fn() -> usize) -> bool {
    if company < 2 {
        return true;
    }
    let (begun, patience) = (Instant::now(), (took / PATIENCE_SHARE).min(PATIENCE_MAX));
    while there() < company {
        if begun.elapsed() >= patience {
            return false;
        }
        // Being woken for each of them would cost more than the wait.
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
    async fn a_company_is_waited_for_until_it_is_complete() {
        let looks = Cell::new(0);
        let there = || {
            looks.set(looks.get() + 1);
            looks.get()
        };
        assert!(gather(3, LONG, there).await);
        assert!(looks.get() <= 3, "{}", looks.get());
    }

    #[tokio::test]
    async fn who_does_not_come_back_in_time_is_not_waited_for() {
        let begun = Instant::now();
        assert!(!gather(2, LONG, || 1).await);
        assert!((PATIENCE_MAX..LONG).contains(&begun.elapsed()));
    }

    #[tokio::test]
    async fn who_comes_alone_is_not_waited_for() {
        let looks = Cell::new(0);
        let there = || {
            looks.set(looks.get() + 1);
            0
        };
        assert!(gather(1, LONG, there).await);
        assert_eq!(looks.get(), 0);
    }
}
