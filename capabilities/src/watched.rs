//! How a subscription keeps its thread announcing.
//!
//! Announcing costs a writer, so appends announce only in threads that say that somebody follows them. A subscription has
//! its thread say so for a while, and again before that ends; one that goes away need not take it back.

use std::time::{Duration, Instant};

/// How long a thread announces after it was last told that somebody follows it.
pub(crate) const LEASE: Duration = Duration::from_secs(300);

/// When a subscription last told its thread.
#[derive(Default)]
pub(crate) struct Watched {
    since: Option<Instant>,
}

impl Watched {
    /// Whether it is time to tell the thread.
    pub(crate) fn is_due(&self) -> bool {
        self.since.is_none_or(|since| since.elapsed() >= LEASE / 2)
    }

    /// Keeps what came of it: a thread that is not there yet, or that may only be read, is told again before the next
    /// wait. `asked` is when the thread was asked.
    pub(crate) fn answered(&mut self, asked: Instant, announces: bool) {
        self.since = announces.then_some(asked);
    }
}
