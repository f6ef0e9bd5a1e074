//! Reading ahead on the blocking pool, without a hop for each piece.
//!
//! The pieces are dealt out to lanes in turns. A lane's reader goes on from piece to piece as long as they are taken; where
//! some lie there untaken it ends, and whoever takes one starts it anew. So a slow consumer holds no thread, and a quick one
//! gives others their turn now and then.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::Stream;
use futures_util::stream::poll_fn;
use larder_kernel::Result;

use super::cut_short;

/// With so many pieces untaken, a lane reads no further one.
const READY_MAX: usize = 2;
/// Pieces that a reader reads in one go, before others may have its thread.
const TURN_PIECES: usize = 16;

type Read<T> = dyn Fn(Range<u64>) -> Result<T> + Send + Sync;

/// What comes of the pieces, in their order, read by so many lanes at once. Nothing follows an error of a lane.
pub(super) fn read_ahead<T, P, R>(
    operation: &'static str,
    pieces: &P,
    lanes: usize,
    read: R,
) -> impl Stream<Item = Result<T>> + Send + use<T, P, R>
where
    T: Send + 'static,
    P: Iterator<Item = Range<u64>> + Clone + Send + 'static,
    R: Fn(Range<u64>) -> Result<T> + Send + Sync + 'static,
{
    let read: Arc<Read<T>> = Arc::new(read);
    let lane = |first| {
        let pieces: Box<dyn Iterator<Item = _> + Send> = Box::new(pieces.clone().skip(first).step_by(lanes));
        let state = State { left: pieces.peekable(), ready: VecDeque::new(), is_read: false, waker: None };
        Arc::new(Lane { operation, read: Arc::clone(&read), state: Mutex::new(state) })
    };
    let lanes = Lanes((0..lanes).map(lane).collect());
    let mut turn = 0;
    poll_fn(move |context| {
        let lanes = &lanes.0;
        let piece = lanes[turn % lanes.len()].poll(context);
        if piece.is_ready() {
            turn += 1;
        }
        piece
    })
}

/// The lanes of a stream. Readers end with it.
struct Lanes<T>(Vec<Arc<Lane<T>>>);

impl<T> Drop for Lanes<T> {
    fn drop(&mut self) {
        self.0.iter().for_each(|lane| lane.state().left = no_pieces());
    }
}

struct Lane<T> {
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
    /// What nobody has begun to read.
    left: Pieces,
    /// What was read and is not taken.
    ready: VecDeque<Result<T>>,
    /// Whether a reader is under way.
    is_read: bool,
    /// Who waits for the next piece.
    waker: Option<Waker>,
}

impl<T: Send + 'static> Lane<T> {
    fn poll(self: &Arc<Self>, context: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        let mut state = self.state();
        let begins = !state.is_read && state.left.peek().is_some();
        state.is_read |= begins;
        let piece = match state.ready.pop_front() {
            Some(piece) => Poll::Ready(Some(piece)),
            None if state.is_read => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
            None => Poll::Ready(None),
        };
        // A runtime that shuts down drops the reader at once, which then looks at the state itself.
        drop(state);
        if begins {
            let reader = Reader { lane: Arc::clone(self), read: 0, is_done: false };
            tokio::task::spawn_blocking(move || reader.run());
        }
        piece
    }
}

impl<T> Lane<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reader under way. However it ends, who waits is told.
struct Reader<T> {
    lane: Arc<Lane<T>>,
    /// How many pieces it has read.
    read: usize,
    /// Whether it gave up its place: the lane may have another reader by now.
    is_done: bool,
}

impl<T> Reader<T> {
    fn run(mut self) {
        while let Some(piece) = self.next() {
            let piece = (self.lane.read)(piece);
            let mut state = self.lane.state();
            if piece.is_err() {
                state.left = no_pieces();
            }
            state.ready.push_back(piece);
            let waker = state.waker.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        }
    }

    /// The next piece to read; without one the place is given up.
    fn next(&mut self) -> Option<Range<u64>> {
        let mut state = self.lane.state();
        let goes_on = state.ready.len() < READY_MAX && self.read < TURN_PIECES;
        let piece = if goes_on { state.left.next() } else { None };
        self.read += 1;
        if piece.is_none() {
            self.is_done = true;
            state.is_read = false;
            let waker = state.waker.take();
            drop(state);
            waker.into_iter().for_each(Waker::wake);
        }
        piece
    }
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let mut state = self.lane.state();
        state.is_read = false;
        state.left = no_pieces();
        state.ready.push_back(Err(cut_short(self.lane.operation)));
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests;
