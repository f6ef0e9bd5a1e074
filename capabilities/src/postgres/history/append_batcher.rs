//! Batching of concurrent appends into one statement.
//!
//! A statement costs its client and the server more than the row that it writes, and each ends in an fsync.
//! So only a few statements run at a time, and no two of them write the same thread. Appends that arrive
//! during a statement queue, and the next statement makes all of them.

mod statement;

use std::collections::HashSet;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use larder_kernel::{Appended, Error, ErrorKind, Outcome, Result};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use super::write::{self, Append};
use super::{APPEND, Address};
use crate::postgres::batch_wait::wait_for_batch;
use crate::postgres::engine::Engine;
use crate::postgres::failure::same_for_all;

/// The maximum number of concurrent statements, beyond which appends queue.
const STATEMENTS_MAX: usize = 2;
/// The maximum number of appends in one batch.
const BATCH_APPENDS_MAX: usize = 64;
/// The maximum bytes of messages in one batch.
const BATCH_BYTES_MAX: i64 = 1 << 20;
/// The maximum bytes of an append in a batch; a larger append would delay the others.
const APPEND_BYTES_MAX: i64 = 1 << 16;
/// The time for which a statement counts towards the limit of concurrent statements.
const SLOW: Duration = Duration::from_millis(20);
/// The time for which an append stays queued before it runs alone.
const QUEUE_TIME_MAX: Duration = Duration::from_millis(250);

/// The running and the queued appends to one open database.
pub(crate) struct AppendBatcher {
    engine: Engine,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    statements: usize,
    /// The threads that the running statements write.
    busy: HashSet<Address>,
    /// The queue, in order of arrival.
    queue: Vec<Queued>,
    /// True if the callers of the last batch did not come back in time, so that the next wait is skipped.
    skip_wait: bool,
}

/// An append in the queue.
struct Queued {
    append: Arc<Append>,
    /// Receives `None` if the append has to run alone after all.
    reply: oneshot::Sender<Option<Result<Appended>>>,
}

enum Admission {
    Run(RunningStatement),
    Queued(oneshot::Receiver<Option<Result<Appended>>>),
}

impl State {
    /// Takes the next batch out of the queue: appends to threads that no running statement writes.
    fn take_batch(&mut self) -> Vec<Queued> {
        let (mut batch, mut left, mut bytes) = (Vec::new(), Vec::new(), 0);
        for queued in self.queue.drain(..) {
            // The caller was dropped, so nothing may be appended for it.
            if queued.reply.is_closed() {
                continue;
            }
            let size = queued.append.batch.bytes();
            if batch.len() == BATCH_APPENDS_MAX
                || bytes + size > BATCH_BYTES_MAX
                || self.busy.contains(&queued.append.address)
            {
                left.push(queued);
            } else {
                bytes += size;
                batch.push(queued);
            }
        }
        self.queue = left;
        batch
    }
}

impl AppendBatcher {
    pub(crate) fn new(engine: Engine) -> Self {
        Self { engine, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No holder of the lock can stop halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns how many queued appends fit into the batch after a statement that writes these threads.
    /// Returns the maximum if their bytes fill the batch.
    fn ready(&self, threads: &HashSet<&Address>) -> usize {
        let state = self.lock();
        let (mut count, mut bytes) = (0, 0);
        for queued in &state.queue {
            let address = &queued.append.address;
            if threads.contains(address) || !state.busy.contains(address) {
                count += 1;
                bytes += queued.append.batch.bytes();
            }
        }
        if bytes < BATCH_BYTES_MAX { count.min(BATCH_APPENDS_MAX) } else { BATCH_APPENDS_MAX }
    }

    /// Returns true if the batcher should wait for the callers that are answered now.
    fn should_wait(&self) -> bool {
        !std::mem::take(&mut self.lock().skip_wait)
    }

    fn admit(self: &Arc<Self>, append: &Arc<Append>) -> Admission {
        let mut state = self.lock();
        if state.statements < STATEMENTS_MAX && !state.busy.contains(&append.address) {
            state.statements += 1;
            state.busy.insert(append.address.clone());
            let threads = vec![append.address.clone()];
            return Admission::Run(RunningStatement { batcher: Arc::clone(self), threads, counts: true });
        }
        let (reply, answer) = oneshot::channel();
        state.queue.push(Queued { append: Arc::clone(append), reply });
        Admission::Queued(answer)
    }

    /// Takes an append out of the queue. Returns false if a statement has taken it already.
    fn withdraw(&self, append: &Arc<Append>) -> bool {
        let mut state = self.lock();
        let index = state.queue.iter().position(|queued| Arc::ptr_eq(&queued.append, append));
        index.map(|index| state.queue.remove(index)).is_some()
    }

    /// Starts a statement with the next batch, if one more may run.
    fn start_next(self: &Arc<Self>, ended: impl FnOnce(&mut State)) {
        let batch = {
            let mut state = self.lock();
            ended(&mut state);
            if state.statements == STATEMENTS_MAX {
                return;
            }
            let batch = state.take_batch();
            if batch.is_empty() {
                return;
            }
            state.statements += 1;
            state.busy.extend(batch.iter().map(|queued| queued.append.address.clone()));
            batch
        };
        let threads = batch.iter().map(|queued| queued.append.address.clone()).collect();
        let statement = RunningStatement { batcher: Arc::clone(self), threads, counts: true };
        match Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn(statement.run(batch))),
            // This call runs outside every runtime; the queued calls do not.
            Err(_) => batch.into_iter().for_each(|queued| drop(queued.reply.send(None))),
        }
    }
}

