//! Read-ahead on the blocking pool, without a thread switch for each piece.
//!
//! The pieces are assigned to workers round-robin. A worker occupies a thread while the consumer takes its
//! pieces. It releases the thread once some pieces are waiting, and the consumer starts it again. So a slow
//! consumer holds no thread, and a fast one releases its threads from time to time.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::Stream;
use futures_util::stream::poll_fn;
use larder_kernel::Result;

use crate::fs::blocking::aborted;

/// A worker pauses once this many of its pieces wait for the consumer.
const READY_MAX: usize = 2;
/// The number of pieces that a worker reads before it releases its thread.
const RUN_PIECES: usize = 16;

type Read<T> = dyn Fn(Range<u64>) -> Result<T> + Send + Sync;

/// Returns the results for the pieces, in order, read by this many workers. A worker stops at its first
/// error.
pub(super) fn read_ahead<T, P, R>(
    operation: &'static str,
    pieces: &P,
    workers: usize,
    read: R,
) -> impl Stream<Item = Result<T>> + Send + use<T, P, R>
where
    T: Send + 'static,
    P: Iterator<Item = Range<u64>> + Clone + Send + 'static,
    R: Fn(Range<u64>) -> Result<T> + Send + Sync + 'static,
{
    let read: Arc<Read<T>> = Arc::new(read);
    let worker = |first| {
        let pieces: Box<dyn Iterator<Item = _> + Send> =
            Box::new(pieces.clone().skip(first).step_by(workers));
        let state = State { left: pieces.peekable(), ready: VecDeque::new(), is_running: false, waker: None };
        Arc::new(Worker { operation, read: Arc::clone(&read), state: Mutex::new(state) })
    };
    let workers = Workers((0..workers).map(worker).collect());
    let mut turn = 0;
    poll_fn(move |context| {
        let workers = &workers.0;
        let piece = workers[turn % workers.len()].poll(context);
        if piece.is_ready() {
            turn += 1;
        }
        piece
    })
}

/// The workers of a stream. They stop when the stream is dropped.
struct Workers<T>(Vec<Arc<Worker<T>>>);

impl<T> Drop for Workers<T> {
    fn drop(&mut self) {
        self.0.iter().for_each(|worker| worker.state().left = no_pieces());
    }
}

struct Worker<T> {
    operation: &'static str,
    read: Arc<Read<T>>,
    state: Mutex<State<T>>,
}

type Pieces = std::iter::Peekable<Box<dyn Iterator<Item = Range<u64>> + Send>>;

fn no_pieces() -> Pieces {
    let none: Box<dyn Iterator<Item = _> + Send> = Box::new(std::iter::empty());
    none.peekable()
}

struct State<T> {
    /// The pieces that are still to be read.
    left: Pieces,
    /// The pieces that wait for the consumer.
    ready: VecDeque<Result<T>>,
    /// True if the worker occupies a thread.
    is_running: bool,
    /// The consumer that waits for the next piece.
    waker: Option<Waker>,
}

impl<T: Send + 'static> Worker<T> {
    fn poll(self: &Arc<Self>, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        let mut state = self.state();
        let begins = !state.is_running && state.left.peek().is_some();
        state.is_running |= begins;
        let piece = match state.ready.pop_front() {
            Some(piece) => Poll::Ready(Some(piece)),
            None if state.is_running => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(None),
        };
        // A runtime that shuts down drops the run right here, and its `drop` locks the state.
        drop(state);
        if begins {
            let run = Run { worker: Arc::clone(self), read: 0, is_done: false };
            tokio::task::spawn_blocking(move || run.run());
        }
        piece
    }
}

impl<T> Worker<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A worker on a thread. It wakes the consumer however it ends.
struct Run<T> {
    worker: Arc<Worker<T>>,
    /// The number of pieces that it has read.
    read: usize,
    /// True if it released its thread; the worker may already run on another thread.
    is_done: bool,
}

impl<T> Run<T> {
    fn run(mut self) {
        while let Some(piece) = self.next() {
            let piece = (self.worker.read)(piece);
            let mut state = self.worker.state();
            if piece.is_err() {
                state.left = no_pieces();
            }
            state.ready.push_back(piece);
            let waker = state.waker.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// Returns the next piece to read; `None` releases the thread.
    fn next(&mut self) -> Option<Range<u64>> {
        let mut state = self.worker.state();
        let goes_on = state.ready.len() < READY_MAX && self.read < RUN_PIECES;
        let piece = if goes_on { state.left.next() } else { None };
        self.read += 1;
        if piece.is_none() {
            self.is_done = true;
            state.is_running = false;
            let waker = state.waker.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        }
        piece
    }
}

impl<T> Drop for Run<T> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut state = self.worker.state();
        state.is_running = false;
        state.left = no_pieces();
        state.ready.push_back(Err(aborted(self.worker.operation)));
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;
