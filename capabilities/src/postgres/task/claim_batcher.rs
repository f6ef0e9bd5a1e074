//! Batching of concurrent claims on one board into one statement.
//!
//! A board's row is locked until the write is flushed, so single claims cost an fsync each. The first
//! worker's claim runs immediately. The next statement serves all workers that arrive during it. It also
//! serves the workers of the statement before that claim again immediately, in order of arrival.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_kernel::{BoardId, Claim, Error, ErrorKind, Namespace, Outcome, Result, WorkerId};
use tokio::sync::oneshot;

use super::{CLAIM, steps};
use crate::postgres::batch_wait::wait_for_batch;
use crate::postgres::engine::Engine;
use crate::postgres::failure::same_for_all;

/// The maximum number of claims in one batch.
const BATCH_MAX: usize = 64;

/// A board with its namespace.
type BoardKey = (Namespace, BoardId);
type Answer = Result<Option<Claim>>;

/// The queued workers of each board on which a claim runs.
pub(crate) struct ClaimBatcher {
    engine: Engine,
    queues: Mutex<HashMap<BoardKey, Vec<Queued>>>,
}

struct Queued {
    worker: WorkerId,
    lease: Duration,
    reply: oneshot::Sender<Answer>,
}

impl ClaimBatcher {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine, queues: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<BoardKey, Vec<Queued>>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a worker. Returns true if no task serves the board yet.
    fn join(&self, board: &BoardKey, queued: Queued) -> bool {
        let mut queues = self.lock();
        let free = !queues.contains_key(board);
        queues.entry(board.clone()).or_default().push(queued);
        free
    }

    fn queued(&self, board: &BoardKey) -> usize {
        self.lock().get(board).map_or(0, Vec::len)
    }

    /// Takes the next batch out of the board's queue. An empty queue is removed, and the board is free.
    fn take_batch(&self, board: &BoardKey) -> Vec<Queued> {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(board) else { return Vec::new() };
        // A worker whose call was dropped gets no task.
        queue.retain(|queued| !queued.reply.is_closed());
        let batch: Vec<Queued> = queue.drain(..queue.len().min(BATCH_MAX)).collect();
        if batch.is_empty() {
            queues.remove(board);
        }
        batch
    }
}

/// The task that serves a board. If it ends early, for example with the runtime, it frees the board. The
/// queued calls notice the loss of their reply channel.
struct BoardServer {
    batcher: Arc<ClaimBatcher>,
    board: BoardKey,
    /// False once the queue is empty: another task may serve the board from then on.
    responsible: bool,
}

impl Drop for BoardServer {
    fn drop(&mut self) {
        if self.responsible {
            self.batcher.lock().remove(&self.board);
        }
    }
}

impl BoardServer {
    /// Serves the board until its queue is empty.
    async fn run(mut self) {
        let mut wait = true;
        loop {
            let batch = self.batcher.take_batch(&self.board);
            if batch.is_empty() {
                self.responsible = false;
                return;
            }
            let workers: Vec<(&WorkerId, Duration)> =
                batch.iter().map(|queued| (&queued.worker, queued.lease)).collect();
            let begun = Instant::now();
            let claimed = self
                .batcher
                .engine
                .statement(
                    CLAIM,
                    &(&self.board, &workers),
                    |connection, write, &((namespace, board), workers)| {
                        Box::pin(steps::claim(connection, namespace, board, workers, write))
                    },
                )
                .await;
            let took = begun.elapsed();
            let expected = (batch.len() + self.batcher.queued(&self.board)).min(BATCH_MAX);
            match claimed {
                Ok(claims) => {
                    let claims = claims.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
                    for (queued, claim) in batch.into_iter().zip(claims) {
                        // A worker whose call was dropped during the statement holds a task until its lease
                        // expires.
                        let _ = queued.reply.send(Ok(claim));
                    }
                    let queued = || self.batcher.queued(&self.board);
                    wait = !wait || wait_for_batch(expected, took, queued).await;
                }
                Err(error) => fail(batch, error),
            }
        }
    }
}

/// Fails all claims of a batch with the same error.
fn fail(batch: Vec<Queued>, error: Error) {
    let same = same_for_all(error);
    for queued in batch {
        let _ = queued.reply.send(Err(same()));
    }
}

/// Makes a worker's claim, in a batch with concurrent ones.
pub(super) async fn claim(
    batcher: &Arc<ClaimBatcher>,
    namespace: &Namespace,
    board: &BoardId,
    worker: &WorkerId,
    lease: Duration,
) -> Answer {
    let board = (namespace.clone(), board.clone());
    let (reply, claimed) = oneshot::channel();
    if batcher.join(&board, Queued { worker: worker.clone(), lease, reply }) {
        tokio::spawn(BoardServer { batcher: Arc::clone(batcher), board, responsible: true }.run());
    }
    claimed.await.unwrap_or_else(|_| {
        let ended =
            Error::new(ErrorKind::Unexpected, CLAIM, "the runtime that made the claim is shutting down");
        Err(ended.with_outcome(Outcome::Unknown))
    })
}