/// A running statement. When it is dropped, the next batch starts.
struct RunningStatement {
    batcher: Arc<AppendBatcher>,
    threads: Vec<Address>,
    /// True if it counts towards the limit of concurrent statements.
    counts: bool,
}

impl Drop for RunningStatement {
    fn drop(&mut self) {
        self.batcher.start_next(|state| {
            for thread in &self.threads {
                state.busy.remove(thread);
            }
            state.statements -= usize::from(self.counts);
        });
    }
}

impl RunningStatement {
    /// Waits for a call. A slow call stops counting, so that another may start: another client may hold its
    /// thread's lock.
    async fn run_single<T>(mut self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        if let Ok(answer) = tokio::time::timeout(SLOW, &mut call).await {
            return answer;
        }
        self.counts = false;
        self.batcher.start_next(|state| state.statements -= 1);
        call.await
    }

    async fn run(self, batch: Vec<Queued>) {
        let begun = Instant::now();
        let made = self
            .batcher
            .engine
            .statement(APPEND, &batch, |sql, write, batch| statement::append(sql, write, batch))
            .await;
        let took = begun.elapsed();
        let batcher = &self.batcher;
        let threads: HashSet<&Address> = self.threads.iter().collect();
        let expected = (batch.len() + batcher.ready(&threads)).min(BATCH_APPENDS_MAX);
        match made {
            Ok(made) => {
                for (queued, appended) in batch.into_iter().zip(made) {
                    // A caller that was dropped during the statement gets no reply.
                    let _ = queued.reply.send(appended.map(Ok));
                }
                // The answered callers may append again immediately, and join the next batch.
                if !batcher.should_wait() {
                    tokio::task::yield_now().await;
                } else if !wait_for_batch(expected, took, || batcher.ready(&threads)).await {
                    batcher.lock().skip_wait = true;
                }
            }
            Err(error) => fail(batch, error),
        }
    }
}

/// Fails all appends of a batch. If one of them may be the cause, each runs again alone.
fn fail(batch: Vec<Queued>, error: Error) {
    let of_all =
        matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Timeout | ErrorKind::ResourceExhausted);
    let known = error.outcome() == Outcome::NotApplied;
    let same = same_for_all(error);
    for queued in batch {
        let _ = queued.reply.send((of_all || !known).then(|| Err(same())));
    }
}

/// Makes an append, in a batch with concurrent ones.
pub(super) async fn append(batcher: &Arc<AppendBatcher>, append: Append) -> Result<Appended> {
    if !append.is_plain() || append.batch.bytes() > APPEND_BYTES_MAX {
        return append_single(&batcher.engine, &append).await;
    }
    let append = Arc::new(append);
    match batcher.admit(&append) {
        Admission::Run(statement) => statement.run_single(append_single(&batcher.engine, &append)).await,
        Admission::Queued(answer) => match wait_for_answer(batcher, &append, answer).await {
            Some(made) => made,
            None => append_single(&batcher.engine, &append).await,
        },
    }
}

async fn append_single(engine: &Engine, append: &Append) -> Result<Appended> {
    engine.statement(APPEND, append, write::append).await
}

async fn wait_for_answer(
    batcher: &AppendBatcher,
    append: &Arc<Append>,
    mut answer: oneshot::Receiver<Option<Result<Appended>>>,
) -> Option<Result<Appended>> {
    let made = match tokio::time::timeout(QUEUE_TIME_MAX, &mut answer).await {
        Ok(made) => made,
        Err(_) if batcher.withdraw(append) => return None,
        Err(_) => answer.await,
    };
    made.unwrap_or_else(|_| {
        let ended =
            Error::new(ErrorKind::Unexpected, APPEND, "the runtime that made the append is shutting down");
        Some(Err(ended.with_outcome(Outcome::Unknown)))
    })
}
