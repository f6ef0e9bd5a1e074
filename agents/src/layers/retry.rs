//! The layer that retries calls if that is safe.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use larder_kernel::{Error, ErrorKind, Outcome, Result};
use tokio::time::Instant;

use super::answer::Answer;
use super::middleware::{Call, Effect, Middleware};

/// Retries a call after a transient failure (`Timeout`, `Unavailable`), and only if a second call has no
/// second effect:
///
/// - the error says that nothing happened (`NotApplied`), or that the call may be repeated
///   ([`is_retryable`](larder_kernel::Error::is_retryable));
/// - or the outcome is unknown, and the call is a read, an append with an idempotency key, the renewal of a
///   lease, or a write that is guarded by a number that never decreases: a put or deletion at a revision, a
///   replacement against a `Seq`, a step from an expected revision.
///
/// A write with `Absent`, against an `ETag` or without any condition is not retried after an unknown outcome,
/// because it could overwrite the changes of another writer. If a guarded write is retried after an unknown
/// outcome and then returns `Conflict` or `NotFound`, its own first attempt may be the cause. The layer then
/// returns the first error: the write may have happened.
///
/// The upper bound of the pauses doubles from the first to the longest one, and each pause is random below
/// its bound. A stream is only reopened before its first item. A streamed body is only sent again if no part
/// of it was taken.
///
/// A retry budget protects a store that is down from multiplied load. Each retry takes 10 from it and each
/// success returns 1. If the budget is empty, the layer returns the error. All stores that one layer wraps
/// share the budget.
///
/// ```
/// use std::time::Duration;
/// use larder_agents::InMemoryHistoryProvider;
/// use larder_agents::layers::{Layer, RetryLayer};
/// use larder_kernel::{AppendOptions, ChatMessage, HistoryProvider, IdempotencyKey, Thread};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> larder_kernel::Result<()> {
/// let retry = RetryLayer::new().with_attempts_max(4).with_total_time_max(Duration::from_secs(10));
/// let history = retry.history(std::sync::Arc::new(InMemoryHistoryProvider::new()));
/// let once = AppendOptions::default().with_idempotency_key(IdempotencyKey::new("turn-7")?);
/// let thread = Thread::new("assistant", "session-1")?;
/// history.append_many(&thread, vec![ChatMessage::user("Hello")], once).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct RetryLayer {
    settings: Settings,
    budget: Arc<Budget>,
}

#[derive(Debug, Clone, Copy)]
struct Settings {
    attempts_max: u32,
    pause_first: Duration,
    pause_max: Duration,
    total_time_max: Duration,
}

/// The largest and initial value of the budget.
const BUDGET_MAX: u32 = 500;
const RETRY_COST: u32 = 10;

#[derive(Debug)]
struct Budget(AtomicU32);

impl Budget {
    fn spend(&self) -> bool {
        let spent = |left: u32| left.checked_sub(RETRY_COST);
        self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, spent).is_ok()
    }

    fn earn(&self) {
        let earned = |left: u32| (left < BUDGET_MAX).then_some(left + 1);
        // A full budget stays full.
        let _ = self.0.fetch_update(Ordering::AcqRel, Ordering::Acquire, earned);
    }
}

impl Default for RetryLayer {
    fn default() -> Self {
        Self::new()
    }
}

impl RetryLayer {
    /// Allows at most 3 attempts within 30 seconds, with pauses from 50 milliseconds to 2 seconds.
    #[must_use]
    pub fn new() -> Self {
        let settings = Settings {
            attempts_max: 3,
            pause_first: Duration::from_millis(50),
            pause_max: Duration::from_secs(2),
            total_time_max: Duration::from_secs(30),
        };
        Self { settings, budget: Arc::new(Budget(AtomicU32::new(BUDGET_MAX))) }
    }

    /// Sets the largest number of attempts, including the first.
    #[must_use]
    pub fn with_attempts_max(mut self, attempts_max: u32) -> Self {
        self.settings.attempts_max = attempts_max;
        self
    }

    /// Sets the upper bound of the first pause and of the longest pause.
    #[must_use]
    pub fn with_pauses(mut self, first: Duration, longest: Duration) -> Self {
        (self.settings.pause_first, self.settings.pause_max) = (first, longest);
        self
    }

    /// Sets the time, counted from the call, after which no further attempt begins. To interrupt a running
    /// attempt, use a [`TimeoutLayer`](super::TimeoutLayer): inside this layer for each attempt, outside for
    /// all attempts together.
    #[must_use]
    pub fn with_total_time_max(mut self, total_time_max: Duration) -> Self {
        self.settings.total_time_max = total_time_max;
        self
    }
}

impl super::layer::MiddlewareLayer for RetryLayer {
    type Hook = Retry;

    fn hook(&self) -> Retry {
        Retry { settings: self.settings, budget: Arc::clone(&self.budget) }
    }
}

#[derive(Debug)]
pub(super) struct Retry {
    settings: Settings,
    budget: Arc<Budget>,
}

/// Returns `true` if the same call may be retried after this error.
fn safe(call: &Call<'_>, error: &Error) -> bool {
    let passing = matches!(error.kind(), ErrorKind::Timeout | ErrorKind::Unavailable);
    let once = call.effect == Effect::Write;
    error.is_retryable() || (passing && (!once || error.outcome() == Outcome::NotApplied))
}

/// Adds the number of attempts to the error, if there were several.
fn counted(error: Error, attempts: u32) -> Error {
    if attempts > 1 { error.with_context("attempts", u64::from(attempts)) } else { error }
}

/// Returns a random number from 0 to 1.
#[allow(clippy::cast_precision_loss)]
fn chance() -> f64 {
    (RandomState::new().build_hasher().finish() >> 11) as f64 / (1_u64 << 53) as f64
}

impl Middleware for Retry {
    const REPEATS: bool = true;

    async fn around<'a, T: Answer>(
        &'a self,
        call: Call<'a>,
        mut attempt: impl FnMut() -> BoxFuture<'a, Result<T>> + Send + 'a,
    ) -> Result<T> {
        let begun = Instant::now();
        let mut bound = self.settings.pause_first;
        let mut doubtful: Option<Error> = None;
        for number in 1.. {
            let error = match attempt().await {
                Ok(answer) => {
                    self.budget.earn();
                    return Ok(answer);
                }
                Err(error) => error,
            };
            // A retried guarded write can see the effect of the first attempt.
            let own = matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NotFound);
            match doubtful.take() {
                Some(first) if own && call.effect == Effect::Guarded => {
                    return Err(counted(first, number));
                }
                first => doubtful = first,
            }
            let pause = bound.min(self.settings.pause_max).mul_f64(chance());
            let spent = begun.elapsed().saturating_add(pause);
            let more = number < self.settings.attempts_max && spent < self.settings.total_time_max;
            if !more || !safe(&call, &error) || !call.untouched() || !self.budget.spend() {
                let error = counted(error, number);
                // An earlier attempt may have written, even if this one did not. Only a conflict over an
                // idempotency key proves that none did.
                let unsure = doubtful.is_some() && error.kind() != ErrorKind::Conflict;
                return Err(if unsure { error.with_outcome(Outcome::Unknown) } else { error });
            }
            if call.effect != Effect::Read && error.outcome() == Outcome::Unknown {
                doubtful.get_or_insert(error);
            }
            tokio::time::sleep(pause).await;
            bound = bound.saturating_mul(2);
        }
        unreachable!("the attempts are counted")
    }
}
