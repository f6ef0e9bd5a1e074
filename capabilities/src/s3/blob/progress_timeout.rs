//! The progress timeout of uploads: a call of any size continues while its bytes move, and ends soon after
//! they stop.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_kernel::Result;
use tokio::time::{Instant, timeout_at};

use crate::s3::engine::Engine;
use crate::s3::failure::{Effect, progress_timed_out};

/// The progress of a request body, shared by its clones.
#[derive(Debug, Clone)]
pub(crate) struct Progress(Arc<Mutex<Seen>>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    at: Instant,
    /// True if the connection took the whole body.
    ended: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Seen { at: Instant::now(), ended: false })))
    }

    /// Records that the connection took a piece, and if it was the last.
    pub(crate) fn moved(&self, ended: bool) {
        *self.lock() = Seen { at: Instant::now(), ended };
    }

    /// Waits for the response to a request with a body of this size, as long as the body makes progress.
    pub(crate) async fn watch<T>(
        &self,
        engine: &Engine,
        (operation, effect): (&'static str, Effect),
        bytes: u64,
        answer: impl Future<Output = T>,
    ) -> Result<T> {
        let mut answer = pin!(answer);
        loop {
            let until = self.until(engine, bytes);
            if let Ok(answer) = timeout_at(until, &mut answer).await {
                return Ok(answer);
            }
            if self.until(engine, bytes) <= Instant::now() {
                return Err(progress_timed_out(operation, effect));
            }
        }
    }

    /// Returns the instant at which the timeout ends.
    fn until(&self, engine: &Engine, bytes: u64) -> Instant {
        let seen = *self.lock();
        seen.at + if seen.ended { engine.last_answer(bytes) } else { engine.progress_timeout() }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
