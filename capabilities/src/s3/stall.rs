//! Watching bytes on their way to the server: however many they are, a call goes on while they move, and ends soon after
//! they stand still.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use larder_kernel::Result;
use tokio::time::{Instant, timeout_at};

use super::engine::Engine;
use super::failure::{Effect, stalled};

/// How far a body is. Clones look at the same one.
#[derive(Debug, Clone)]
pub(crate) struct Progress(Arc<Mutex<Seen>>);

#[derive(Debug, Clone, Copy)]
struct Seen {
    at: Instant,
    /// Whether the connection took all of the body.
    ended: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Seen { at: Instant::now(), ended: false })))
    }

    /// The connection took a piece, after which there are others or not.
    pub(crate) fn moved(&self, ended: bool) {
        *self.lock() = Seen { at: Instant::now(), ended };
    }

    /// The answer to a request with a body of so many bytes, unless that stands still.
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
                return Err(stalled(operation, effect));
            }
        }
    }

    /// When it has stood still for too long.
    fn until(&self, engine: &Engine, bytes: u64) -> Instant {
        let seen = *self.lock();
        seen.at + if seen.ended { engine.last_answer(bytes) } else { engine.stall() }
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
